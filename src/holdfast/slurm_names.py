"""Parses Slurm's node lists, and a job's environment. Pure.

    gpu-[001-003,007],login1          rack[1-2]n[01-16]

source: slurm.conf(5), NodeName; sbatch(1), OUTPUT ENVIRONMENT VARIABLES
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from holdfast.late_pattern import late

NODES_MAX = 1 << 17  # a list that names more is no list of nodes
_BRACKETS = late(r"\[([^\[\]]*)\]")
_RANGE = late(r"(\d{1,12})(?:-(\d{1,12}))?")


class BadNodeList(ValueError):
    """The text is not a list of nodes as Slurm writes it."""


class Allocation(Struct, frozen=True, kw_only=True):
    """The facts of a Slurm job from the environment of a process inside it.

    `node`: of this process. `restarts`: number of requeues. `in_step`: started by srun; the batch script is no step.
    `is_batch`: the job has a batch script. `member`: of an array (`7_1`); empty: no array.
    """

    job: str
    nodes: tuple[str, ...]
    node: str = ""
    restarts: int = 0
    in_step: bool = False
    is_batch: bool = True
    name: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    member: str = ""

    @property
    def target(self) -> str:
        """The id for Slurm's commands to act on this job alone: a member of an array needs its own."""
        return self.member or self.job


def allocation(env: Mapping[str, str]) -> Allocation | None:
    """The Slurm job of this environment; None if there is none. raises: BadNodeList"""
    job = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID") or ""
    nodes = env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST") or ""
    if not job.isdigit() or not nodes:
        return None
    restarts = env.get("SLURM_RESTART_COUNT", "0")
    step = env.get("SLURM_STEP_ID", "")
    array, task = env.get("SLURM_ARRAY_JOB_ID", ""), env.get("SLURM_ARRAY_TASK_ID", "")
    return Allocation(
        job=job,
        nodes=expanded(nodes),
        node=env.get("SLURMD_NODENAME", ""),
        restarts=int(restarts) if restarts.isdigit() else 0,
        in_step=step.isdigit() and int(step) < 0xFFFFFFF0,  # above are batch, extern and interactive
        is_batch=env.get("ENVIRONMENT", "") == "BATCH" or "SLURM_TASK_PID" in env,
        name=env.get("SLURM_JOB_NAME", ""),
        partition=env.get("SLURM_JOB_PARTITION", ""),
        account=env.get("SLURM_JOB_ACCOUNT", ""),
        qos=env.get("SLURM_JOB_QOS", ""),
        member=f"{array}_{task}" if array.isdigit() and task.isdigit() else "",
    )


def expanded(text: str) -> tuple[str, ...]:
    """`n[1-3,7],m` -> n1 n2 n3 n7 m, in this order, each once; zeros before a number are kept. raises: BadNodeList"""
    text = text.strip()
    if text in ("", "(null)", "None", "N/A", "None assigned"):
        return ()
    names = [name for part in _parts(text) for name in _one(part)]
    if len(names) > NODES_MAX:
        raise BadNodeList(f"{text[:80]!r} names more than {NODES_MAX} nodes")
    return tuple(dict.fromkeys(names))


def _parts(text: str) -> list[str]:
    """Split at the commas that are outside of brackets."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise BadNodeList(f"{text[:80]!r}: brackets do not match")
        if letter == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    if depth:
        raise BadNodeList(f"{text[:80]!r}: brackets do not match")
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _one(part: str) -> list[str]:
    found = _BRACKETS.search(part)
    if found is None:
        return [part]
    before, after = part[: found.start()], part[found.end() :]
    middles = [middle for piece in found[1].split(",") for middle in _numbers(piece.strip(), part)]
    ends = _one(after) if after else [""]
    if len(middles) * len(ends) > NODES_MAX:
        raise BadNodeList(f"{part[:80]!r} names more than {NODES_MAX} nodes")
    return [f"{before}{middle}{end}" for middle in middles for end in ends]


def _numbers(piece: str, part: str) -> list[str]:
    found = _RANGE.fullmatch(piece)
    if found is None:
        raise BadNodeList(f"{part[:80]!r}: {piece[:40]!r} is not a range of numbers")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first or last - first >= NODES_MAX:
        raise BadNodeList(f"{part[:80]!r}: {piece[:40]!r} is not a range of numbers")
    return [f"{number:0{len(found[1])}}" for number in range(first, last + 1)]


def folded(names: Iterable[str]) -> str:
    """The list in Slurm's notation: n1 n2 n3 m7 -> `n[1-3],m7`. Names keep their order except for consecutive
    numbers.
    """
    keyed: dict[tuple[str, int], list[int]] = {}
    written: dict[str, tuple[str, int] | None] = {}  # what is written where, in the order of the names
    for name in dict.fromkeys(names):
        head, number = _cut(name)
        if not number:
            written[name] = None
            continue
        key = (head, len(number) if number.startswith("0") else 0)
        keyed.setdefault(key, []).append(int(number))
        written.setdefault(f"{head}\n{key[1]}", key)
    return ",".join(name if key is None else _row(*key, keyed[key]) for name, key in written.items())


def _cut(name: str) -> tuple[str, str]:
    """`rack1n07` -> `rack1n`, `07`; a name that does not end in a number has none."""
    found = re.fullmatch(r"(.*?)(\d{0,12})", name, re.DOTALL)
    assert found is not None
    return found[1], found[2]


def _row(head: str, width: int, numbers: Sequence[int]) -> str:
    pieces = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        row = [number for _, number in run]
        ends = row[:1] if len(row) == 1 else [row[0], row[-1]]
        pieces.append("-".join(f"{number:0{width}}" for number in ends))
    inside = ",".join(pieces)
    return f"{head}[{inside}]" if len(numbers) > 1 else f"{head}{inside}"
