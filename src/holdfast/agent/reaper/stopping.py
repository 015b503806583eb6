"""Executes a stop of the whole process tree: time for the command to finish by itself, then SIGTERM, grace
period, SIGKILL.
"""

from __future__ import annotations

import os
import signal

from . import proc
from .forks import is_stub

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .ranks import Ranks

# For a launcher and helpers whose ranks are all gone. A launcher that copies the ranks' output looks for more every 0.1 s
# (torch/distributed/elastic/multiprocessing/tail_log.py), so it has this time after the ranks. One that copies nothing has it
# from its SIGTERM on. Its own shutdown can take longer, and the next attempt waits for it.
DOOMED_GRACE_S = 0.15
STUCK_S = 1.5  # in state D or traced, and no processor time used: it will not act on a SIGTERM
UNKILLABLE_S = 10.0  # after SIGKILL: what still lives then is in state D
POLL_WAITING_S = 0.1
POLL_KILLING_S = 0.02
ORPHAN_ROUNDS = 50


def may_be_copied(ranks: Iterable[int], command: int | None) -> bool:
    """Returns whether these ranks write elsewhere than the command does, so that one of its tree may pass on what they write.

    Process ids; `command` is None if it does not run.
    """
    own = proc.outputs(command) if command is not None else set()
    theirs = [proc.outputs(pid) for pid in ranks]
    return not theirs or any(not one or not one <= own for one in theirs)


def doom_s(term_s: float, gone_s: float, *, is_copied: bool) -> float:
    """Returns when a launcher without ranks is killed. `term_s`: of its SIGTERM; `gone_s`: of the last rank's end."""
    return max(gone_s, (gone_s if is_copied else term_s) + DOOMED_GRACE_S)


class Stop:
    """A stop in progress. `command`: process id of the command; None if it does not run."""

    def __init__(self, now_s: float, finish_s: float, grace_s: float, command: int | None) -> None:
        self._command = command
        self.finish_until_s = now_s + finish_s
        self.grace_s = grace_s
        self.term_at_s: float | None = None
        self.killing_since_s: float | None = None
        self.killed: set[int] = set()
        self._had_ranks = False
        self._is_copied = True  # something of the tree copies the ranks' output
        self._doomed_at_s: float | None = None
        self._stuck: dict[int, tuple[tuple[bytes, ...], float]] = {}

    def harden(self, now_s: float, finish_s: float, grace_s: float) -> None:
        """Applies a later stop request, which can only shorten the times of the earlier ones."""
        self.finish_until_s = min(self.finish_until_s, now_s + finish_s)
        self.grace_s = min(self.grace_s, grace_s)

    def wait_s(self, now_s: float) -> float:
        """Returns the time in seconds until the next step of the stop."""
        if self.killing_since_s is not None:
            return POLL_KILLING_S
        if self._doomed_at_s is None:
            return POLL_WAITING_S
        return min(POLL_WAITING_S, max(0.0, self._kill_at_s() - now_s))

    def may_finish(self, now_s: float, command_runs: bool) -> bool:
        return self.term_at_s is None and now_s < self.finish_until_s and command_runs

    def go_on(self, now_s: float, tree: list[int], ranks: Ranks, collect: Callable[[], None]) -> bool:
        """Does one step of the stop. Returns False if only processes are left that cannot be killed."""
        if self.term_at_s is None:
            self._terminate(now_s, tree, ranks)
        if self._had_ranks or ranks.failed:
            self._note_doom(now_s, ranks)
        if now_s < self._kill_at_s():
            self._kill(pid for pid in tree if self._is_stuck(pid, now_s))
            return True
        if self.killing_since_s is None:
            self.killing_since_s = now_s
        self._kill(tree)
        self._kill_orphans(collect)
        return now_s - self.killing_since_s <= UNKILLABLE_S

    def _terminate(self, now_s: float, tree: list[int], ranks: Ranks) -> None:
        self.term_at_s = now_s
        self._had_ranks = bool(ranks.living)
        self._is_copied = may_be_copied(ranks.living, self._command)
        if self.grace_s > 0:
            for pid in tree:
                if not is_stub(pid):  # it would pass it on to a process that gets one, too
                    proc.send_signal(pid, signal.SIGTERM)

    def _note_doom(self, now_s: float, ranks: Ranks) -> None:
        if self._doomed_at_s is None and ranks.any_yet and not ranks.living:
            self._doomed_at_s = now_s

    def _kill_at_s(self) -> float:
        assert self.term_at_s is not None
        at_s = self.term_at_s + self.grace_s
        if self._doomed_at_s is None:
            return at_s
        return min(at_s, doom_s(self.term_at_s, self._doomed_at_s, is_copied=self._is_copied))

    def _is_stuck(self, pid: int, now_s: float) -> bool:
        """Returns whether a process cannot react to SIGTERM: it is stopped, or in state D for long (not
        only for a save).
        """
        progress = proc.progress(pid)
        if not progress or progress[0] not in (b"T", b"t", b"D"):
            self._stuck.pop(pid, None)
            return False
        before, since_s = self._stuck.setdefault(pid, (progress, now_s))
        if before != progress:
            self._stuck[pid] = (progress, now_s)
            return False
        return progress[0] == b"T" or now_s - since_s >= STUCK_S

    def _kill(self, pids: Iterable[int]) -> None:
        for pid in pids:
            proc.send_signal(pid, signal.SIGKILL)
            self.killed.add(pid)

    def _kill_orphans(self, collect: Callable[[], None]) -> None:
        """Kills a chain of processes that each fork and exit faster than the machine's processes can be
        listed.

        The next process of the chain is always a child of this process once the previous one has ended.
        """
        for _ in range(ORPHAN_ROUNDS):
            collect()
            living = [pid for pid in proc.children(os.getpid()) if proc.state(pid) not in (b"", b"Z", b"X")]
            if not living:
                return
            self._kill(living)


def sweep_shared_memory(pids: set[int]) -> None:
    """Removes shared memory segments of PyTorch (torch_<pid>_...) that killed processes left behind."""
    try:
        names = os.listdir("/dev/shm")
    except OSError:
        return
    for name in names:
        parts = name.split("_")
        if parts[0] != "torch" or len(parts) < 3 or not parts[1].isdigit():
            continue
        if int(parts[1]) in pids and not proc.is_there(int(parts[1])):
            try:
                os.unlink("/dev/shm/" + name)
            except OSError:
                pass
