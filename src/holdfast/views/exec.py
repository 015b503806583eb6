"""Formats the results of a command that `holdfast exec` ran on many workers, as text and JSON.

Prints nothing.

Control characters in quoted output are escaped, so that they cannot affect the terminal.
"""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from holdfast.core.answer_groups import Answer, AnswerGroup
from holdfast.core.hang.stack_groups import ranges
from holdfast.model.calls import CallPlace, CallPlaces, Outcome
from holdfast.model.signatures import Words
from holdfast.settings.times import duration, length
from holdfast.views.languages import Language, said
from holdfast.views.wrapping import shown

NODES_SHOWN_MAX = 8
LINES_SHOWN_MAX = 400  # of one answer; --json has all of it


_PLAN = Words(
    en="would run on {count} of job {job}, for at most {limit}: {command}",
    zh="将在作业 {job} 的 {count} 上运行，最长 {limit}：{command}",
)
_HEAD = Words(en="job {job}{attempt}: {answers} of {count}", zh="作业 {job}{attempt}：{count}，{answers}")
_ATTEMPT = Words(en=", attempt {n}", zh="，第 {n} 次尝试")
_ONE_ANSWER = Words(en="one answer", zh="结果全部相同")
_ANSWERS = Words(en="{n} answers", zh="{n} 种结果")
_MORE_LINES = Words(en="... and {n} more lines; --json shows them", zh="…… 另有 {n} 行，见 --json")
_WORKER = Words(en="worker {n}", zh="worker {n}")
_WORKERS = Words(en="{n} workers ({ranges})", zh="{n} 个 worker（{ranges}）")
_NODE = Words(en="node {node}", zh="节点 {node}")
_OTHER_NODES = Words(en="{n} other nodes", zh="另外 {n} 个节点")
_AND = Words(en=" and ", zh="和")
_ON = Words(en="{worker} on {node}", zh="{worker}（节点 {node}）")
_COLON = Words(en=": ", zh="：")
_NO_WORKER = Words(en="no worker", zh="无 worker")
_SOME_WORKERS = Words(en="workers {ranges}", zh="worker {ranges}")
_NODES = Words(en="nodes {nodes}", zh="节点 {nodes}")
_MORE_NODES = Words(en=" and {n} more", zh=" 等，另有 {n} 个")
_CUT = Words(
    en=" (only the first {n} bytes of its output are kept)", zh="（输出仅保留前 {n} 字节，其余丢弃）"
)
_ENDED = Words(en="ended with exit code {code} after {took}", zh="{took} 后结束，退出码 {code}")
_KILLED = Words(en="killed by signal {signal} after {took}", zh="{took} 后被信号 {signal} 终止")
_ENDINGS: dict[Outcome, Words] = {
    "exited": Words(en="ended, with an unknown exit code", zh="已结束，退出码未知"),
    "not-started": Words(en="could not be started", zh="无法启动"),
    "timed-out": Words(en="exceeded its time limit, was killed after {took}", zh="超时，{took} 后被终止"),
    "ran-away": Words(
        en="exceeded the output limit and was killed after {took}", zh="输出过多，{took} 后被终止"
    ),
    "cancelled": Words(en="was cancelled", zh="已取消"),
    "not-reached": Words(en="could not be reached", zh="无法连接"),
    "no-answer": Words(en="did not respond", zh="无响应"),
}


class Asked(NamedTuple):
    """The command that `holdfast exec` was given, and where to run it.

    `limit_s`: time limit in seconds. `loose`: whether numbers in outputs are ignored when results are
    compared.
    """

    places: CallPlaces
    command: tuple[str, ...]
    limit_s: float
    loose: bool


def plan(asked: Asked, language: Language) -> Iterator[str]:
    """Yields the lines of a dry run: the command and the workers that would run it."""
    places = asked.places.places
    yield said(_PLAN, language).format(
        count=_count(places, language),
        job=asked.places.job,
        limit=length(asked.limit_s),
        command=shown(shlex.join(asked.command)),
    )
    for place in places:
        why_not = f"{said(_COLON, language)}{shown(place.why_not)}" if place.why_not else ""
        yield f"  {_on(place.worker, place.node, language)}{why_not}"


