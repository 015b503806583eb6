"""Builds the one sentence about a job's state: training, waiting, dead and others. Pure.

It is used if no incident is more informative, and has the limits and pieces of `views.sentence`.
"""

from collections.abc import Callable
from datetime import tzinfo

from msgspec import Struct

from holdfast.model.documents.parts import JobState, Sentence, Tone
from holdfast.views.sentence import (
    ALWAYS,
    NAME_MAX,
    TEXT_MAX,
    Piece,
    clean,
    clock,
    fitted,
    number,
    sentence_zh,
)

NAME_OF_JOB_MAX = 64
TONES: dict[JobState, Tone] = {
    "waiting": "trouble",
    "recovering": "trouble",
    "kept": "lost",
    "failed": "lost",
    "unsupervised": "trouble",
    "dead": "lost",
    "unknown": "trouble",
}
TO_DO: frozenset[JobState] = frozenset({"waiting", "kept", "failed", "unsupervised", "dead", "unknown"})


class StateFacts(Struct, frozen=True, kw_only=True):
    """The facts about a job's state that its sentence needs.

    `since_s`: start of the state. `reason`: why the job ended or waits. `by`: who stopped it, as in StopRequested.
    `missing`: workers without a node. `isolated`: number of isolated nodes. `host`: the machine it runs on. `ranks`:
    number of running ranks; None if unknown.
    """

    name: str
    state: JobState
    since_s: float | None = None
    step: int | None = None
    restarts: int = 0
    reason: str = ""
    by: str = ""
    phase_words: str = ""
    missing: tuple[int, ...] = ()
    isolated: int = 0
    host: str = ""
    ranks: int | None = None
    is_being_ended: bool = False


def state_sentence(facts: StateFacts, zone: tzinfo | None = None) -> Sentence:
    """Returns the one-sentence summary of a job's state."""
    pieces = _MAKERS[facts.state](facts, zone)
    return Sentence(text=fitted(pieces), tone=TONES.get(facts.state, "neutral"), to_do=facts.state in TO_DO)


def _when(facts: StateFacts, zone: tzinfo | None) -> tuple[str, str]:
    """Returns ` since 14:02:31` in both languages; empty if the time is unknown."""
    if facts.since_s is None:
        return "", ""
    at = clock(facts.since_s, zone)
    return f" since {at}", f"{at} 起"


def _at(facts: StateFacts, zone: tzinfo | None) -> tuple[str, str]:
    if facts.since_s is None:
        return "", ""
    at = clock(facts.since_s, zone)
    return f" at {at}", f"{at} "


def _step(facts: StateFacts, en: str, zh: str) -> Piece:
    if facts.step is None:
        return Piece(0, "", "")
    return Piece(60, en.format(n=number(facts.step)), zh.format(n=number(facts.step)))


def _reason(facts: StateFacts, before: str = ": ", before_zh: str = "：") -> Piece:
    text = clean(facts.reason, TEXT_MAX)
    return (
        Piece(40, f"{before}{text}", f"{before_zh}{clean(sentence_zh(facts.reason), TEXT_MAX)}")
        if text
        else Piece(0, "", "")
    )


def _starting(facts: StateFacts, zone: tzinfo | None) -> list[Piece]:
    en, zh = _when(facts, zone)
    words = clean(facts.phase_words)
    return [
        Piece(ALWAYS, f"Starting{en}", f"{zh}正在启动"),
        Piece(50, f": {words}", f":{words}") if words else Piece(0, "", ""),
    ]


def _training(facts: StateFacts, zone: tzinfo | None) -> list[Piece]:
    en, zh = _when(facts, zone)
    if facts.step is None:
        return [
            Piece(ALWAYS, f"Running{en}", f"{zh}运行中"),
            Piece(50, "; its log has named no step yet", "；日志尚未给出步数"),
        ]
    return [Piece(ALWAYS, f"Training{en}", f"{zh}训练中"), _step(facts, ", step {n}", "，第 {n} 步")]


def _recovering(facts: StateFacts, zone: tzinfo | None) -> list[Piece]:
    en, zh = _when(facts, zone)
    words = clean(facts.phase_words)
    return [
        Piece(ALWAYS, f"Recovering from a failure{en}", f"{zh}正在从故障恢复"),
        Piece(50, f": {words}", f":{words}") if words else Piece(0, "", ""),
    ]


def _waiting(facts: StateFacts, zone: tzinfo | None) -> list[Piece]:
    en, zh = _when(facts, zone)
    some = ", ".join(map(str, facts.missing[:4])) + (", ..." if len(facts.missing) > 4 else "")
    many = "s" if len(facts.missing) > 1 else ""
    of, of_zh = (f" for worker{many} {some}", f"worker {some} ") if some else ("", "")
    gone = f" ({facts.isolated} isolated)" if facts.isolated else ""
    gone_zh = f"（{facts.isolated} 个已隔离）" if facts.isolated else ""
    return [
        Piece(ALWAYS, f"No healthy node{of}{en}", f"{zh}{'，' if zh else ''}{of_zh}没有健康节点"),
        Piece(70, gone, gone_zh),
        Piece(60, ". Release or add a node: holdfast nodes", "。请解除隔离或增加节点：holdfast nodes"),
    ]


