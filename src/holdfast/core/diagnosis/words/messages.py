"""Builds the text of the first error: its line, and following lines of its message that are needed to
understand it. Pure.
"""

from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import Candidate
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.late_pattern import late

TIMES = late(r"\d+(?=[:.,/T-]\d)|(?<=\d[:.,/T-])\d+")  # no rank: that identifies the line's writer


def message_of(root: Candidate) -> tuple[str, tuple[str, ...]]:
    """Returns the text of the first error, and the following lines that are not part of it.

    "RuntimeError: Error(s) in loading state_dict for GPT:" includes the next line; "NCCL error in: ...,
    unhandled cuda error" includes NCCL's own message.
    """
    match = root.match
    text, after = _without_actor(match.text, root.known), match.record
    if not match.error_type:
        return text, after
    head = match.text[: max(0, match.text.find(match.error_type))]
    mine = [(number, body) for number, line in enumerate(after) if (body := _behind(head, line)) is not None]
    taken = dict(mine[: _joined(text, [body for _, body in mine], root.known)])
    rest = tuple(line for number, line in enumerate(after) if number not in taken)
    return " ".join([text.rstrip(), *(body.strip() for body in taken.values())]), rest


def _without_actor(text: str, known: KnowledgeBase) -> str:
    head = known.found("actor-head", text)
    return text[head.end() :] if head else text


def _joined(text: str, bodies: Sequence[str], known: KnowledgeBase) -> int:
    """Returns how many of the following lines belong to the text."""
    if text.rstrip().endswith(":"):
        return int(bool(bodies) and bodies[0][:1].isspace())
    count = 0
    if bodies and known.says("nccl-failure-kind", bodies[0]):
        count = 1
        if len(bodies) > 2 and known.says("nccl-last-error", bodies[1].strip()):
            count = 3
    return count


def _behind(head: str, line: str) -> str | None:
    """Returns a line without the prefix (writer and time) that the first line has; None if the prefix
    differs.
    """
    for same in (head, head.rstrip()):
        if TIMES.sub("0", line[: len(same)]) == TIMES.sub("0", same):
            return line[len(same) :]
    return None
