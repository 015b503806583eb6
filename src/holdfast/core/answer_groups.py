"""Groups the answers of many workers to one command by equal output, the rarest group first. Pure.

Two answers are equal if their commands ended with the same code and their outputs are equal byte by byte;
with `loose`, numbers and names of nodes are ignored. No other difference is ignored. A worker without an
answer is never in a group with one that answered.
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
    """A worker's answer to a command that was sent to many workers: exit code and output.

    `worker`: None for a node without a worker. `cut_bytes`: bytes of the output beyond the size limit, which
    were dropped. `why`: the reason, if there is no exit code.
    """

    node: str
    worker: int | None
    outcome: Outcome
    code: int | None = None
    output: bytes = b""
    cut_bytes: int = 0
    took_s: float = 0.0
    why: str = ""


class AnswerGroup(Struct, frozen=True, kw_only=True):
    """A group of workers, and nodes without a worker, whose answers to a command are equal.

    `answers`: all answers of the group; reports print the first.
    """

    workers: tuple[int, ...]
    nodes: tuple[str, ...]
    answers: tuple[Answer, ...]

    @property
    def first(self) -> Answer:
        return self.answers[0]

    @property
    def is_whole(self) -> bool:
        """Returns whether the command ended by itself: no timeout, no lost connection."""
        return self.first.outcome == "exited"


def answer_groups(answers: Iterable[Answer], *, loose: bool = False) -> tuple[AnswerGroup, ...]:
    """Groups equal answers; the smallest group comes first, then groups of failed commands, then the order of
    workers.

    `loose`: ignore numbers, names of nodes, and column widths.
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
    """Returns the exit code of a command that ran on many workers: the common shell exit code, or 1 if they
    differ.
    """
    codes = {shell_code(group.first) for group in groups}
    return codes.pop() if len(codes) == 1 else 1


def shell_code(answer: Answer) -> int:
    """Returns an answer's exit code as a shell reports it: 128 + N after signal N, 124 after a timeout, 1 without an
    answer.
    """
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
    """Returns a pattern of the short and long names of all nodes, since a node's output may name another
    node.

    Returns None if no node has a name.
    """
    names = {name for node in nodes for name in (node, node.partition(".")[0]) if name}
    if not names:
        return None
    longest_first = sorted((re.escape(name.encode()) for name in names), key=len, reverse=True)
    return re.compile(rb"(?<![\w-])(?:" + b"|".join(longest_first) + rb")(?![\w-])")


def _evened(output: bytes, names: re.Pattern[bytes] | None) -> bytes:
    """Returns the output with names of nodes and numbers replaced by placeholders, and runs of spaces by one
    space.

    Names are replaced first, because they contain digits.
    """
    text = names.sub(b"\0n", output) if names else output
    return _SPACES.sub(b" ", _NUMBER.sub(b"\0#", text))
