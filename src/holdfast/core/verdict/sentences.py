"""Composes the first verdict: category, title, evidence and culprits of the rank that failed first. Pure."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.job.recurrence import raised
from holdfast.core.verdict.categories import ADVICE, KINDS, RULES, SIGNALS
from holdfast.core.verdict.trouble import (
    KILL,
    MILD,
    TERM,
    End,
    Trouble,
    as_signal,
    first_by_rank,
    is_complaint,
)
from holdfast.model.failures import ErrorRecord, Failure, LauncherWord, RankExit
from holdfast.model.verdicts import Culprit, Evidence, Verdict

EVIDENCE_MAX = 16
RANKS_NAMED_MAX = 8
FOLLOWED = "followed"  # explanation in the evidence for a failure after the first
LAUNCHER_WORDS_MAX = 4  # in the evidence
LOST_CONNECTION = (
    "nccl_network_error"  # a rank that reports it is one end of a connection, and not the culprit
)


TEXT_MAX = 300


UNSAID_FULL = 0.7  # confidence in a full disk as the cause, if nothing else explains the end of a rank


def of_error(
    failure: Failure, first: Trouble, alike: Sequence[Trouble], others: Sequence[Trouble]
) -> Verdict:
    """Returns the verdict for ranks that failed with the same exception.

    `first`: the failure of the first rank. `alike`: the ranks with the same exception; `others`: later failures.
    """
    error = first.error
    assert error is not None
    category, confidence = _by_error(error)
    if category in ("host_oom", "process_killed") and failure.oom:
        category, confidence = oom_category(failure, first.exit) or category, 0.95
    head = cut(f"{error.type}: {error.message}".strip(": ").partition("\n")[0])
    place = _place(error.frame)
    title = f"{_who(alike)} raised {head}{f' at {place}' if place else ''}"
    seen = Evidence(text=head, says=title, file=error.file, line=error.line, at_s=error.at_s)
    sure = confidence if first.rank is not None else confidence * 0.9
    verdict = made_verdict(
        category,
        title,
        sure,
        first_error=seen,
        culprits=() if category == LOST_CONNECTION and first.weight == 2 else _culprits(alike),
        evidence=_evidence(failure, seen, alike, others),
    )
    return replace(verdict, raised=raised(error, place)) if first.weight == 0 else verdict


def _by_error(error: ErrorRecord) -> tuple[str, float]:
    text = f"{error.type}: {error.message}"
    for rule in RULES:
        if re.search(rule.pattern, text):
            return rule.category, rule.confidence
    if is_complaint(error):
        return LOST_CONNECTION, 0.5
    return "python_exception", 0.9


def of_exit(failure: Failure, first: Trouble, alike: Sequence[Trouble], others: Sequence[Trouble]) -> Verdict:
    """Returns the verdict for ranks that ended without an exception.

    `first`: the failure of the first rank. `alike`: the ranks that ended in the same way; `others`: later failures.
    """
    assert first.exit is not None
    code = as_signal(first.exit.code)
    named = any(_names(sentence, first.exit.pid) for sentence in failure.oom)
    oom = oom_category(failure, first.exit) if code == KILL or (code is None and named) else ""
    if oom:
        category, confidence, says = (
            oom,
            0.97 if named else 0.8,
            "the host ran out of memory, and the kernel's OOM killer killed it",
        )
    elif code is not None and code < 0:
        category, confidence, says = by_signal(code), 0.9 if code not in MILD else 0.7, ""
    elif failure.output_full and code:
        category, confidence, says = "disk_full", UNSAID_FULL, no_room(failure)
    else:
        category, confidence, says = "unknown", 0.3, "no exception was found"
    title = _exit_title(_who(alike), len(alike), code, oom, no_room(failure))
    text = f"{exit_words(code)}" + (f", pid {first.exit.pid}" if first.exit.pid else "")
    seen = Evidence(text=text, says=says or title, at_s=first.at_s)
    if isinstance(first.exit, LauncherWord):
        seen = replace(seen, text=cut(first.exit.text), file=first.exit.file)
    return made_verdict(
        category,
        title,
        confidence,
        first_error=seen,
        culprits=_culprits(alike),
        evidence=_evidence(failure, seen, alike, others),
    )


def _exit_title(who: str, many: int, code: int | None, oom: str, no_room: str) -> str:
    was = "was" if many == 1 else "were"
    if oom:
        whose = (
            "the memory limit of its cgroup was reached"
            if oom == "cgroup_oom"
            else "the host ran out of memory"
        )
        return f"{who} {was} killed by SIGKILL: {whose}"
    if code == 0:
        return f"{who} left by {'itself' if many == 1 else 'themselves'}, and others still needed {'it' if many == 1 else 'them'}"
    if code is None or code >= 0:
        return f"{who} ended with {exit_words(code)}" + (f": {no_room}" if no_room else "; nothing says why")
    unsaid = "; the sender is unknown" if code in (KILL, TERM) else ""
    return f"{who} {was} {ended_by(code)}{unsaid}"


def no_room(failure: Failure) -> str:
    """Returns a clause about a full disk, which prevents exceptions from being written; empty if the disk has
    space.
    """
    return failure.output_full and f"the disk it prints to is full ({failure.output_full})"


def ended_by(code: int) -> str:
    """Returns "ended by SIGTERM" or "killed by SIGKILL" for a negative exit code, -N for signal N."""
    name = SIGNALS.get(-code, (f"signal {-code}", ""))[0]
    return f"{'ended' if code in MILD else 'killed'} by {name}"


def by_signal(code: int) -> str:
    """Returns the failure category of a process that a signal ended. `code`: exit code, -N for signal N."""
    return SIGNALS.get(-code, ("", "process_killed"))[1]


def exit_words(code: int | None) -> str:
    """Returns the text of an exit code: "code 3", "SIGKILL", or "an unknown code" for None."""
    if code is None:
        return "an unknown code"
    return f"code {code}" if code >= 0 else SIGNALS.get(-code, (f"signal {-code}", ""))[0]


def oom_category(failure: Failure, exit: End | None) -> str:
    """Returns the category of the kernel's OOM kill: cgroup_oom or host_oom; empty if no kernel line reports
    one.

    The kernel line with the rank's process id decides, else the first one.
    """
    pid = exit.pid if exit else 0
    sentence = next((one for one in failure.oom if _names(one, pid)), failure.oom[0] if failure.oom else "")
    if not sentence:
        return ""
    return "cgroup_oom" if re.search(r"cgroup|memcg", sentence, re.IGNORECASE) else "host_oom"


def _names(sentence: str, pid: int) -> bool:
    return pid > 0 and re.search(rf"\b{pid}\b", sentence) is not None


def _evidence(
    failure: Failure, seen: Evidence, alike: Sequence[Trouble], others: Sequence[Trouble]
) -> tuple[Evidence, ...]:
    oom = [Evidence(text=cut(sentence), says="the kernel killed for memory") for sentence in failure.oom]
    after = [
        Evidence(text=_other_words(trouble), says=FOLLOWED, at_s=trouble.at_s)
        for trouble in sorted(others, key=lambda trouble: (trouble.at_s is None, trouble.at_s or 0.0))
    ]
    return (seen, *oom, *_launchers_evidence(failure, seen, alike), *after)[:EVIDENCE_MAX]


def _launchers_evidence(failure: Failure, seen: Evidence, alike: Sequence[Trouble]) -> list[Evidence]:
    """Returns the launchers' reports as evidence, each with whether it agrees with the verdict, and else why
    it does not.
    """
    exits = first_by_rank(failure.exits)
    words = [one for one in failure.launcher_words if cut(one.text) != seen.text]
    found = []
    for one in words[:LAUNCHER_WORDS_MAX]:
        own = exits.get(one.rank) if one.rank is not None else None
        found.append(Evidence(text=cut(one.text), says=_agreement(one, own, alike), file=one.file))
    return found


def _agreement(word: LauncherWord, own: RankExit | None, alike: Sequence[Trouble]) -> str:
    who = f"rank {word.rank}" if word.rank is not None else f"process {word.pid}"
    if own and None not in (own.code, word.code) and as_signal(own.code) != as_signal(word.code):
        return (
            f"its launcher says so; the end that was seen of {who} counts: {exit_words(as_signal(own.code))}"
        )
    named = {trouble.rank for trouble in alike}
    if word.rank in named or None in named:
        return "its launcher says the same"
    why = "raised an error of its own" if alike[0].error else "ended before"
    return f"its launcher names {who}; the verdict does not: {_who(alike)} {why}"


def _other_words(trouble: Trouble) -> str:
    who = _who([trouble])
    if trouble.error:
        return cut(f"{who} raised {trouble.error.type}: {trouble.error.message}".partition("\n")[0])
    code = as_signal(trouble.exit.code) if trouble.exit else None
    return f"{who} ended with {exit_words(code)}"


def _culprits(alike: Sequence[Trouble]) -> tuple[Culprit, ...]:
    named = {trouble.rank: trouble.worker for trouble in alike if trouble.rank is not None}
    return tuple(Culprit(rank=rank, worker=worker) for rank, worker in sorted(named.items()))


def _who(alike: Sequence[Trouble]) -> str:
    ranks = sorted({trouble.rank for trouble in alike if trouble.rank is not None})
    if not ranks:
        return "a process"
    names = ", ".join(str(rank) for rank in ranks[:RANKS_NAMED_MAX])
    return f"rank{'s' if len(ranks) > 1 else ''} {names}{', ...' if len(ranks) > RANKS_NAMED_MAX else ''}"


def _place(frame: str) -> str:
    """Returns file name and line of a stack frame: "train.py:88" for "/data/train.py:88 step"; empty if it
    has none.
    """
    where = re.match(r"(?P<place>.*:\d+)(?: |$)", frame)
    return where["place"].replace("\\", "/").rpartition("/")[2] if where else ""


def cut(text: str) -> str:
    """Shortens a text to TEXT_MAX characters."""
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "..."


def made_verdict(
    category: str,
    title: str,
    confidence: float,
    *,
    first_error: Evidence | None = None,
    culprits: tuple[Culprit, ...] = (),
    evidence: tuple[Evidence, ...] = (),
) -> Verdict:
    """Returns a verdict with the class, the action and the advice that belong to its category."""
    class_, action = KINDS[category]
    return Verdict(
        category=category,
        class_=class_,
        title=title,
        confidence=confidence,
        action=action,
        advice=ADVICE.get(category) or ADVICE.get(action, ""),
        culprits=culprits,
        first_error=first_error,
        evidence=evidence or ((first_error,) if first_error else ()),
    )
