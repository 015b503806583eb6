"""Guesses which processes of a tree are the ranks, if neither a process itself nor its environment says so.

The rules are, in this order: processes that hold a training device; processes connected to one port of the
tree, as ranks are to rank 0's; equal children of a launcher or shell; a process that works alone, which is
rank 0 of 1. `choose` and `candidates` are pure, `tree` reads /proc.
"""

from __future__ import annotations

import os
import re
from collections import Counter

from . import proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SETTLED_S = 4.0  # a tool that a script runs before its training is over by then, or is found out
PROCESSES_MAX = 500  # of a tree in which ranks are guessed
# Device files of accelerators: NVIDIA, AMD (kfd), Ascend, TPU and Intel Gaudi.
DEVICES = re.compile(r"/dev/(nvidia\d+|kfd|davinci\d+|accel\d+|accel/accel\d+|vfio/\d+|hl\d+)$")
# How scripts name their rank in their own options.
RANK_OPTION = re.compile(r"--?(?:global[-_]|node[-_]|local[-_]|process[-_])?(?:rank|id)=(\d+)$")
RANK_OPTIONS = frozenset(
    ("--rank", "-rank", "--local_rank", "--local-rank", "--global_rank", "--node_rank", "--process_id")
)
BUSIER = 2.0  # a child that works this much more than what has started it is who works
BUSY_TICKS = 100  # and a second at least
SOCKET = re.compile(r"socket:\[(\d+)\]")
ESTABLISHED, LISTENING = "01", "0A"


class Process:
    """One process of the tree, with the properties by which ranks are guessed.

    `forked`: it runs its parent's program, as data loader workers do. `ports`: TCP ports on which it listens
    or to which it is connected.
    """

    def __init__(
        self,
        pid: int,
        parent: int,
        started: int,
        arguments: Sequence[str],
        *,
        forked: bool = False,
        starter: bool = False,
        device: bool = False,
        ports: Iterable[int] = (),
        cpu_ticks: int = 0,
        age_s: float = 0.0,
    ) -> None:
        self.pid, self.parent, self.started = pid, parent, started
        self.arguments = tuple(arguments)
        self.forked, self.starter, self.device = forked, starter, device
        self.ports = frozenset(ports)
        self.cpu_ticks, self.age_s = cpu_ticks, age_s


class Guess:
    def __init__(self, pid: int, rank: int) -> None:
        self.pid, self.rank = pid, rank


def choose(tree: Sequence[Process]) -> list[Guess]:
    """Returns the processes that are ranks; empty if they cannot be determined, or not yet."""
    for found in _ways(tree):
        if all(one.age_s >= SETTLED_S for one in found):
            return _numbered(found)
    return []


def candidates(tree: Sequence[Process]) -> list[Guess]:
    """Returns what `choose` would return if all processes were old enough."""
    return next((_numbered(found) for found in _ways(tree)), [])


def _ways(tree: Sequence[Process]) -> Iterator[list[Process]]:
    able = [one for one in tree if not one.starter]
    alone = _alone(able, tree)
    ways = (_holders(able), _talkers(able), _siblings(tree, able), [alone] if alone is not None else [])
    return (found for found in ways if found)


def _holders(able: Sequence[Process]) -> list[Process]:
    """Returns processes that hold a training device open, without forks that only inherited their parent's
    files.
    """
    return [one for one in able if one.device and not one.forked]


def _talkers(able: Sequence[Process]) -> list[Process]:
    """Returns the processes that share the port by which most of them are connected; at least two."""
    ports = Counter(port for one in able for port in one.ports)
    shared = [port for port, many in ports.most_common() if many >= 2]
    found = [one for one in able if shared and shared[0] in one.ports]
    return [one for one in found if not _drives_another_program(one, found)]


def _drives_another_program(process: Process, found: Sequence[Process]) -> bool:
    """Returns whether a process is a tool connected to the program that it started, as a notebook's client
    is.

    A rank, in contrast, starts its own script again.
    """
    program = _program(process.arguments)
    below = {_program(one.arguments) for one in found if one.parent == process.pid and not one.forked}
    return bool(program and below) and "" not in below and program not in below


def _program(arguments: Sequence[str]) -> str:
    """Returns the script or module that an interpreter runs; "" if the command line names none (`python -c
    ...`).
    """
    words = iter(arguments[1:])
    for word in words:
        if word == "-m":
            return next(words, "")
        if word == "-c":
            return ""
        if not word.startswith("-"):
            return os.path.basename(word)
    return ""