def _stopping(facts: StateFacts, zone: tzinfo | None) -> list[Piece]:
    en, zh = _when(facts, zone)
    return [Piece(ALWAYS, f"Ending{en}", f"{zh}正在结束"), _reason(facts)]


def _succeeded(facts: StateFacts, zone: tzinfo | None) -> list[Piece]:
    en, zh = _at(facts, zone)
    s = "" if facts.restarts == 1 else "s"
    return [
        Piece(ALWAYS, f"Succeeded{en}", f"{zh}成功结束"),
        _step(facts, ", step {n}", "，第 {n} 步"),
        Piece(50, f"; {facts.restarts} restart{s}", f"；重启 {facts.restarts} 次")
        if facts.restarts
        else Piece(0, "", ""),
        Piece(30, ". Nothing to do", "。无需处理"),
    ]


def _failed(facts: StateFacts, zone: tzinfo | None) -> list[Piece]:
    en, zh = _at(facts, zone)
    return [
        Piece(ALWAYS, f"Failed{en}", f"{zh}失败"),
        _reason(facts),
        _step(facts, "; its last step was {n}", "；最后一步为 {n}"),
    ]


def _stopped(facts: StateFacts, zone: tzinfo | None) -> list[Piece]:
    en, zh = _at(facts, zone)
    by = {"person": (" by a user", "被人"), "scheduler": (" by the scheduler", "被调度系统")}.get(
        facts.by, ("", "被")
    )
    return [
        Piece(ALWAYS, f"Stopped{by[0]}{en}", f"{zh}{by[1]}停止"),
        _step(facts, ", step {n}", "，第 {n} 步"),
        _reason(facts),
    ]


def _preempted(facts: StateFacts, zone: tzinfo | None) -> list[Piece]:
    en, zh = _at(facts, zone)
    return [
        Piece(ALWAYS, f"Pre-empted{en}", f"{zh}被抢占"),
        _step(facts, ", step {n}", "，第 {n} 步"),
        _reason(facts),
    ]


def _unsupervised(facts: StateFacts, zone: tzinfo | None) -> list[Piece]:
    en, zh = _when(facts, zone)
    name = clean(facts.name, NAME_OF_JOB_MAX)
    pieces = [Piece(ALWAYS, f"No supervisor{en}", f"{zh}无人监管")]
    if facts.is_being_ended:
        return [
            *pieces,
            Piece(90, "; its ranks are being ended", "；rank 正在被结束"),
            _step(facts, "; step {n}", "；第 {n} 步"),
        ]
    return [
        *pieces,
        Piece(90, "; its ranks still run", "；rank 仍在运行"),
        _step(facts, ", last step seen: {n}", "，已见第 {n} 步"),
        Piece(80, f". Reattach: holdfast attach {name}", f"。重新接管：holdfast attach {name}"),
    ]


def _dead(facts: StateFacts, zone: tzinfo | None) -> list[Piece]:
    en, zh = _when(facts, zone)
    name = clean(facts.name, NAME_OF_JOB_MAX)
    none_yet = facts.ranks == 0 and facts.step is None
    who = "its supervisor has ended" if none_yet else "its supervisor and its ranks have ended"
    who_zh = "监管进程已退出" if none_yet else "监管进程与所有 rank 均已退出"
    return [
        Piece(ALWAYS, f"Dead: {who}{en}", f"已中断：{zh}{who_zh}"),
        _step(facts, "; the last step was {n}", "；最后一步为 {n}"),
        Piece(80, f". Start it again: holdfast attach {name}", f"。重新启动：holdfast attach {name}"),
    ]


def _unknown(facts: StateFacts, zone: tzinfo | None) -> list[Piece]:
    en, zh = _when(facts, zone)
    host = clean(facts.host, NAME_MAX)
    return [
        Piece(ALWAYS, f"State unknown: no message received{en}", f"状态未知：{zh}未收到任何消息"),
        Piece(70, f", and {host} cannot be queried from here", f"，且无法从此处查询 {host}")
        if host
        else Piece(0, "", ""),
        _step(facts, "; the last step was {n}", "；最后一步为 {n}"),
        Piece(
            60,
            f". Run there: holdfast status {clean(facts.name, NAME_OF_JOB_MAX)}",
            f"。请到该机器查看：holdfast status {clean(facts.name, NAME_OF_JOB_MAX)}",
        ),
    ]


_MAKERS: dict[JobState, Callable[[StateFacts, tzinfo | None], list[Piece]]] = {
    "starting": _starting,
    "training": _training,
    "recovering": _recovering,
    "waiting": _waiting,
    "kept": _failed,
    "stopping": _stopping,
    "succeeded": _succeeded,
    "failed": _failed,
    "stopped": _stopped,
    "preempted": _preempted,
    "unsupervised": _unsupervised,
    "dead": _dead,
    "unknown": _unknown,
}
