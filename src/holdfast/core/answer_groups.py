"""Groups workers by equal answers, the rarest first. Pure.

Two answers are equal if their commands ended alike and their outputs are equal byte by byte; with `loose`, numbers
and names of nodes are ignored. No other difference is ignored. A worker without an answer is never in a group with
one that answered.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct

from holdfast.late_pattern import late
from holdfast.model.calls import Outcome

# A number as tools print them: 12, 3.5, 0x7f3a, 1e-05, and the hexadecimal words of addresses and checksums.
_NUMBER = late(
    rb"0[xX][0-9a-fA-F]+|(?<![0-9A-Za-z])(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{6,}(?![0-9A-Za-z])"
    rb"|\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?"
)
_SPACES = late(rb"[ \t]+")


class Answer(Struct, frozen=True, kw_only=True):
    """One node's answer. `worker` None: a node without a worker. `cut_bytes`: output that was not kept."""

    node: str
    worker: int | None
    outcome: Outcome
    code: int | None = None
    output: bytes = b""
    cut_bytes: int = 0
    took_s: float = 0.0
    why: str = ""


class AnswerGroup(Struct, frozen=True, kw_only=True):
    """Workers with equal answers, and `nodes` without a worker. `answers`: all of them; the first is shown."""

    workers: tuple[int, ...]
    nodes: tuple[str, ...]
    answers: tuple[Answer, ...]

    @property
    def first(self) -> Answer:
        return self.answers[0]

    @property
    def is_whole(self) -> bool:
        """True if the command ended by itself."""
        return self.first.outcome == "exited"


def answer_groups(answers: Iterable[Answer], *, loose: bool = False) -> tuple[AnswerGroup, ...]:
    """Groups of equal answers: smallest first, then those that failed, then by worker.

    `loose`: ignores numbers, names of nodes and column widths.
    """
    given = sorted(answers, key=_place)
    names = _name_pattern(answer.node for answer in given) if loose else None
    groups: dict[tuple[object, ...], list[Answer]] = defaultdict(list)
    for answer in given:
        output = _evened(answer.output, names) if loose else answer.output
        key = (answer.outcome, answer.code, output, answer.cut_bytes > 0, answer.why)
        groups[key].append(answer)
    return tuple(sorted(map(_group, groups.values()), key=_rarest))


def exit_code(groups: Iterable[AnswerGroup]) -> int:
    """The exit code of the whole call: the code of all commands if they agree, in a shell's form; else 1."""
    codes = {shell_code(group.first) for group in groups}
    return codes.pop() if len(codes) == 1 else 1


def shell_code(answer: Answer) -> int:
    """128 + N when killed by signal N, 124 at a timeout; 1 without an answer."""
    if answer.outcome == "timed-out":
        return 124
    if answer.outcome != "exited" or answer.code is None:
        return 1
    return 128 - answer.code if answer.code < 0 else answer.code


def _group(members: list[Answer]) -> AnswerGroup:
    return AnswerGroup(
        workers=tuple(answer.worker for answer in members if answer.worker is not None),
        nodes=tuple(answer.node for answer in members if answer.worker is None),
        answers=tuple(members),
    )


def _place(answer: Answer) -> tuple[bool, int, str]:
    return answer.worker is None, answer.worker or 0, answer.node


def _rarest(group: AnswerGroup) -> tuple[object, ...]:
    ended_well = group.is_whole and group.first.code == 0
    return len(group.answers), ended_well, _place(group.first)


def _name_pattern(nodes: Iterable[str]) -> re.Pattern[bytes] | None:
    """The names of all nodes, long and short: a command may well name another node than its own."""
    names = {name for node in nodes for name in (node, node.partition(".")[0]) if name}
    if not names:
        return None
    longest_first = sorted((re.escape(name.encode()) for name in names), key=len, reverse=True)
    return re.compile(rb"(?<![\w-])(?:" + b"|".join(longest_first) + rb")(?![\w-])")


def _evened(output: bytes, names: re.Pattern[bytes] | None) -> bytes:
    """Names first, for they hold numbers; what is in no two outputs by chance stands for them."""
    text = names.sub(b"\0n", output) if names else output
    return _SPACES.sub(b" ", _NUMBER.sub(b"\0#", text))