def plan_document(asked: Asked) -> dict[str, Any]:
    return {
        **_head(asked),
        "dry_run": True,
        "places": [
            {"worker": place.worker, "node": place.node, "why_not": place.why_not}
            for place in asked.places.places
        ],
    }


def report(asked: Asked, groups: Sequence[AnswerGroup], language: Language) -> Iterator[str]:
    """Yields each distinct result with its workers, the rarest first."""
    attempt = asked.places.attempt
    answers = _ONE_ANSWER if len(groups) == 1 else _ANSWERS
    yield said(_HEAD, language).format(
        job=asked.places.job,
        attempt=said(_ATTEMPT, language).format(n=attempt) if attempt else "",
        answers=said(answers, language).format(n=len(groups)),
        count=_count(asked.places.places, language),
    )
    for group in groups:
        yield ""
        yield f"{_named(group, language)}{said(_COLON, language)}{ending(group, language)}"
        lines = group.first.output.decode("utf-8", "replace").splitlines()
        for line in lines[:LINES_SHOWN_MAX]:
            yield f"    {shown(line)}".rstrip()
        if len(lines) > LINES_SHOWN_MAX:
            yield "    " + said(_MORE_LINES, language).format(n=len(lines) - LINES_SHOWN_MAX)


def document(asked: Asked, groups: Sequence[AnswerGroup]) -> dict[str, Any]:
    """Returns the JSON document of `holdfast exec` (docs/exec.md)."""
    return {
        **_head(asked),
        "groups": [_group_document(group) for group in groups],
        "answers": [
            _answer_document(answer, whole=asked.loose) for group in groups for answer in group.answers
        ],
    }


def ending(group: AnswerGroup, language: Language) -> str:
    """Returns in words how a command ended on the workers of a group: `ended with exit code 1 after 431 ms`."""
    first = group.first
    words = _ENDINGS[first.outcome]
    if first.outcome == "exited" and first.code is not None:
        words = _KILLED if first.code < 0 else _ENDED
    text = said(words, language).format(
        code=first.code,
        signal=-(first.code or 0),
        took=duration(max(answer.took_s for answer in group.answers)),
    )
    if first.why:
        text += f"{said(_COLON, language)}{shown(first.why)}"
    if first.cut_bytes:
        text += said(_CUT, language).format(n=len(first.output))
    return text


def _head(asked: Asked) -> dict[str, Any]:
    return {
        "job": asked.places.job,
        "attempt": asked.places.attempt,
        "command": asked.command,
        "limit_s": asked.limit_s,
    }


def _count(places: Sequence[CallPlace], language: Language) -> str:
    """Returns the number of workers in words: `3 workers (0-2) and node gpu-9`."""
    workers = [place.worker for place in places if place.worker is not None]
    others = [place.node for place in places if place.worker is None]
    parts = []
    if workers:
        words = _WORKER if len(workers) == 1 else _WORKERS
        n = workers[0] if len(workers) == 1 else len(workers)
        parts.append(said(words, language).format(n=n, ranges=ranges(workers)))
    if others:
        words = _NODE if len(others) == 1 else _OTHER_NODES
        parts.append(said(words, language).format(node=others[0], n=len(others)))
    return shown(said(_AND, language).join(parts))


def _on(worker: int | None, node: str, language: Language) -> str:
    words = _NO_WORKER if worker is None else _WORKER
    named = said(words, language).format(n=worker)
    return shown(said(_ON, language).format(worker=named, node=node))


def _named(group: AnswerGroup, language: Language) -> str:
    first = group.first
    if len(group.answers) == 1:
        if first.worker is None:
            return shown(said(_NODE, language).format(node=first.node))
        return _on(first.worker, first.node, language)
    parts = []
    if group.workers:
        parts.append(said(_SOME_WORKERS, language).format(ranges=ranges(group.workers)))
    if group.nodes:
        more = len(group.nodes) - NODES_SHOWN_MAX
        words = _NODE if len(group.nodes) == 1 else _NODES
        names = ", ".join(group.nodes[:NODES_SHOWN_MAX])
        text = said(words, language).format(node=names, nodes=names)
        parts.append(text + (said(_MORE_NODES, language).format(n=more) if more > 0 else ""))
    return shown(f"{said(_AND, language).join(parts)} ({len(group.answers)})")


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
