"""Builds the one sentence about an incident, `WHO did WHAT, since WHEN; DONE; COST; NEXT.`, in English and
Chinese.

It has at most 160 characters in each language: the least important parts are left out first. Log text is
shortened and cleaned. `views.state_sentence` builds the sentence about a state. Times are HH:MM:SS in the
given time zone; None means local time. Pure.
"""

import re
from collections.abc import Sequence
from datetime import datetime, tzinfo

from msgspec import Struct

from holdfast.core.diagnosis.words.verdict_zh import in_chinese
from holdfast.core.hang.stack_groups import ranges
from holdfast.core.job.spent import DETECTION, UNSUPERVISED
from holdfast.core.job.story import IncidentStory
from holdfast.model.documents.parts import JobState, Sentence, Tone, Who
from holdfast.model.signatures import Words
from holdfast.model.state import CheckFault, DeviceFault, ExitFault, HangFault, NodeFault
from holdfast.settings.times import length
from holdfast.views.sentence_words import AFTER_RECOVERY, DID, TO_DO, UNKNOWN_AUTHOR, Did
from holdfast.views.wrapping import shown

CHARACTERS_MAX = 160
NAME_MAX, TEXT_MAX, RANKS_MAX = 28, 60, 18
ALWAYS = 100
OPERATION = re.compile(r"\b(\w+ #\d+)\b")
PLACE = re.compile(r"\bat ([\w.<>-]+:\d+)\b")
RAISED = re.compile(r"(?P<type>[\w.]+)(?: at (?P<at>[\w.<>-]+:\d+))?(?:: |$)")
FAILED_AGAIN = (
    (
        re.compile(r"the same (?:problem|error)[^:]* (\d+) times in a row"),
        "{n} times in a row",
        "连续 {n} 次",
    ),
    (re.compile(r"the same error(?: in the training code)? twice"), "the same error twice", "同一错误两次"),
    (
        re.compile(r"all (\d+) restarts are (?:used up|spent)"),
        "all {n} restarts are used up",
        "{n} 次重启已用完",
    ),
    (re.compile(r"the only restart is (?:used up|spent)"), "its only restart is used up", "唯一的重启已用完"),
    (re.compile(r"no restart is allowed"), "no restart is allowed", "未允许重启"),
    (re.compile(r"restart on such an exit is off"), "restart on such an exit is off", "此类退出不重启"),
    (re.compile(r"automatic restart is off"), "automatic restart is off", "未启用自动重启"),
)
RESTARTING = frozenset(
    {"in-place", "hang-restart", "replace-worker", "reschedule-isolated", "reschedule-unconditional"}
)


class About(Struct, frozen=True, kw_only=True):
    """The facts about a job that the sentence about its incident needs.

    `workers`: number of workers; with only one worker, its node is not named.
    """

    state: JobState
    max_restarts: int | None = None
    workers: int = 1
    step: int | None = None


class Piece(Struct, frozen=True):
    """A part of the sentence about an incident, in both languages.

    `weight`: parts with the lowest weight are left out first, those with ALWAYS never.
    """

    weight: int
    en: str
    zh: str


def incident_sentence(incident: IncidentStory, about: About, zone: tzinfo | None = None) -> Sentence:
    """Returns the one-sentence summary of an incident."""
    to_do, next_ = _next(incident, about)
    head = _head(incident, about, zone)
    done = _done(incident, about)
    cost = _cost(incident)
    return Sentence(text=fitted([*head, *done, *cost, *next_]), tone=_tone(incident, about), to_do=to_do)


