"""Runs a user's command on workers of a job, and groups equal results."""

import time

from holdfast.core.answer_groups import AnswerGroup, answer_groups, exit_code
from holdfast.jobs.call import Gathering, output_bytes_max, places
from holdfast.jobs.line import LineLost
from holdfast.model.calls import Program
from holdfast.model.documents.actions import ExecCommand, ExecGroup, ExecResult
from holdfast.web.data import Data

ANSWER_S = 25.0  # beyond the command's limit; the controller answers for silent nodes before that
OUTPUT_BYTES_MAX = 1 << 18  # of one answer
SHOWN_BYTES_MAX = 4 << 20  # of all groups together


def run(data: Data, job: str, body: ExecCommand, by: str) -> ExecResult:
    """Runs a command and returns the grouped results. Raises Refusal, CallNotMade and NoLine."""
    data.place(job)
    line = data.line(job)
    try:
        found = places(line, None if body.workers is None else set(body.workers), None)
        size = min(OUTPUT_BYTES_MAX, output_bytes_max(len(found.places)))
        what = Program(command=body.command, limit_s=body.limit_s, output_bytes_max=size)
        gathering = Gathering(line, found.places, what, by)
        why_not = "the node did not respond"
        try:
            gathering.gather(time.monotonic() + body.limit_s + ANSWER_S)
        except LineLost:
            why_not = "the connection to the controller was lost"
        groups = answer_groups(gathering.answers(why_not), loose=body.loose)
    finally:
        line.close()
    left, shown = SHOWN_BYTES_MAX, []
    for one in groups:
        shown.append(_group(one, left))
        left = max(0, left - len(one.first.output))
    return ExecResult(job=found.job, attempt=found.attempt, code=exit_code(groups), groups=tuple(shown))


def _group(group: AnswerGroup, bytes_max: int) -> ExecGroup:
    first = group.first
    output = first.output[:bytes_max]
    nodes = tuple(dict.fromkeys(one.node for one in group.answers))
    return ExecGroup(
        workers=group.workers,
        nodes=nodes,
        outcome=first.outcome,
        code=first.code,
        output=output.decode("utf-8", "replace"),
        cut_bytes=first.cut_bytes + len(first.output) - len(output),
        why=first.why,
    )
