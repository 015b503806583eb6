"""Reads the newest checkpoint into the page cache while a failed attempt is being ended, for the ranks of the next one.

The reading is a process of its own at the lowest priority (`python -m holdfast.agent.standby.page_cache PATH...`), so that
a file system that does not answer holds up nothing else. It ends with the agent.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from holdfast.agent.attempt import Attempt
from holdfast.checks.env.checkpoint import newest_in
from holdfast.core.checks.asked import asked_of
from holdfast.model.settings import RunSettings

NICE = 19
CHUNK_BYTES = 8 << 20
SHARE = 0.5  # of the available memory: a larger checkpoint would push itself out again
FILES_MAX = 10_000


class CheckpointReader:
    """Starts the reading once for each attempt that fails, at its first sign: a rank or a command that failed, or a hang.

    Only where one worker is the whole job: on many nodes each would read all of a checkpoint that it shares with the
    others. Nothing is read where no restart is allowed (`is_wanted`) or the command names no checkpoint folder.
    """

    def __init__(self, settings: RunSettings, cwd: str, env: Mapping[str, str], *, is_wanted: bool) -> None:
        self._paths = checkpoint_paths(settings.command, cwd, env) if is_wanted else []
        self._attempt = 0  # the last one for which it was read
        self._process: subprocess.Popen[bytes] | None = None

    def tend(self, attempt: Attempt) -> None:
        """Starts to read the newest checkpoint once something has failed or hangs. Call it ten times a second."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        if (
            not self._paths
            or not has_failed(attempt)
            or attempt.workers > 1
            or self._attempt == attempt.number
        ):
            return
        self._attempt = attempt.number
        self.close()
        with suppress(OSError):  # the next attempt reads it itself
            self._process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.agent.standby.page_cache", *self._paths],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
            )
            os.setpriority(os.PRIO_PROCESS, self._process.pid, NICE)  # from its first import on

    def close(self) -> None:
        """Ends the reading. Does not wait for it: it may hang in a file system."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()


def has_failed(attempt: Attempt) -> bool:
    """Returns whether an attempt shows its first sign of failure: a rank or the command failed, or it hangs."""
    return bool(attempt.hang or attempt.command_code or any(one.code for one in attempt.exits))


def checkpoint_paths(command: Sequence[str], cwd: str, env: Mapping[str, str]) -> list[str]:
    """Returns the paths to which the command says that it saves checkpoints, and from which it resumes."""
    asked = asked_of(command, env)
    return [os.path.join(cwd, os.path.expanduser(path)) for path in (asked.checkpoint, asked.resume) if path]


def main(paths: Sequence[str], share: float = SHARE) -> int:
    """Reads the newest checkpoint of the first path that has one. Returns 1 if none was read.

    `share`: of the available memory that it may need.
    """
    agent = os.getppid()
    for path in paths:
        with suppress(OSError):
            files = list(files_of(path))
            if files:
                return 0 if read(files, agent, share) else 1
    return 1


def files_of(path: str) -> Iterator[str]:
    """Paths of the files of the newest checkpoint at `path`, a folder of checkpoints or a single file.

    raises: OSError
    """
    if os.path.isfile(path):
        yield path
        return
    newest = newest_in(path)
    if newest is None or not newest.name:
        return
    found = os.path.join(path, newest.name)
    if os.path.isfile(found):
        yield found
    for top, _, names in os.walk(found):
        yield from (os.path.join(top, name) for name in sorted(names))


def read(files: Sequence[str], agent: int, share: float = SHARE) -> bool:
    """Reads files through the page cache. False: nothing was read, because they need too much of the memory.

    `agent`: the parent, with which the reading ends. `share`: as for `main`. raises: OSError
    """
    files = files[:FILES_MAX]
    if sum(os.path.getsize(file) for file in files) > share * _available_bytes():
        return False
    buffer = bytearray(CHUNK_BYTES)
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while os.getppid() == agent and file.readinto(buffer):
                pass
    return True


def _available_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
