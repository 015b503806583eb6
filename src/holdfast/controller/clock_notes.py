"""Records beside a worker's output how far its node's clock is ahead of the job's clock, so that the lines of
many nodes can be merged by time.

It does so only if the difference matters, and only if the agent timestamps the lines with its node's clock.
"""

import os
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.observe.logs.index import CLOCK_NOTE, ClockNote

LOOK_S = 5.0
WORTH_S = 0.05  # the follower stamps lines ten times a second


class ClockNotes:
    """Writer of the clock offsets of nodes.

    `worker_dir`: returns the folder of an attempt and a worker. `offset_s`: returns a node's clock minus the
    job's clock in seconds; None if unknown.
    """

    def __init__(
        self, worker_dir: Callable[[int, int], Path], offset_s: Callable[[str], float | None]
    ) -> None:
        self._worker_dir = worker_dir
        self._offset_s = offset_s
        self._attempt = 0
        self._noted: dict[int, float] = {}
        self._looked_s = float("-inf")

    def turn(
        self, attempt: int, nodes: Mapping[int, str], at_s: float, without: Container[tuple[int, int]] = ()
    ) -> None:
        """Writes the clock offset of each worker's node beside the worker's output, if the offset has
        changed.

        May be called every second; checks every LOOK_S. `nodes`: node by worker. `without`: pairs of attempt
        and worker to skip, because the controller timestamps their lines.
        """
        if attempt != self._attempt:
            self._attempt, self._noted = attempt, {}
        elif at_s - self._looked_s < LOOK_S:
            return
        self._looked_s = at_s
        for worker, node in nodes.items():
            ahead_s = self._offset_s(node)
            if ahead_s is None or (attempt, worker) in without:
                continue
            if abs(ahead_s - self._noted.get(worker, 0.0)) >= WORTH_S and _is_written(
                self._worker_dir(attempt, worker) / CLOCK_NOTE, ahead_s
            ):
                self._noted[worker] = ahead_s


def _is_written(path: Path, ahead_s: float) -> bool:
    """Writes a note. Returns False if that failed (full disk, missing folder); the next turn tries again."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(msgspec.json.encode(ClockNote(ahead_s=round(ahead_s, 3))))
        part.rename(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        return False
    return True
