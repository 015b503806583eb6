"""Puts workers that gave the same answer together, the rarest answer first. Pure.

Answers are the same when they ended alike and their output is the same to the byte; where that is too strict
(`loose`), numbers and the names of the nodes do not count. Nothing else is ever evened out: what a difference means is
for who reads it. A worker that gave no answer is never in a group with one that did.
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
    """What came from one node. `worker` None: a node without one. `cut_bytes`: of the output, not kept."""

    node: str
    worker: int | None
    outcome: Outcome
    code: int | None = None
    output: bytes = b""
    cut_bytes: int = 0
    took_s: float = 0.0
    why: str = ""


class AnswerGroup(Struct, frozen=True, kw_only=True):
    """The same answer of `workers`, and of `nodes` that have no worker. `answers`: all of them, the first is shown."""

    workers: tuple[int, ...]
    nodes: tuple[str, ...]
    answers: tuple[Answer, ...]

    @property
    def first(self) -> Answer:
        return self.answers[0]

    @property
    def is_whole(self) -> bool:
        """It ended by itself."""
        return self.first.outcome == "exited"


def answer_groups(answers: Iterable[Answer], *, loose: bool = False) -> tuple[AnswerGroup, ...]:
    """Groups of equal answers: the fewest members first, then those that did not end well, then by worker.

    `loose`: numbers, the names of nodes and how wide a column is do not count.
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
    """Of the whole call: what all commands have ended with where that is the same, as a shell gives it; else 1."""
    codes = {shell_code(group.first) for group in groups}
    return codes.pop() if len(codes) == 1 else 1


def shell_code(answer: Answer) -> int:
    """128 + N when killed by signal N, 124 when it took too long; 1 where there is no answer."""
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
