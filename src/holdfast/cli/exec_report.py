"""The answers of many workers for people and for machines. Makes lines and prints nothing.

What is quoted cannot steer the terminal.
"""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from holdfast.cli.times import duration, length
from holdfast.cli.wrapping import shown
from holdfast.core.answer_groups import Answer, AnswerGroup
from holdfast.core.stack_groups import ranges
from holdfast.model.calls import CallPlace, CallPlaces

NODES_SHOWN_MAX = 8
LINES_SHOWN_MAX = 400  # of one answer; --json has all of it


class Asked(NamedTuple):
    """What was to be run, and where."""

    places: CallPlaces
    command: tuple[str, ...]
    limit_s: float
    loose: bool


def plan(asked: Asked) -> Iterator[str]:
    """What a dry run says."""
    places = asked.places.places
    yield (
        f"would run on {_count(places)} of job {asked.places.job}, "
        f"for at most {length(asked.limit_s)}: {shown(shlex.join(asked.command))}"
    )
    for place in places:
        why_not = f": {shown(place.why_not)}" if place.why_not else ""
        yield f"  {_place(place)}{why_not}"


def plan_document(asked: Asked) -> dict[str, Any]:
    return {
        **_head(asked),
        "dry_run": True,
        "places": [
            {"worker": place.worker, "node": place.node, "why_not": place.why_not}
            for place in asked.places.places
        ],
    }


def report(asked: Asked, groups: Sequence[AnswerGroup]) -> Iterator[str]:
    """One answer, its workers; the rarest first."""
    answers = "one answer" if len(groups) == 1 else f"{len(groups)} answers"
    attempt = f", attempt {asked.places.attempt}" if asked.places.attempt else ""
    yield f"job {asked.places.job}{attempt}: {answers} of {_count(asked.places.places)}"
    for group in groups:
        yield ""
        yield f"{_named(group)}: {ending(group)}"
        lines = group.first.output.decode("utf-8", "replace").splitlines()
        for line in lines[:LINES_SHOWN_MAX]:
            yield f"    {shown(line)}".rstrip()
        if len(lines) > LINES_SHOWN_MAX:
            yield f"    ... and {len(lines) - LINES_SHOWN_MAX} more lines; --json has them"


def document(asked: Asked, groups: Sequence[AnswerGroup]) -> dict[str, Any]:
    """The same for machines; see docs/exec.md."""
    return {
        **_head(asked),
        "groups": [_group_document(group) for group in groups],
        "answers": [
            _answer_document(answer, whole=asked.loose) for group in groups for answer in group.answers
        ],
    }


def ending(group: AnswerGroup) -> str:
    """How it ended, in words: `ended with 1 after 431 ms`."""
    first = group.first
    longest_s = max(answer.took_s for answer in group.answers)
    match first.outcome:
        case "exited" if first.code is not None:
            text = f"killed by signal {-first.code}" if first.code < 0 else f"ended with {first.code}"
            text += f" after {duration(longest_s)}"
        case "exited" | "not-started":
            text = "could not be started"
        case "timed-out":
            text = f"took too long, was ended after {duration(longest_s)}"
        case "ran-away":
            text = f"printed without end, was ended after {duration(longest_s)}"
        case "cancelled":
            text = "was cancelled"
        case "not-reached":
            text = "could not be reached"
        case "no-answer":
            text = "did not answer"
    if first.why:
        text += f": {shown(first.why)}"
    if first.cut_bytes:
        text += f" (of its output the first {len(first.output)} bytes are kept, the rest is not)"
    return text


def _head(asked: Asked) -> dict[str, Any]:
    return {
        "job": asked.places.job,
        "attempt": asked.places.attempt,
        "command": asked.command,
        "limit_s": asked.limit_s,
    }


def _count(places: Sequence[CallPlace]) -> str:
    """`3 workers and 1 node`"""
    workers = [place.worker for place in places if place.worker is not None]
    parts = []
    if workers:
        named = f"worker {workers[0]}" if len(workers) == 1 else f"{len(workers)} workers ({ranges(workers)})"
        parts.append(named)
    others = [place.node for place in places if place.worker is None]
    if others:
        parts.append(f"node {others[0]}" if len(others) == 1 else f"{len(others)} other nodes")
    return shown(" and ".join(parts))


def _place(place: CallPlace) -> str:
    worker = "no worker" if place.worker is None else f"worker {place.worker}"
    return shown(f"{worker} on {place.node}")


def _named(group: AnswerGroup) -> str:
    if len(group.answers) == 1:
        worker = group.first.worker
        return shown(
            f"node {group.first.node}" if worker is None else f"worker {worker} on {group.first.node}"
        )
    parts = [f"workers {ranges(group.workers)}"] if group.workers else []
    if group.nodes:
        more = len(group.nodes) - NODES_SHOWN_MAX
        parts.append(
            f"nodes {', '.join(group.nodes[:NODES_SHOWN_MAX])}{f' and {more} more' if more > 0 else ''}"
        )
    return shown(f"{' and '.join(parts)} ({len(group.answers)})")


def _group_document(group: AnswerGroup) -> dict[str, Any]:
    return {
        "workers": group.workers,
        "ranges": ranges(group.workers),
        "nodes": [answer.node for answer in group.answers],
        "outcome": group.first.outcome,
        "code": group.first.code,
        "output": _text(group.first),
        "cut_bytes": group.first.cut_bytes,
        "why": group.first.why,
    }


def _answer_document(answer: Answer, *, whole: bool) -> dict[str, Any]:
    found = {
        "worker": answer.worker,
        "node": answer.node,
        "outcome": answer.outcome,
        "code": answer.code,
        "took_s": round(answer.took_s, 3),
    }
    return found | {"output": _text(answer)} if whole else found


def _text(answer: Answer) -> str:
    return answer.output.decode("utf-8", "backslashreplace")
