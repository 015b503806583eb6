"""Opens the listening socket of a single-node job when the first user command requests it (jobs.line).

Until then, it only checks once a second whether the job's folder contains a request.
"""

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from holdfast.agent.worker import WorkerAgent
from holdfast.controller.alert_notes import AlertNotes
from holdfast.controller.loop import Controller
from holdfast.jobs.agent_place import CONTROLLER, WANTED
from holdfast.journal.jobdir import JobDir
from holdfast.observe.clock import JobClock

LOOK_S = 1.0


class _Line(Protocol):
    def channels(self) -> list[int]: ...

    def turn(self) -> None: ...

    def close(self, why: str) -> None: ...


class LineOnDemand:
    """Opens the socket on request. `tell`: prints a message.

    `env`, `cwd`: for commands while no training runs. `notes`: the alerts that the journal already contains.
    """

    def __init__(
        self,
        job: JobDir,
        controller: Controller,
        agent: WorkerAgent,
        clock: JobClock,
        tell: Callable[[str], None],
        env: Mapping[str, str],
        cwd: str,
        grace_s: float,
    ) -> None:
        self._job, self._controller, self._agent = job, controller, agent
        self._clock, self._tell = clock, tell
        self._env, self._cwd, self._grace_s = env, cwd, grace_s
        self.notes = AlertNotes()
        self._line: _Line | None = None
        self._looked_s = clock()
        _is_removed(job.path / CONTROLLER)  # of a Holdfast that was killed

    def channels(self) -> list[int]:
        return self._line.channels() if self._line is not None else []

    def turn(self) -> None:
        if self._line is not None:
            self._turn(self._line)
        at_s = self._clock()
        if at_s - self._looked_s < LOOK_S:
            return
        self._looked_s = at_s
        if _is_removed(self._job.path / WANTED) and self._line is None:
            self._open()

    def _turn(self, line: _Line) -> None:
        """Serves the socket; closes it after an internal error, which must not slow down the main loop
        again and again.
        """
        is_well = False
        try:
            line.turn()
            is_well = True
        finally:
            if not is_well:
                self._line = None
                line.close(f"an internal error of Holdfast in job {self._job.name}")

    def close(self) -> None:
        if self._line is not None:
            self._line.close(f"job {self._job.name} has ended")
            self._line = None

    def _open(self) -> None:
        """Opens the socket. Its module is imported by name, because most jobs never need it."""
        module = importlib.import_module("holdfast.supervise.local_line")
        try:
            self._line = module.LocalLine(
                self._job,
                self._controller,
                self._agent,
                self._clock,
                self._env,
                self._cwd,
                self._grace_s,
                self.notes,
            )
        except OSError as error:
            self._tell(
                f"user commands cannot query this job, because its supervisor cannot listen for them: {error}"
            )


def _is_removed(path: Path) -> bool:
    with suppress(OSError):
        path.unlink()
        return True
    return False