def clean(text: str, at_most: int = TEXT_MAX) -> str:
    """Shortens log text to one line without control characters, cutting its middle."""
    plain = " ".join(shown(text).replace("\ufffd", " ").split())
    if len(plain) <= at_most:
        return plain
    front = max(1, (at_most - 1) * 2 // 3)
    return f"{plain[:front]}…{plain[front + 1 - at_most :]}" if at_most > 2 else plain[:at_most]


def clock(at_s: float, zone: tzinfo | None) -> str:
    """Formats a time as `14:02:31`, or ? if it is outside the calendar."""
    try:
        return f"{datetime.fromtimestamp(at_s, zone):%H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "?"


def span(value_s: float) -> Words:
    """Formats a duration with localised units: `41 s`, `3 min`, `2h5min`."""
    whole = max(0, round(value_s))
    if whole <= 120:
        return Words(en=f"{whole} s", zh=f"{whole} 秒")
    if whole < 7_200:
        return Words(en=f"{round(whole / 60)} min", zh=f"{round(whole / 60)} 分钟")
    words = length(round(whole / 60) * 60)
    zh = words.replace("min", " 分").replace("h", " 小时").replace("d", " 天")
    return Words(en=words, zh=zh.strip())


def number(value: int) -> str:
    return f"{value:,}"


def whom(incident: IncidentStory) -> tuple[Who, ...]:
    """Returns the culprits of an incident: those of the verdict, or of the first fault if there is no verdict yet."""
    verdict = incident.verdict
    found = (
        [Who(rank=c.rank, worker=c.worker, node=c.host, device=c.device) for c in verdict.culprits]
        if verdict
        else []
    )
    if not found:
        found = _of_faults(incident)
    return tuple(_placed(one, incident.nodes) for one in found)


def began_s(incident: IncidentStory) -> float:
    """Returns when an incident began: for a hang the time of the last step, otherwise the time it was
    detected.
    """
    before_s = sum(part.seconds for part in incident.spent[:2] if part.what in (DETECTION, UNSUPERVISED))
    return incident.found_at_s - before_s


def _of_faults(incident: IncidentStory) -> list[Who]:
    for fault in incident.faults:
        match fault:
            case ExitFault(rank=rank, worker=worker):
                return [Who(rank=rank, worker=worker)]
            case HangFault(culprits=culprits):
                return [Who(rank=rank) for rank in culprits]
            case NodeFault(node=node) | CheckFault(node=node) if node:
                return [Who(node=node)]
            case DeviceFault(device=device):
                return [Who(node=device.node, device=device.device)]
            case _:
                continue
    return []


def _placed(who: Who, nodes: dict[int, str]) -> Who:
    """Adds the node to a culprit if its worker is known or the only one."""
    if who.node is not None:
        return who
    worker = who.worker if who.worker is not None or len(nodes) != 1 else next(iter(nodes))
    if worker is None or worker not in nodes:
        return who
    return Who(rank=who.rank, worker=worker, node=nodes[worker], device=who.device)


# WHO did WHAT, since WHEN ---------------------------------------------------------------------------------


def did(category: str) -> Did:
    """Returns the words that describe a failure category in a sentence; general words for a category unknown to this
    version.
    """
    if category in DID and category != "xid_N":
        return DID[category]
    if category.startswith("xid_"):
        known = DID["xid_N"]
        code = clean(category[4:], 8)
        return Did(known.subject, known.en.format(code=code), known.zh.format(code=code))
    return DID["unknown"]


def _head(incident: IncidentStory, about: About, zone: tzinfo | None) -> list[Piece]:
    verdict, people = incident.verdict, whom(incident)
    if verdict is None or verdict.category == "unknown":
        act = _act_of_faults(incident)
    else:
        act = did(verdict.category)
    when = clock(began_s(incident) if act.since else incident.found_at_s, zone)
    several = len({one.rank for one in people if one.rank is not None}) > 1
    en = act.en.replace("{has}", "have" if several else "has").replace("{was}", "were" if several else "was")
    op, error, place = _facts(incident)
    en = en.replace("{op}", op.en).replace("{error}", error.en)
    zh = act.zh.replace("{op}", op.zh).replace("{error}", error.zh)
    name, more = _who(people, act, about)
    is_named = "{error}" in act.en
    name_of = error.en if verdict is not None and verdict.raised and not is_named else ""
    where = ", ".join(filter(None, (name_of, place)))
    at = Piece(55, f" in {place}", f"（位于 {place}）") if place else Piece(0, "", "")
    if name_of:
        at = Piece(55, f" ({where})", f"({where})")
    return [
        Piece(ALWAYS, "", f"{when} {'起 ' if act.since else ''}"),
        Piece(ALWAYS, name.en, name.zh),
        more,
        Piece(ALWAYS, f" {en}", zh if more.zh else _glued(name.zh, zh)),
        at,
        Piece(ALWAYS, f" {'since' if act.since else 'at'} {when}", ""),
    ]


def _act_of_faults(incident: IncidentStory) -> Did:
    """Returns words for the fault itself, if there is no verdict yet or it explains nothing."""
    for fault in incident.faults:
        match fault:
            case ExitFault(code=code) if code < 0:
                return Did("rank", f"{{was}} ended by signal {-code}", f"被信号 {-code} 终止")
            case ExitFault(code=code):
                return Did("rank", f"ended with code {code}", f"以退出码 {code} 结束")
            case HangFault():
                return Did("job", "{has} made no progress", "没有进展", since=True)
            case NodeFault():
                return DID["node_down"]
            case CheckFault():
                return Did("node", "failed its check", "未通过检查")
            case DeviceFault(device=device):
                fault_code = clean(device.code, 16)
                return Did("device", f"reported {fault_code}", f"报告 {fault_code}")
            case _:
                return Did("job", "could not be started", "无法启动")
    return DID["unknown"]


def _who(people: Sequence[Who], act: Did, about: About) -> tuple[Words, Piece]:
    """Returns the subject of the sentence, and its details in brackets."""
    ranks = sorted({one.rank for one in people if one.rank is not None})
    nodes = list(dict.fromkeys(one.node for one in people if one.node))
    devices = list(dict.fromkeys(one.device for one in people if one.device))
    none = Piece(0, "", "")
    if act.subject in ("job", "launcher") and not ranks:
        return UNKNOWN_AUTHOR[act.subject], none
    if ranks and act.subject != "node":
        many = "s" if len(ranks) > 1 else ""
        named = clean(ranges(ranks), RANKS_MAX)
        where = [clean(nodes[0], NAME_MAX)] if len(nodes) == 1 and (about.workers > 1 or devices) else []
        where += [_device(devices[0])] if len(devices) == 1 else []
        more = Piece(40, f" ({', '.join(where)})", f"（{'，'.join(where)}）") if where else none
        return Words(en=f"Rank{many} {named}", zh=f"rank {named}"), more
    if nodes:
        named = clean(nodes[0], NAME_MAX) + (f" +{len(nodes) - 1}" if len(nodes) > 1 else "")
        where = [_device(devices[0])] if len(devices) == 1 else []
        if ranks:
            where.append(f"rank {clean(ranges(ranks), RANKS_MAX)}")
        more = Piece(40, f" ({', '.join(where)})", f"（{'，'.join(where)}）") if where else none
        return Words(en=named, zh=named), more
    workers = sorted({one.worker for one in people if one.worker is not None})
    if workers and about.workers > 1:
        named = clean(ranges(workers), RANKS_MAX)
        return Words(en=f"Worker{'s' if len(workers) > 1 else ''} {named}", zh=f"worker {named}"), none
    return UNKNOWN_AUTHOR[act.subject], none


def _device(device: str) -> str:
    """Formats a device: `GPU 5` for an index, `5d:00.0` for a PCI address."""
    text = clean(device, 20)
    if text.isdigit():
        return f"GPU {text}"
    return re.sub(r"^0{4,8}:", "", text)


def _facts(incident: IncidentStory) -> tuple[Words, Words, str]:
    """Returns the collective, the exception and the code location, if the verdict contains them."""
    verdict = incident.verdict
    title = verdict.title if verdict else ""
    lines = [title, *(one.text for one in verdict.evidence[:8])] if verdict else []
    found = next((match[1] for line in lines if (match := OPERATION.search(line))), "")
    op = Words(en=clean(found, 32), zh=clean(found, 32)) if found else Words(en="a collective", zh="集合通信")
    raised = RAISED.match(verdict.raised) if verdict and verdict.raised else None
    place = (raised["at"] or "") if raised else ""
    if not place and (match := PLACE.search(title)):
        place = match[1]
    if raised:
        name = clean(raised["type"].rpartition(".")[2], 32)
        error = Words(en=name, zh=f" {name}")
    elif (match := re.search(r"raised ([\w.]+)", title)) is not None:
        name = clean(match[1].rpartition(".")[2], 32)
        error = Words(en=name, zh=f" {name}")
    else:
        error = Words(en="an exception", zh="异常")
    return op, error, clean(place, 32)


def _glued(name: str, text: str) -> str:
    """Joins a name and a Chinese text: with a space after Latin letters, without one before a particle."""
    return text if text.startswith("的") or not name[-1:].isascii() else f" {text}"


# DONE ----------------------------------------------------------------------------------------------------


def _done(incident: IncidentStory, about: About) -> list[Piece]:
    rung = incident.rungs[-1] if incident.rungs else None
    isolated = [node for one in incident.rungs for node in one.isolate if not one.shadow]
    pieces = [Piece(70, "; node isolated", "；已隔离节点")] if isolated else []
    if _is_final(incident, about):
        return [*pieces, *_failed(incident, about)]
    if incident.over:
        return pieces + _recovered(incident)
    if about.state in ("dead", "unsupervised", "unknown"):
        return pieces
    if rung is None:
        return [Piece(80, "; diagnosis is running", "；正在定位原因")]
    if rung.shadow:
        return [Piece(80, "; shadow mode, nothing was done", "；仅记录，未处理（shadow）")]
    if rung.rung in RESTARTING:
        of = (
            f" ({rung.restarts} of {about.max_restarts})"
            if about.max_restarts and "schedule" in rung.rung
            else ""
        )
        of_zh = f"（第 {rung.restarts}/{about.max_restarts} 次）" if of else ""
        return [*pieces, Piece(80, f"; restarting{of}", f"；正在重启{of_zh}")]
    if rung.rung == "wait-for-node":
        return [*pieces, Piece(80, "; waiting for a healthy node", "；等待健康节点")]
    return [*pieces, Piece(80, "; training is left running", "；训练继续运行")]


def _recovered(incident: IncidentStory) -> list[Piece]:
    took = span(incident.took_s or 0.0)
    restarted = any(one.rung in RESTARTING and not one.shadow for one in incident.rungs)
    word = "training again" if restarted else "training continued"
    new = [node for node in incident.nodes_after.values() if node not in incident.nodes.values()]
    named = clean(new[0], NAME_MAX) if new else ""
    joined = ", " if any(one.isolate for one in incident.rungs) else "; "
    on = Piece(30, f" on {named}", "") if named else Piece(0, "", "")
    zh_on = Piece(30, "", f"在 {named} ") if named else Piece(0, "", "")
    return [
        Piece(90, f"{joined}{word} after {took.en}", f"{'，' if joined == ', ' else '；'}{took.zh}后"),
        on,
        zh_on,
        Piece(90, "", "恢复训练"),
    ]


def _is_final(incident: IncidentStory, about: About) -> bool:
    """Returns True if Holdfast does nothing more: the job ended in the incident, or its failure is
    decided.
    """
    is_failing = bool(incident.rungs) and incident.rungs[-1].rung == "fail" and not incident.rungs[-1].shadow
    return incident.ended or (is_failing and not incident.over)


def _failed(incident: IncidentStory, about: About) -> list[Piece]:
    if about.state in ("stopped", "preempted"):
        word = (
            Words(en="stopped", zh="停止")
            if about.state == "stopped"
            else Words(en="pre-empted", zh="被抢占")
        )
        return [Piece(80, f"; the job was {word.en}", f"；作业已{word.zh}")]
    if about.state == "succeeded":
        return [Piece(80, "; the job succeeded nevertheless", "；作业仍然成功")]
    why = incident.rungs[-1].why if incident.rungs else ""
    pieces = [Piece(85, "; the job failed", "；作业失败")]
    for pattern, en, zh in FAILED_AGAIN:
        if (match := pattern.search(why)) is not None:
            n = match[1] if pattern.groups else ""
            pieces.append(Piece(52, f", {en.format(n=n)}", f"，{zh.format(n=n)}"))
            break
    return pieces


# COST and NEXT -------------------------------------------------------------------------------------------


def _cost(incident: IncidentStory) -> list[Piece]:
    if incident.steps_lost:
        many = number(incident.steps_lost)
        step = "step" if incident.steps_lost == 1 else "steps"
        return [Piece(50, f"; {many} {step} repeated", f"；重算 {many} 步")]
    if incident.ended and incident.step_before is not None:
        step = number(incident.step_before)
        return [Piece(45, f"; its last step was {step}", f"；最后一步为 {step}")]
    return []


def _next(incident: IncidentStory, about: About) -> tuple[bool, list[Piece]]:
    """Returns whether a user has to act, and the advice."""
    action = incident.verdict.action if incident.verdict else "unknown"
    if about.state in ("stopped", "preempted", "succeeded") and incident.ended:
        return False, []
    if _is_final(incident, about):
        words = TO_DO.get(action, TO_DO["unknown"])
        return action != "none", [Piece(75, f". {words.en}", f"。{words.zh}")]
    if incident.over:
        later = AFTER_RECOVERY.get(action)
        if later is None:
            return False, [Piece(65, ". Nothing to do", "。无需处理")]
        return True, [Piece(65, f". {later.en}", f"。{later.zh}")]
    rung = incident.rungs[-1].rung if incident.rungs else ""
    if rung == "notify" or (incident.rungs and incident.rungs[-1].shadow):
        return True, [Piece(65, ". Action needed: Holdfast does nothing more", "。请处理：不会自动恢复")]
    return False, []


def _tone(incident: IncidentStory, about: About) -> Tone:
    if _is_final(incident, about):
        return "neutral" if about.state in ("stopped", "preempted", "succeeded") else "lost"
    if about.state == "dead":
        return "lost"
    return "recovered" if incident.over else "trouble"


# Fitting -------------------------------------------------------------------------------------------------


def fitted(pieces: Sequence[Piece]) -> Words:
    """Joins the pieces to one sentence in each language of at most CHARACTERS_MAX characters."""
    return Words(
        en=_fitted([(piece.weight, piece.en) for piece in pieces], "."),
        zh=_fitted([(piece.weight, piece.zh) for piece in pieces], "。"),
    )


def _fitted(parts: Sequence[tuple[int, str]], end: str) -> str:
    kept = [part for part in parts if part[1]]
    while True:
        text = "".join(text for _, text in kept)
        text = text if text.endswith((".", "。", "?", "…")) else text + end
        least = min((weight for weight, _ in kept), default=ALWAYS)
        if len(text) <= CHARACTERS_MAX or least >= ALWAYS:
            break
        at = max(place for place, (weight, _) in enumerate(kept) if weight == least)
        del kept[at]
    text = text[:1].upper() + text[1:] if end == "." else text
    return text if len(text) <= CHARACTERS_MAX else text[: CHARACTERS_MAX - 1] + "…"


def sentence_zh(english: str) -> str:
    """Translates a sentence of a verdict into Chinese; unchanged if there is no translation."""
    return in_chinese(english) or english
