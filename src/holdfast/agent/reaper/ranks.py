"""Finds the ranks in the process tree, and records how each ended. Never signals a rank.

Sources in order of trust: the process itself when it joins its group (the shim, through `reaper.sock`); its
initial environment (the table in `rank_names.py`); what the processes of the tree do (`guesses.py`).

By its environment, a rank is the topmost process of its branch of the tree that is named a rank: processes
that it forks (data loader workers) inherit the variables and do not count, even if they outlive the rank and
become children of the reaper. Launchers and shells can have a RANK from outside (a cluster's operator sets it
for the whole container); then the rank is below them.
"""

from __future__ import annotations

import os

from . import guesses, proc
from .candidates import Candidates
from .forks import is_stub
from .rank_names import named as named_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    from collections.abc import Callable

    from .facts import Facts
    from .forks import Forks

SETTLE_S = 2.0  # what a script runs before its training has the same RANK, and is soon over
ASKS_S = 1.0  # from its exec to its question for a fork
SEEN_MAX = 200_000
SAID = "said"
STEADY_S = 3.0  # for so long a guess must be the same before it counts
SIZES = ("local_rank", "local_world_size", "master_port")
POOL_END = 1  # the exit code of a worker that Ray's raylet no longer needs, and of no failure
RANKS_MAX = 10_000_000
TEXT_MAX = 200


GUESS = "guess"


class Rank:
    """A living rank. `pidfd`: None on kernels without pidfds; the rank is then polled every second.

    `said`: the process itself registered as this rank. `direct`: its environment variables are those of a
    single process, as torchrun sets them.
    """

    pooled = False  # of a pool, whose manager ends it when it is no longer needed

    def __init__(
        self, pid: int, started: bytes, pidfd: int | None, named: dict[str, object], direct: bool
    ) -> None:
        self.pid = pid
        self.started = started
        self.pidfd = pidfd
        self.named = named
        self.direct = direct

    @property
    def said(self) -> bool:
        return self.named["source"] == SAID

    @property
    def guessed(self) -> bool:
        return self.named["source"] == GUESS


class Worlds:
    """Trainings that run side by side in one command; each is a world with its own ranks.

    Ranks of the first keep their numbers; ranks of the others continue after them.
    """

    def __init__(self) -> None:
        self._by_group: dict[str, int] = {}
        self._offsets: list[int] = []
        self._sizes: list[int] = []

    def of(self, group: str, size: int, pid: int, living: dict[int, Rank]) -> int:
        """Returns the number of the world (training) that a process joins.

        `group`: port or path of the rendezvous of its process group. `living`: the known ranks by process id.
        """
        if group not in self._by_group:
            self._by_group[group] = self._place(pid, living)
        world = self._by_group[group]
        if world == len(self._offsets):
            self._offsets.append(self._offsets[-1] + self._sizes[-1] if self._offsets else 0)
            self._sizes.append(0)
        self._sizes[world] = max(self._sizes[world], size)
        return world

    def number(self, world: int, own_rank: int) -> int:
        return self._offsets[world] + own_rank

    def _place(self, pid: int, living: dict[int, Rank]) -> int:
        """Returns the world for a process: its previous one, else a world without living ranks, else a new
        one.
        """
        if pid in living and living[pid].said:
            return int(str(living[pid].named["world"]))
        taken = {rank.named["world"] for rank in living.values() if rank.said}
        return next((world for world in range(len(self._offsets)) if world not in taken), len(self._offsets))


class _Passed:
    """A process that was looked at and is no rank so far."""

    def __init__(self, signature: tuple[bytes, bytes], now_s: float) -> None:
        self.signature = signature
        self.since_s = now_s
        self.named: dict[str, object] | None = None
        self.known = False  # nothing about it changes any more, unless it execs


