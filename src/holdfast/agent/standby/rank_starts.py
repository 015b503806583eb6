"""Records how the ranks of an attempt were started: their command lines, and which environment variables
differ from their launcher's.

They are read from /proc while the ranks run, so that a standby's launcher can start the next attempt's ranks
the same way. If anything is unclear, nothing is recorded and the launcher starts the ranks itself.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

RANKS = "ranks"  # in the folder of a standby: how its launcher is to start them
SEEN = "ranks.seen"  # in that of a worker: how they were seen to be started
RANKS_MAX = 256  # of one worker
FORK_SERVER = "holdfast", "zygote"  # its command line begins so (shim/holdfast_shim_zygote.py)


class RankStart(Struct, frozen=True):
    """How a rank was started. `env`: variables that differ from its launcher's environment."""

    argv: tuple[str, ...]
    env: dict[str, str]


def rank_starts(pids: Iterable[int]) -> tuple[RankStart, ...]:
    """Returns how the running ranks were started, in order; empty if one of them cannot be read or was not
    started by a launcher.
    """
    pids = list(pids)
    starts = [_rank_start(pid) for pid in pids[: RANKS_MAX + 1]]
    known = tuple(one for one in starts if one is not None)
    return known if len(known) == len(pids) else ()


def as_listing(starts: Sequence[RankStart]) -> bytes:
    """Returns the starts as JSON for `holdfast_shim_launcher.py`; bytes that are not UTF-8 are
    surrogate-escaped.
    """
    return json.dumps([{"argv": list(one.argv), "env": one.env} for one in starts]).encode()


def starts_beside(attempt: Path, worker: int, name: str = RANKS) -> tuple[RankStart, ...]:
    """Returns how to start this worker's ranks, derived from the standby of another worker of the same
    attempt; empty if that is not possible.
    """
    for path in sorted(attempt.glob(f"worker-*/{name}")):
        number = path.parent.name.removeprefix("worker-")
        starts = _listed(path)
        if starts and number.isdigit() and int(number) != worker:
            return _as_worker(starts, int(number), worker)
    return ()


def starts_before(attempt: Path, worker: int) -> tuple[RankStart, ...]:
    """Returns how to start this worker's ranks, derived from the ranks of an earlier attempt on any worker;
    empty if that is not possible.
    """
    own = attempt / f"worker-{worker}"
    return _listed(own / SEEN) or _listed(own / RANKS) or starts_beside(attempt, worker, SEEN)


def _listed(path: Path) -> tuple[RankStart, ...]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[RankStart, ...])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ()


def _as_worker(starts: tuple[RankStart, ...], other: int, worker: int) -> tuple[RankStart, ...]:
    """Returns rank starts converted to another worker, if all workers have equally many, consecutively
    numbered ranks.
    """
    for one in starts:
        local = one.env.get("LOCAL_RANK", "")
        if not local.isdigit() or one.env.get("RANK") != str(other * len(starts) + int(local)):
            return ()
    return tuple(
        RankStart(
            one.argv,
            one.env | {"RANK": str(worker * len(starts) + int(one.env["LOCAL_RANK"]))} | _group(one, worker),
        )
        for one in starts
    )


def _group(one: RankStart, worker: int) -> dict[str, str]:
    return {"GROUP_RANK": str(worker)} if "GROUP_RANK" in one.env else {}


def _rank_start(pid: int) -> RankStart | None:
    argv, env = _words(pid, "cmdline"), _environment(pid)
    launcher = _launchers_environment(pid)
    if not argv or "RANK" not in env or "HOLDFAST_WORKER_DIR" not in env or "LOCAL_RANK" in launcher:
        return None
    if launcher.get("HOLDFAST_WORKER_DIR") != env["HOLDFAST_WORKER_DIR"]:
        return None
    own = {
        key: value
        for key, value in env.items()
        if launcher.get(key) != value and not key.startswith("HOLDFAST_")
    }
    return RankStart(tuple(argv), own)


def _launchers_environment(pid: int) -> dict[str, str]:
    """Returns the environment of a rank's launcher; empty if it cannot be read.

    A forked rank is a child of the fork server, as its launcher is.
    """
    starter = parent(pid)
    if tuple(_words(starter, "cmdline")[:2]) != FORK_SERVER:
        return _environment(starter)
    beside = (_environment(int(child)) for child in _children(starter))
    return next((env for env in beside if env and "LOCAL_RANK" not in env), {})


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def _environment(pid: int) -> dict[str, str]:
    return dict(word.split("=", 1) for word in _words(pid, "environ") if "=" in word)


def _words(pid: int, name: str) -> list[str]:
    try:
        data = Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in data.split(b"\0")[:-1]]


def parent(pid: int) -> int:
    """Returns the parent's pid; 0 if the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
