"""Reads from a worker's folder which processes it has: its command and its ranks, running and ended.

The source is `reaper.jsonl`, which the worker's reaper writes: `{"kind": "rank-started", "t": 1.7e9, "pid":
71, "rank": 0}`.
"""

import time
from pathlib import Path

import msgspec
from msgspec import Struct

FACTS = "reaper.jsonl"
FACTS_BYTES_MAX = 16 << 20
CLOCK_S = 60.0  # that much the wall clock may have been set since


class RankFact(Struct, frozen=True):
    """The process of a rank, as its reaper recorded it. `code`: its exit code, if known."""

    rank: int
    pid: int
    code: int | None = None
    ended: bool = False


class WorkerFacts(Struct, frozen=True):
    """The processes of a worker.

    `command_pid`: pid of the running launch command; None if it does not run.
    """

    command_pid: int | None
    ranks: tuple[RankFact, ...]

    @property
    def living(self) -> tuple[RankFact, ...]:
        return tuple(rank for rank in self.ranks if not rank.ended)


class _Fact(Struct, frozen=True):
    """One line of `reaper.jsonl`; keys that are not used here are ignored."""

    kind: str
    t: float = 0.0
    pid: int | None = None
    rank: int | None = None
    code: int | None = None


def worker_facts(folder: Path) -> WorkerFacts:
    """Returns the processes recorded in a worker's folder; none if it cannot be read.

    Processes older than the machine's boot count as ended.
    """
    ranks: dict[int, RankFact] = {}
    command_pid: int | None = None
    booted_s = _booted_at_s()
    for fact in _facts(folder / FACTS):
        is_old = fact.t < booted_s - CLOCK_S
        match fact:
            case _Fact(kind="started", pid=int(pid)):
                command_pid = None if is_old else pid
            case _Fact(kind="command-exited", pid=pid) if pid == command_pid:
                command_pid = None
            case _Fact(kind="rank-started", pid=int(pid), rank=int(rank)):
                ranks[rank] = RankFact(rank, pid, None, is_old)
            case _Fact(kind="rank-exited", pid=pid, rank=int(rank)) if (
                rank in ranks and ranks[rank].pid == pid
            ):
                ranks[rank] = RankFact(rank, ranks[rank].pid, fact.code, True)
    return WorkerFacts(command_pid, tuple(ranks[rank] for rank in sorted(ranks)))


def _facts(path: Path) -> list[_Fact]:
    try:
        with path.open("rb") as file:
            lines = file.read(FACTS_BYTES_MAX).splitlines()
    except OSError:
        return []
    facts = []
    for line in lines:
        try:
            facts.append(msgspec.json.decode(line, type=_Fact))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # cut short, or of another version
    return facts


def _booted_at_s() -> float:
    try:
        return time.time() - float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