class Ranks:
    def __init__(self, poll: select.poll, facts: Facts, forks: Forks) -> None:
        self._forks = forks
        self.living: dict[int, Rank] = {}
        self.by_pidfd: dict[int, int] = {}
        self.any_yet = False
        self._any_named = False
        self.failed = False  # one at least did not end with code 0
        self.pids_seen: set[int] = set()
        self._passed: dict[int, _Passed] = {}
        self._ended: dict[object, int] = {}  # rank: when the last one ended, in clock ticks since the boot
        self._worlds = Worlds()
        self.trains = False  # steps have been made: what the tree looks like now is a training
        self.candidates = Candidates(poll)
        self._guess: dict[int, int] = {}
        self._guessed_s = 0.0
        self._poll = poll
        self._facts = facts

    def all_found(self) -> bool:
        """Returns whether all ranks of a world that were named by themselves or their environment are found;
        guessed ranks do not count.
        """
        worlds = [rank.named["world_size"] for rank in self.living.values() if not rank.guessed]
        return bool(worlds) and all(isinstance(size, int) and len(worlds) >= size for size in worlds)

    def look(self, now_s: float, children: Callable[[int], list[int]]) -> None:
        """Searches the process tree from this process down to the topmost ranks."""
        seen: set[int] = set()
        left_to_us = children(os.getpid())
        todo: list[tuple[int, bool]] = [(pid, False) for pid in left_to_us]
        while todo:
            pid, inherits = todo.pop()
            if pid in seen or (self.any_yet and pid in left_to_us and self._outlived_its_rank(pid)):
                continue
            seen.add(pid)
            if self._is_named(pid) or self._is_new_rank(pid, now_s, inherits):
                if not self.all_found():  # one of several that it has started itself, as Lightning does
                    todo.extend((child, True) for child in self._ranks_below(pid, children))
                continue
            passed = self._passed.get(pid)
            below = inherits or bool(passed and passed.named)
            todo.extend((child, below) for child in children(pid))
        self._passed = {pid: passed for pid, passed in self._passed.items() if pid in seen}
        self.saw(seen)
        for rank in [rank for rank in self.living.values() if rank.pidfd is None]:
            if proc.state(rank.pid) in (b"", b"Z", b"X") or proc.signature(rank.pid)[0] != rank.started:
                self.ended(rank.pid, proc.code_of_zombie(rank.pid, rank.started))

    def said(self, pid: int, says: dict[str, object]) -> int | None:
        """Registers a process as the rank that it says to be. Returns the rank's number in the job; None if
        the registration is impossible.

        `says`: {"rank": 1, "world_size": 4, "local_rank": 1, "group": "29500", ...}. It overrides the
        environment.
        """
        own_rank, size = says.get("rank"), says.get("world_size")
        if not _is_count(own_rank) or not _is_count(size) or pid <= 0:
            return None
        assert isinstance(own_rank, int) and isinstance(size, int)
        signature = proc.signature(pid)
        world = self._worlds.of(str(says.get("group", "")), size, pid, self.living)
        number = self._worlds.number(world, own_rank)
        sizes = {key: says.get(key) if _is_count(says.get(key)) else None for key in SIZES}
        named = sizes | {
            "rank": number,
            "world_size": size,
            "master_addr": str(says.get("master_addr", ""))[:TEXT_MAX],
            "source": SAID,
            "world": world,
            "own_rank": own_rank,
        }
        known = self.living.get(pid)
        if known is not None and known.named["rank"] == number and known.started == signature[0]:
            self._make_way(pid, number)
            if known.named != named:
                known.named = named
                self._facts.add("rank-started", pid=pid, **named)
            self._any_named = True
            return number
        self._make_way(pid, number)
        return number if self._found(pid, signature, named, direct=True) else None

    def _make_way(self, pid: int, number: int) -> None:
        """Takes back what was taken for this rank, and for a rank of this process or of those that have started it."""
        above = set(proc.ancestors(pid))
        for other in list(self.living.values()):
            if other.pid == pid:
                if other.named["rank"] != number or other.started != proc.signature(pid)[0]:
                    self._withdraw(other, "the process has registered as another rank")
            elif other.named["rank"] == number and not other.said:
                self._withdraw(other, f"process {pid} has registered as this rank")
            elif other.pid in above and not other.said and not other.direct:
                self._withdraw(other, f"the process has started process {pid}, which is the rank")
            elif other.guessed:
                self._withdraw(other, "ranks have registered, so guessed ranks no longer count")

    def guess(self, now_s: float, below: dict[int, list[int]]) -> None:
        """Guesses from the process tree which processes are ranks, if none is known by its environment or its report.

        `below`: process ids of the children, by process id.
        """
        if self._any_named:
            self.candidates.see({})
            return
        tree = guesses.tree(os.getpid(), below)
        wanted = {one.pid: one.rank for one in guesses.choose(tree)}
        if wanted != self._guess:
            self._guess, self._guessed_s = wanted, now_s
        before, young = self.candidates.ranks, {one.pid: one.rank for one in guesses.candidates(tree)}
        self.candidates.see({} if self.living else young)
        steady = now_s - self._guessed_s >= STEADY_S  # while a job starts, each second shows another picture
        if steady and (wanted or not young):
            self._count(wanted)
        elif self.trains and before and young == before:
            self._count(young)
        else:
            self.count_stopped()

    def count_stopped(self) -> None:
        """Counts all candidates as ranks if one of them is stopped (state T), because waiting longer would
        show nothing new.
        """
        if self.candidates.any_stopped():
            self._count(self.candidates.ranks)

    def _count(self, wanted: dict[int, int]) -> None:
        """Makes the processes of `wanted` (rank by pid) ranks; other guessed ranks are removed."""
        for rank in list(self.living.values()):
            if rank.guessed and wanted.get(rank.pid) != rank.named["rank"]:
                self._withdraw(rank, "another process is more likely to be this rank")
        for pid, number in wanted.items():
            if pid not in self.living:
                self._found(pid, proc.signature(pid), _guessed(number, len(wanted)), direct=False)
        self.candidates.see({})

    def command_ended(self, command: int, code: int) -> None:
        """Processes the end of a launcher.

        If its exit code differs from that of the process that did its work, that process was the rank.
        """
        if self.any_yet or not code:
            return
        for one in self.candidates.hidden_by(command, code):
            self._facts.add("rank-started", pid=one.pid, **_guessed(one.rank, 1))
            self._facts.add("rank-exited", pid=one.pid, rank=one.rank, code=one.code)

    def _withdraw(self, rank: Rank, why: str) -> None:
        self._forget(rank)
        self._facts.add("rank-withdrawn", pid=rank.pid, rank=rank.named["rank"], why=why)

    def _forget(self, rank: Rank) -> None:
        del self.living[rank.pid]
        if rank.pidfd is not None:
            self._poll.unregister(rank.pidfd)
            del self.by_pidfd[rank.pidfd]
            os.close(rank.pidfd)

    def _is_named(self, pid: int) -> bool:
        """Returns whether a rank is not guessed. A guess may be wrong, and ranks may be named below it."""
        return pid in self.living and not self.living[pid].guessed

    def _ranks_below(self, pid: int, children: Callable[[int], list[int]]) -> list[int]:
        """Returns the children of a rank whose environment names other ranks."""
        own = self.living[pid].named["rank"] if pid in self.living else None
        found = []
        for child in children(pid):
            named = _named(proc.environment(child)) if child not in self._passed else None
            if child in self.living or (named is not None and named["direct"] and named["rank"] != own):
                found.append(child)
        return found

    def saw(self, pids: set[int] | list[int]) -> None:
        if len(self.pids_seen) < SEEN_MAX:
            self.pids_seen.update(pids)

    def pidfd_ready(self, fd: int) -> None:
        rank = self.living[self.by_pidfd[fd]]
        code = proc.code_of_zombie(rank.pid, rank.started)
        self.ended(rank.pid, proc.code_of_collected(fd) if code is None else code)

    def ended(self, pid: int, code: int | None) -> None:
        rank = self.living[pid]
        self._forget(rank)
        if rank.pooled and code == POOL_END:
            code = None
        self.failed = self.failed or bool(code) or (code is None and not rank.pooled)
        self._ended[rank.named["rank"]] = proc.ticks_now()
        self._facts.add("rank-exited", pid=pid, rank=rank.named["rank"], code=code)

    def _is_new_rank(self, pid: int, now_s: float, inherits: bool) -> bool:
        """Returns whether a process has become a rank, which can happen only by an exec."""
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
        if _is_held(environment) or self._may_be_stub(pid, environment, now_s - passed.since_s):
            return False
        direct = bool(named.pop("direct"))
        if proc.is_launcher(pid) or (not direct and proc.is_wrapper(pid)):
            passed.named, passed.known = named, True
            return False
        if inherits and not direct and now_s - passed.since_s < SETTLE_S:
            return False
        if self._is_said(named["rank"], pid):
            passed.named, passed.known = named, True
            return False
        return self._found(pid, signature, named | {"world": 0, "own_rank": named["rank"]}, direct=direct)

    def _may_be_stub(self, pid: int, environment: dict[bytes, bytes], seen_s: float) -> bool:
        """True for a process that stands for a fork, which is the rank, or that may still ask for one."""
        if b"HOLDFAST_FORK_SERVER" not in environment:
            return False
        if is_stub(pid):
            return True
        is_fork = bool(self._forks.pid) and self._forks.pid in proc.ancestors(pid)[:1]
        return not is_fork and seen_s < ASKS_S

    def _is_said(self, rank: object, pid: int) -> bool:
        """Returns whether another process has registered as this rank."""
        return any(one.said and one.named["rank"] == rank and one.pid != pid for one in self.living.values())

    def _outlived_its_rank(self, pid: int) -> bool:
        """Returns whether a process was started by a rank that has ended, and has inherited its RANK."""
        if pid in self.living:
            return False
        started = proc.signature(pid)[0]
        named = _named(proc.environment(pid)) if started else None
        if named is None:
            return False
        # One that has just died may still be among the living: its end was not read yet.
        is_taken = any(rank.named["rank"] == named["rank"] for rank in self.living.values())
        return is_taken or int(started) <= self._ended.get(named["rank"], -1)

    def _found(
        self, pid: int, signature: tuple[bytes, bytes], named: dict[str, object], *, direct: bool
    ) -> bool:
        if pid in self.living:  # guessed until now
            self._withdraw(self.living[pid], "its environment names another rank")
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
        rank = self.living[pid] = Rank(pid, signature[0], pidfd, named, direct)
        rank.pooled = proc.is_pool(next(iter(proc.ancestors(pid)), 0))
        self._passed.pop(pid, None)
        self.any_yet = True
        self._any_named = self._any_named or not rank.guessed
        self._facts.add("rank-started", pid=pid, **named)
        return True


def _is_held(environment: dict[bytes, bytes]) -> bool:
    """Returns whether a process waits for a held launcher, and may be restarted
    (holdfast_shim_launcher.py).
    """
    gate = environment.get(b"HOLDFAST_HELD", b"")
    return bool(gate) and not os.path.exists(gate)


def _named(environment: dict[bytes, bytes]) -> dict[str, object] | None:
    """Returns what a process's environment says about its rank; None if it names none for the process."""
    return named_by(lambda name: environment.get(name.encode(), b"").decode("utf-8", "replace"))


def _guessed(rank: int, size: int) -> dict[str, object]:
    return {
        "rank": rank,
        "local_rank": rank,
        "world_size": size,
        "local_world_size": size,
        "master_addr": "",
        "master_port": None,
        "source": GUESS,
        "world": 0,
        "own_rank": rank,
    }


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < RANKS_MAX
