"""Watches candidates: processes that look like ranks but do not count as ranks yet, because they are young or
were seen only once.

A stopped process (state T) does not change any more, so it counts as a rank at once. The exit code of each
candidate is kept, for launchers that report an exit code of their own (a notebook's client whose kernel has
died).
"""

from __future__ import annotations

import os

from . import proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    from collections.abc import Mapping

ENDED_MAX = 16  # of processes, the last ones
STOPPED = b"T"
SHELL_SIGNAL = 128  # a shell reports signal N as 128 + N


class Ended:
    """A candidate process that has ended. `code`: its exit code; None if this kernel does not report it."""

    def __init__(self, pid: int, rank: int, code: int | None) -> None:
        self.pid, self.rank, self.code = pid, rank, code


class _Candidate:
    def __init__(self, pid: int, rank: int, started: bytes, pidfd: int) -> None:
        self.pid, self.rank, self.started, self.pidfd = pid, rank, started, pidfd


class Candidates:
    def __init__(self, poll: select.poll) -> None:
        self.by_pidfd: dict[int, int] = {}
        self.ended: list[Ended] = []
        self._all: dict[int, _Candidate] = {}
        self._poll = poll

    @property
    def ranks(self) -> dict[int, int]:
        """Returns the guessed rank of each candidate, by process id."""
        return {one.pid: one.rank for one in self._all.values()}

    def see(self, wanted: Mapping[int, int]) -> None:
        """Updates the set of candidates. `wanted`: guessed rank by process id; other processes are
        removed.
        """
        for one in list(self._all.values()):
            if wanted.get(one.pid) != one.rank:
                self._forget(one)
        for pid, rank in wanted.items():
            if pid not in self._all:
                self._add(pid, rank)

    def any_stopped(self) -> bool:
        return any(proc.state(pid) == STOPPED for pid in self._all)

    def ready(self, fd: int) -> None:
        """Handles the exit of a process that may be a rank: its pidfd `fd` has become readable."""
        one = self._all[self.by_pidfd[fd]]
        code = proc.code_of_zombie(one.pid, one.started)
        code = proc.code_of_collected(fd) if code is None else code
        self.ended = [*self.ended, Ended(one.pid, one.rank, code)][-ENDED_MAX:]
        self._forget(one)

    def hidden_by(self, command: int, code: int) -> list[Ended]:
        """Returns the first failed candidate of each rank whose exit differs from that of `command`, which
        ended with `code`.
        """
        found: dict[int, Ended] = {}
        for one in self.ended:
            if one.code and one.pid != command and code not in (one.code, SHELL_SIGNAL - one.code):
                found.setdefault(one.rank, one)
        return list(found.values())

    def _add(self, pid: int, rank: int) -> None:
        started = proc.signature(pid)[0]
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return  # gone, or refused by a container's filter or an old kernel
        if not started or proc.signature(pid)[0] != started:
            os.close(pidfd)
            return
        self._all[pid] = _Candidate(pid, rank, started, pidfd)
        self.by_pidfd[pidfd] = pid
        self._poll.register(pidfd, 1)  # POLLIN

    def _forget(self, one: _Candidate) -> None:
        del self._all[one.pid], self.by_pidfd[one.pidfd]
        self._poll.unregister(one.pidfd)
        os.close(one.pidfd)
