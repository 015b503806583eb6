"""Finds the ranks in the tree by their environment, and learns how each ended. Never signals one.

A rank is the topmost process of its branch that has RANK: what it forks (data loader workers) inherits
RANK and is not looked at, nor when it outlives the rank and is left to us. Launchers and shells can have a RANK from outside (a cluster's operator sets it
for the whole container); then the rank is below them.
"""

from __future__ import annotations

import os

from . import proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    from collections.abc import Callable

    from .facts import Facts

SETTLE_S = 2.0  # what a script runs before its training has the same RANK, and is soon over
SEEN_MAX = 200_000


class Rank:
    """A rank that lives. `pidfd`: None on kernels without; then it is looked at every second."""

    def __init__(self, pid: int, started: bytes, pidfd: int | None, named: dict[str, object]) -> None:
        self.pid = pid
        self.started = started
        self.pidfd = pidfd
        self.named = named


class _Passed:
    """A process that was looked at and is no rank so far."""

    def __init__(self, signature: tuple[bytes, bytes], now_s: float) -> None:
        self.signature = signature
        self.since_s = now_s
        self.named: dict[str, object] | None = None
        self.known = False  # nothing about it changes any more, unless it execs


class Ranks:
    def __init__(self, poll: select.poll, facts: Facts) -> None:
        self.living: dict[int, Rank] = {}
        self.by_pidfd: dict[int, int] = {}
        self.any_yet = False
        self.failed = False  # one at least did not end with code 0
        self.pids_seen: set[int] = set()
        self._passed: dict[int, _Passed] = {}
        self._ended: dict[object, int] = {}  # rank: when the last one ended, in clock ticks since the boot
        self._poll = poll
        self._facts = facts

    def all_found(self) -> bool:
        worlds = [rank.named["world_size"] for rank in self.living.values()]
        return bool(worlds) and all(isinstance(size, int) and len(worlds) >= size for size in worlds)

    def look(self, now_s: float, children: Callable[[int], list[int]]) -> None:
        """Goes down from this process to the topmost ranks."""
        seen: set[int] = set()
        left_to_us = children(os.getpid())
        todo: list[tuple[int, bool]] = [(pid, False) for pid in left_to_us]
        while todo:
            pid, inherits = todo.pop()
            if pid in seen or (self.any_yet and pid in left_to_us and self._outlived_its_rank(pid)):
                continue
            seen.add(pid)
            if pid not in self.living and not self._is_new_rank(pid, now_s, inherits):
                passed = self._passed.get(pid)
                below = inherits or bool(passed and passed.named)
                todo.extend((child, below) for child in children(pid))
        self._passed = {pid: passed for pid, passed in self._passed.items() if pid in seen}
        self.saw(seen)
        for rank in [rank for rank in self.living.values() if rank.pidfd is None]:
            if proc.state(rank.pid) in (b"", b"Z", b"X") or proc.signature(rank.pid)[0] != rank.started:
                self.ended(rank.pid, proc.code_of_zombie(rank.pid, rank.started))

    def saw(self, pids: set[int] | list[int]) -> None:
        if len(self.pids_seen) < SEEN_MAX:
            self.pids_seen.update(pids)

    def pidfd_ready(self, fd: int) -> None:
        rank = self.living[self.by_pidfd[fd]]
        code = proc.code_of_zombie(rank.pid, rank.started)
        self.ended(rank.pid, proc.code_of_collected(fd) if code is None else code)

    def ended(self, pid: int, code: int | None) -> None:
        rank = self.living.pop(pid)
        if rank.pidfd is not None:
            self._poll.unregister(rank.pidfd)
            del self.by_pidfd[rank.pidfd]
            os.close(rank.pidfd)
        self.failed = self.failed or code != 0
        self._ended[rank.named["rank"]] = proc.ticks_now()
        self._facts.add("rank-exited", pid=pid, rank=rank.named["rank"], code=code)

    def _is_new_rank(self, pid: int, now_s: float, inherits: bool) -> bool:
        """An exec is what can make a process a rank: what does not exec is asked once."""
        signature = proc.signature(pid)
        passed = self._passed.get(pid)
        if passed is None or passed.signature != signature:
            passed = self._passed[pid] = _Passed(signature, now_s)
        if passed.known:
            return False
        environment = proc.environment(pid)
        named = _named(environment)
        if named is None:
            passed.known = bool(environment)  # empty: in the middle of its exec
            return False
        if _is_held(environment):
            return False
        if proc.is_launcher(pid) or (named["local_rank"] is None and proc.is_wrapper(pid)):
            passed.named, passed.known = named, True
            return False
        if inherits and named["local_rank"] is None and now_s - passed.since_s < SETTLE_S:
            return False
        return self._found(pid, signature, named)

    def _outlived_its_rank(self, pid: int) -> bool:
        """Who was left to us, has the RANK of one that ended, and ran beside it, was started by it."""
        if pid in self.living:
            return False
        started = proc.signature(pid)[0]
        named = _named(proc.environment(pid)) if started else None
        if named is None:
            return False
        # One that has just died may still be among the living: its end was not read yet.
        is_taken = any(rank.named["rank"] == named["rank"] for rank in self.living.values())
        return is_taken or int(started) <= self._ended.get(named["rank"], -1)

    def _found(self, pid: int, signature: tuple[bytes, bytes], named: dict[str, object]) -> bool:
        pidfd: int | None = None
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        except OSError:
            pass  # refused by a container's filter, or an old kernel
        if proc.signature(pid) != signature or proc.state(pid) in (b"", b"Z", b"X"):
            if pidfd is not None:
                os.close(pidfd)
            return False
        if pidfd is not None:
            self._poll.register(pidfd, 1)  # POLLIN
            self.by_pidfd[pidfd] = pid
        self.living[pid] = Rank(pid, signature[0], pidfd, named)
        self._passed.pop(pid, None)
        self.any_yet = True
        self._facts.add("rank-started", pid=pid, **named)
        return True


def _is_held(environment: dict[bytes, bytes]) -> bool:
    """It waits for a launcher that has met nobody yet, and may be started anew or never (holdfast_shim_launcher.py)."""
    gate = environment.get(b"HOLDFAST_HELD", b"")
    return bool(gate) and not os.path.exists(gate)


def _named(environment: dict[bytes, bytes]) -> dict[str, object] | None:
    """What the environment of a rank says; None for a process without RANK."""
    if not environment.get(b"RANK", b"").isdigit():
        return None
    return {
        "rank": int(environment[b"RANK"]),
        "local_rank": _number(environment.get(b"LOCAL_RANK", b"")),
        "world_size": _number(environment.get(b"WORLD_SIZE", b"")),
        "local_world_size": _number(environment.get(b"LOCAL_WORLD_SIZE", b"")),
        "master_addr": environment.get(b"MASTER_ADDR", b"").decode("utf-8", "replace"),
        "master_port": _number(environment.get(b"MASTER_PORT", b"")),
    }


def _number(value: bytes) -> int | None:
    return int(value) if value.isdigit() else None