def _siblings(tree: Sequence[Process], able: Sequence[Process]) -> list[Process]:
    """Returns children of one launcher or shell whose command lines are equal except for numbers."""
    starters = {one.pid for one in tree if one.starter}
    alike: dict[tuple[int, tuple[str, ...]], list[Process]] = {}
    for one in able:
        if one.parent in starters and not one.forked:
            words = tuple(re.sub(r"\d+", "#", word) for word in one.arguments)
            alike.setdefault((one.parent, words), []).append(one)
    groups = [group for group in alike.values() if len(group) >= 2]
    return groups[0] if len(groups) == 1 else []


def _alone(able: Sequence[Process], tree: Sequence[Process]) -> Process | None:
    """Returns the topmost process, or the one below it that does its work."""
    starters = {one.pid for one in tree if one.starter} | {one.parent for one in tree} - {
        one.pid for one in tree
    }
    top = [one for one in able if one.parent in starters]
    if len(top) != 1:
        return None
    found = top[0]
    while below := [one for one in able if one.parent == found.pid and not one.forked]:
        busiest = max(below, key=lambda one: one.cpu_ticks)
        if busiest.cpu_ticks < max(BUSY_TICKS, BUSIER * found.cpu_ticks):
            break
        found = busiest
    return found


def _numbered(found: Sequence[Process]) -> list[Guess]:
    """Returns the processes with rank numbers: from their command-line option, else by their start order."""
    named = [_option(one.arguments) for one in found]
    if None not in named and len(set(named)) == len(named):
        return [Guess(one.pid, int(str(rank))) for one, rank in zip(found, named, strict=True)]
    ordered = sorted(found, key=lambda one: (one.started, one.pid))
    return [Guess(one.pid, rank) for rank, one in enumerate(ordered)]


def _option(arguments: Sequence[str]) -> int | None:
    for word, after in zip(arguments, [*arguments, ""][1:], strict=True):
        if found := RANK_OPTION.match(word):
            return int(found[1])
        if word in RANK_OPTIONS and after.isdigit():
            return int(after)
    return None


# What is read


def tree(root: int, below: Mapping[int, Sequence[int]]) -> list[Process]:
    """Returns the processes below `root`, without `root`; empty if there are too many.

    `below`: children by pid.
    """
    pids = proc.descendants(root, dict((pid, list(children)) for pid, children in below.items()))
    if not pids or len(pids) > PROCESSES_MAX:
        return []
    parents = {child: pid for pid, children in below.items() for child in children}
    signatures = {pid: proc.signature(pid) for pid in pids}
    ticks_now, per_s = proc.ticks_now(), os.sysconf("SC_CLK_TCK")
    connected = _sockets()
    found = []
    for pid in pids:
        started, space = signatures[pid]
        if not started or proc.state(pid) in (b"", b"Z", b"X"):
            continue
        parent = parents[pid]
        starter = proc.is_launcher(pid) or proc.is_wrapper(pid)
        files = [] if starter else proc.open_files(pid)
        found.append(
            Process(
                pid,
                parent,
                int(started),
                proc.arguments(pid),
                forked=parent in signatures and signatures[parent][1] == space,
                starter=starter,
                device=any(DEVICES.match(file) for file in files),
                ports=(
                    port
                    for file in files
                    if (match := SOCKET.match(file))
                    for port in connected.get(match[1], ())
                ),
                cpu_ticks=proc.cpu_ticks(pid),
                age_s=(ticks_now - int(started)) / per_s,
            )
        )
    return found


def _sockets() -> dict[str, tuple[int, ...]]:
    """Returns by inode the port at which a TCP socket listens, or both ports of a connection to such a
    socket.
    """
    rows = [row for name in ("tcp", "tcp6") for row in _rows(proc.read(f"/proc/net/{name}", 1 << 22))]
    listening = {local for local, _, state, _ in rows if state == LISTENING}
    found = {}
    for local, remote, state, inode in rows:
        ends = (local,) if state == LISTENING else (local, remote) if state == ESTABLISHED else ()
        if ports := tuple(port for port in ends if port in listening):
            found[inode] = ports
    return found


def _rows(data: bytes) -> list[tuple[int, int, str, str]]:
    """Returns local port, remote port, state and inode of each row in /proc/net/tcp.

    Example: `0: 0100007F:7369 00000000:0000 0A ... 12345 1 ...`
    """
    rows = []
    for line in data.decode("ascii", "replace").splitlines()[1:]:
        words = line.split()
        if len(words) > 9:
            rows.append(
                (
                    int(words[1].rpartition(":")[2], 16),
                    int(words[2].rpartition(":")[2], 16),
                    words[3],
                    words[9],
                )
            )
    return rows
