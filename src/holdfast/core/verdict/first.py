"""The first verdict on a failed attempt: which rank broke first, of what, and what to do about it.

Pure. It orders what was seen by kind and by time, because who complains loudest is mostly a follower. It reads
no files and searches no logs: what it is given was parsed before. Whatever it is given, one verdict comes back.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.job.recurrence import raised
from holdfast.core.verdict.categories import ADVICE, KINDS, RULES, SIGNALS
from holdfast.late_pattern import late
from holdfast.model.failures import ErrorRecord, Failure, LauncherWord, RankExit
from holdfast.model.samples import Hang
from holdfast.model.verdicts import Culprit, Evidence, Verdict

APART_S = 0.1  # between the ends of two ranks, for their last words to stand in the same order
SKEW_S = 2.0  # ends are seen by polling and clocks differ: within it, kind decides before time
# What ends this soon after the last sign of life may be why the others wait; later, the hang was ended from outside.
HANG_SKEW_S = 5.0
HANG = "hang ("  # what the first error of a hang's verdict begins with
EVIDENCE_MAX = 16
RANKS_NAMED_MAX = 8
LAUNCHER_WORDS_MAX = 4  # in the evidence
TEXT_MAX = 300

TERM, KILL = -15, -9
UNSAID_FULL = 0.7  # a disk was full, and nothing else says why a rank ended
MILD = (TERM, -1, -2, -13)  # signals by which launchers, terminals and schedulers end ranks that did nothing
CONNECTION = late(
    r"closed by (remote )?peer|Connection reset|Broken pipe|Connection refused|remote error|ncclRemoteError"
    r"|ncclSystemError|Connection was likely closed|[Rr]emote process exited|Socket closed|recvValue failed"
    r"|[Ff]ailed to (recv|send)|Broken connection|TCPStore.*(timed? ?out|timeout)|wait timeout after|Socket Timeout"
    r"|Timed out (waiting|after) \d+ ?(ms|seconds)|collective operation timeout|NCCL communicator was aborted"
    r"|Software caused connection abort|Timed out waiting for .*(peer|rank|store|recv)",
    re.DOTALL,
)
CONNECTION_TYPES = ("ConnectionResetError", "BrokenPipeError", "ConnectionAbortedError", "EOFError")
LAUNCHERS = (
    *("ChildFailedError", "CalledProcessError", "ProcessExitedException", "ProcessRaisedException"),
    *("ActorDiedError", "RayActorError", "WorkerCrashedError", "WorkerGroupError", "ActorUnavailableError"),
    "DeadKernelError",
)
FROM_OUTSIDE = ("KeyboardInterrupt", "SignalException", "SystemExit", "GracefulExit")


End: TypeAlias = RankExit | LauncherWord  # seen by the supervisor, or read in what a launcher printed


class Trouble(Struct, frozen=True, kw_only=True):
    """One rank's part in it: its first error, its end, or both. `weight`: 0 own fault .. 2 a follower, mostly."""

    weight: int
    rank: int | None
    worker: int | None
    at_s: float | None
    error: ErrorRecord | None = None
    exit: End | None = None
    is_root: bool = False  # the launcher saw it fail first


def first_verdict(failure: Failure) -> Verdict:
    """The one verdict. What is outside the ranks explains them; then a rank's own fault; then a hang; then followers."""
    return (
        _not_started(failure)
        or _hardware(failure)
        or _hang_or_what_broke_before(failure)
        or _asked_to_stop(failure)
        or _first_trouble(failure, troubles(failure))
        or _by_command_code(failure)
    )


# --- what is outside the ranks


def _not_started(failure: Failure) -> Verdict | None:
    if not failure.command_error:
        return None
    seen = Evidence(text=_cut(failure.command_error), says="the command could not be started")
    return _verdict(
        "launcher_config", f"the command could not be started: {seen.text}", 0.95, first_error=seen
    )


def _hardware(failure: Failure) -> Verdict | None:
    if failure.lost_nodes:
        names = ", ".join(failure.lost_nodes[:RANKS_NAMED_MAX])
        seen = Evidence(text=_cut(f"lost: {names}"), says="the node no longer answers")
        culprits = tuple(Culprit(host=node) for node in failure.lost_nodes)
        return _verdict("node_down", f"node {names} is gone", 0.95, first_error=seen, culprits=culprits)
    if failure.devices:
        names = ", ".join(failure.devices[:RANKS_NAMED_MAX])
        category = "npu_fault" if re.search(r"npu|ascend|davinci", names, re.IGNORECASE) else "gpu_fault"
        seen = Evidence(text=_cut(names), says="the device reported a fault")
        culprits = tuple(Culprit(device=device) for device in failure.devices)
        return _verdict(category, f"device fault: {_cut(names)}", 0.9, first_error=seen, culprits=culprits)
    return None


def _asked_to_stop(failure: Failure) -> Verdict | None:
    if not failure.stop_requested:
        return None
    seen = Evidence(
        text="a stop was requested", says="the job was ended on request; nothing is wrong with it"
    )
    return _verdict("terminated", "the job was asked to stop", 0.95, first_error=seen)


def _hang_or_what_broke_before(failure: Failure) -> Verdict | None:
    """A hang, unless a rank's own fault at its beginning explains why the others wait."""
    hang = failure.hang
    if hang is None:
        return None
    until_s = hang.since_s + HANG_SKEW_S
    before = [
        trouble for trouble in troubles(failure) if trouble.at_s is not None and trouble.at_s <= until_s
    ]
    own = [trouble for trouble in before if trouble.weight == 0]
    return (_first_trouble(failure, own) if own else None) or _of_hang(hang)


def _of_hang(hang: Hang) -> Verdict:
    category = {
        "stopped": "process_stopped",
        "exit-hang": "teardown_hang",
        "blocked-io": "dataloader_stuck",
    }.get(hang.kind, "collective_missing_rank" if hang.culprits else "collective_timeout")
    if category == "collective_missing_rank" and re.search(r"data_?loader", hang.why.partition(";")[0]):
        category = "dataloader_stuck"
    if hang.kind == "silent" and not hang.culprits:
        category = "unknown"
    category = hang.category or category
    seen = Evidence(text=f"{HANG}{hang.kind})", says=_cut(hang.why), at_s=hang.since_s)
    culprits = tuple(Culprit(rank=rank) for rank in hang.culprits)
    title = (
        "; ".join(hang.why.split("; ")[:2]) or f"the job hangs ({hang.kind})"
    )  # the rest is in the evidence
    confidence = min(1.0, max(0.0, hang.confidence))
    return _verdict(category, _cut(title), confidence, first_error=seen, culprits=culprits)


def _by_command_code(failure: Failure) -> Verdict:
    code = as_signal(failure.command_code)
    if code is None:
        return _verdict("unknown", "nothing explains it", 0.0)
    if code == 0 and failure.command_code == 0:
        return _verdict("none", "nothing is wrong: the command ended with code 0", 0.9)
    seen = Evidence(text=f"the command ended with {exit_words(code)}")
    if code < 0:
        category = _oom_category(failure, None) if code == KILL else ""
        title = f"the command was {_ended_by(code)}"
        return _verdict(category or _by_signal(code), title, 0.7, first_error=seen)
    if code in (126, 127):
        return _verdict(
            "launcher_config", f"the command could not be run (code {code})", 0.9, first_error=seen
        )
    if failure.output_full:
        return _verdict("disk_full", f"{seen.text}: {_no_room(failure)}", UNSAID_FULL, first_error=seen)
    return _verdict("unknown", f"{seen.text}; nothing says why", 0.2, first_error=seen)


# --- who was first


def troubles(failure: Failure) -> list[Trouble]:
    """One for each rank that ended badly or recorded an error, and one for each error of an unknown rank."""
    exits = _exits(failure)
    words = {one.rank: one for one in reversed(failure.launcher_words) if one.rank is not None}
    ends: dict[int, End] = {**words, **exits}
    root = failure.elastic[0].rank if failure.elastic else None
    errors: dict[int, ErrorRecord] = {}
    homeless: dict[tuple[str, str], ErrorRecord] = {}
    for error in (*failure.errors, *failure.tracebacks):
        if error.type.endswith(LAUNCHERS):
            continue
        if error.rank is None:
            homeless.setdefault((error.type, error.message), error)
        else:
            errors[error.rank] = _earlier(errors.get(error.rank), error)
    for error in errors.values():
        homeless.pop((error.type, error.message), None)
    left = _left_before(failure, exits)
    found: list[Trouble | None] = [
        left[rank] if rank in left else _of_rank(ends.get(rank), errors.get(rank), root)
        for rank in sorted({*ends, *errors, *left})
    ]
    found += [_of_rank(None, error, root) for error in homeless.values()]
    found += [_of_rank(one, None, root) for one in _homeless_deaths(failure)]
    return [trouble for trouble in found if trouble is not None]


def _exits(failure: Failure) -> dict[int, RankExit]:
    """The first end of each rank. A code that was missed is taken from the launcher, which waited for it."""
    told = _first_by_rank(failure.elastic)
    seen = _first_by_rank(failure.exits)
    codes = {one.rank: one.code for one in failure.launcher_words} | {
        rank: one.code for rank, one in told.items()
    }
    for rank, exit in seen.items():
        if exit.code is None and rank in codes:
            seen[rank] = replace(exit, code=codes[rank])
        elif exit.code is None and failure.command_code == 0:
            seen[rank] = replace(exit, code=0)  # a launcher that ends well has seen its ranks end well
    return told | seen


def _homeless_deaths(failure: Failure) -> list[LauncherWord]:
    """Processes that a signal ended, as their launcher says, and of which it is not known which rank they were."""
    pids = {one.pid for one in failure.exits}
    return [
        one
        for one in failure.launcher_words
        if one.rank is None and one.pid not in pids and weight_of(None, one) == 0
    ]


def _left_before(failure: Failure, exits: Mapping[int, RankExit]) -> dict[int, Trouble]:
    """Ranks that had begun to leave before anybody missed them: a launcher that ended them then changes nothing of it."""
    complaints = [error.at_s for error in failure.errors if error.at_s is not None and is_complaint(error)]
    had_errors = {error.rank for error in (*failure.errors, *failure.tracebacks)}
    found = {}
    for one in failure.left:
        end = exits.get(one.rank)
        code = as_signal(end.code) if end else None
        if complaints and one.at_s <= min(complaints) and one.rank not in had_errors:
            if code in (None, 0, *MILD):
                exit = replace(one, code=0)
                found[one.rank] = Trouble(
                    weight=1, rank=one.rank, worker=one.worker, at_s=one.at_s, exit=exit
                )
    return found


def _first_by_rank(exits: Iterable[RankExit]) -> dict[int, RankExit]:
    first: dict[int, RankExit] = {}
    for exit in exits:
        first.setdefault(exit.rank, exit)
    return first


def _earlier(known: ErrorRecord | None, new: ErrorRecord) -> ErrorRecord:
    """The first of a rank, and the recorded one before the logged one: it says more."""
    if known is None:
        return new
    if known.at_s is None or new.at_s is None:
        return known
    return new if new.at_s < known.at_s and new.type != known.type else known


def _of_rank(exit: End | None, error: ErrorRecord | None, root: int | None) -> Trouble | None:
    weight = weight_of(error, exit)
    if weight is None:
        return None
    # A launcher says it some time after the end: that is no time to compare with others'.
    timed = (error, None if isinstance(exit, LauncherWord) else exit)
    times = [seen.at_s for seen in timed if seen is not None and seen.at_s is not None]
    rank = exit.rank if exit else error.rank if error else None
    worker = exit.worker if exit else error.worker if error else None
    return Trouble(
        weight=weight,
        rank=rank,
        worker=worker,
        at_s=min(times, default=None),
        error=error,
        exit=exit,
        is_root=root is not None and rank == root,
    )


def weight_of(error: ErrorRecord | None, exit: End | None) -> int | None:
    """0: an own fault. 1: ended, no word why. 2: what followers look like. None: nothing wrong."""
    code = as_signal(exit.code) if exit else None
    if exit and exit.code == 0:
        return None  # whatever it logged, it did not stop it
    if error is not None:
        return 2 if is_complaint(error) or error.type.endswith(FROM_OUTSIDE) else 0
    if exit is None:
        return None
    if code is not None and code < 0:
        return 2 if code in MILD else 0
    return 1  # a code that was missed too: who is gone without a word comes before those who complain of it


def is_complaint(error: ErrorRecord) -> bool:
    """Says only that somebody else is gone or late."""
    return error.type.endswith(CONNECTION_TYPES) or bool(CONNECTION.search(error.message))


def as_signal(code: int | None) -> int | None:
    """A shell's 137 is a death by signal 9."""
    if code is not None and 128 < code <= 128 + 64:
        return 128 - code
    return code


def _first_trouble(failure: Failure, found: Sequence[Trouble]) -> Verdict | None:
    if not found:
        return None
    start_s = min((trouble.at_s for trouble in found if trouble.at_s is not None), default=0.0)
    late_s = start_s + SKEW_S
    near = [trouble for trouble in found if trouble.at_s is None or trouble.at_s <= late_s]
    first = min(near, key=lambda trouble: _precedence(trouble, late_s))
    alike = [trouble for trouble in near if trouble is first or _same_fault(first, trouble)]
    alike = _with_home(alike, near)
    first = next((trouble for trouble in alike if trouble.error == first.error), first)
    others = [trouble for trouble in found if all(trouble.rank != one.rank for one in alike)]
    return (
        _of_error(failure, first, alike, others) if first.error else _of_exit(failure, first, alike, others)
    )


def _precedence(trouble: Trouble, late_s: float) -> tuple[int, bool, float, bool, int]:
    """Kind, then, among followers, what the launcher saw first, then time; a rank before none."""
    at_s = late_s if trouble.at_s is None else trouble.at_s
    not_root = trouble.weight == 2 and not trouble.is_root
    return trouble.weight, not_root, at_s, trouble.rank is None, trouble.rank or 0


def _same_fault(first: Trouble, other: Trouble) -> bool:
    """Many ranks may break of one fault. Deaths count only at the same moment: launchers kill the rest soon after."""
    if first.weight != other.weight or (first.error is None) != (other.error is None):
        return False
    if first.error and other.error:
        return first.weight == 0 and (first.error.type, first.error.message) == (
            other.error.type,
            other.error.message,
        )
    same = first.exit and other.exit and as_signal(first.exit.code) == as_signal(other.exit.code)
    return bool(same) and first.at_s == other.at_s and first.weight < 2


def _with_home(alike: list[Trouble], near: Sequence[Trouble]) -> list[Trouble]:
    """An error of an unknown rank belongs to the one rank that ended with a code and no word why.

    Where there are as many such errors as such ranks, each of its own time, they belong together in order.
    """
    if len(alike) != 1 or alike[0].rank is not None or alike[0].error is None:
        return alike
    silent = [trouble for trouble in near if trouble.weight == 1]
    if len(silent) > 1:
        silent = sorted(
            (trouble for trouble in silent if trouble.at_s is not None),
            key=lambda trouble: trouble.at_s or 0.0,
        )
    homeless = [trouble for trouble in near if trouble.rank is None and trouble.error is not None]
    ends = [trouble.at_s or 0.0 for trouble in silent]
    is_apart = all(after - before >= APART_S for before, after in zip(ends, ends[1:], strict=False))
    if not silent or (len(silent) > 1 and (len(silent) != len(homeless) or not is_apart)):
        return alike
    home = silent[0] if len(silent) == 1 else silent[homeless.index(alike[0])]
    return [replace(alike[0], rank=home.rank, worker=home.worker, exit=home.exit)]


# --- words


def _of_error(
    failure: Failure, first: Trouble, alike: Sequence[Trouble], others: Sequence[Trouble]
) -> Verdict:
    error = first.error
    assert error is not None
    category, confidence = _by_error(error)
    if category in ("host_oom", "process_killed") and failure.oom:
        category, confidence = _oom_category(failure, first.exit) or category, 0.95
    head = _cut(f"{error.type}: {error.message}".strip(": ").partition("\n")[0])
    place = _place(error.frame)
    title = f"{_who(alike)} raised {head}{f' at {place}' if place else ''}"
    seen = Evidence(text=head, says=title, file=error.file, line=error.line, at_s=error.at_s)
    sure = confidence if first.rank is not None else confidence * 0.9
    verdict = _verdict(
        category,
        title,
        sure,
        first_error=seen,
        culprits=_culprits(alike),
        evidence=_evidence(failure, seen, alike, others),
    )
    return replace(verdict, raised=raised(error, place)) if first.weight == 0 else verdict


def _by_error(error: ErrorRecord) -> tuple[str, float]:
    text = f"{error.type}: {error.message}"
    for rule in RULES:
        if re.search(rule.pattern, text):
            return rule.category, rule.confidence
    if is_complaint(error):
        return "nccl_network_error", 0.5
    return "python_exception", 0.9


def _of_exit(
    failure: Failure, first: Trouble, alike: Sequence[Trouble], others: Sequence[Trouble]
) -> Verdict:
    assert first.exit is not None
    code = as_signal(first.exit.code)
    named = any(_names(sentence, first.exit.pid) for sentence in failure.oom)
    oom = _oom_category(failure, first.exit) if code == KILL or (code is None and named) else ""
    if oom:
        category, confidence, says = oom, 0.97 if named else 0.8, "the kernel ran out of memory and killed it"
    elif code is not None and code < 0:
        category, confidence, says = _by_signal(code), 0.9 if code not in MILD else 0.7, ""
    elif failure.output_full and code:
        category, confidence, says = "disk_full", UNSAID_FULL, _no_room(failure)
    else:
        category, confidence, says = "unknown", 0.3, "no exception was found"
    title = _exit_title(_who(alike), len(alike), code, oom, _no_room(failure))
    text = f"{exit_words(code)}" + (f", pid {first.exit.pid}" if first.exit.pid else "")
    seen = Evidence(text=text, says=says or title, at_s=first.at_s)
    if isinstance(first.exit, LauncherWord):
        seen = replace(seen, text=_cut(first.exit.text), file=first.exit.file)
    return _verdict(
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
    unsaid = "; nothing says by whom" if code in (KILL, TERM) else ""
    return f"{who} {was} {_ended_by(code)}{unsaid}"


def _no_room(failure: Failure) -> str:
    """Empty where there is room: an exception could then have been printed."""
    return failure.output_full and f"the disk it prints to is full ({failure.output_full})"


def _ended_by(code: int) -> str:
    name = SIGNALS.get(-code, (f"signal {-code}", ""))[0]
    return f"{'ended' if code in MILD else 'killed'} by {name}"


def _by_signal(code: int) -> str:
    return SIGNALS.get(-code, ("", "process_killed"))[1]


def exit_words(code: int | None) -> str:
    """`code 3`, `SIGKILL`; `an unknown code` where the end was missed"""
    if code is None:
        return "an unknown code"
    return f"code {code}" if code >= 0 else SIGNALS.get(-code, (f"signal {-code}", ""))[0]


def _oom_category(failure: Failure, exit: End | None) -> str:
    """Of the sentence that names the rank's pid, else of the first; empty where nothing speaks of memory."""
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
    oom = [Evidence(text=_cut(sentence), says="the kernel killed for memory") for sentence in failure.oom]
    after = [
        Evidence(text=_other_words(trouble), says="followed", at_s=trouble.at_s)
        for trouble in sorted(others, key=lambda trouble: (trouble.at_s is None, trouble.at_s or 0.0))
    ]
    return (seen, *oom, *_launchers_evidence(failure, seen, alike), *after)[:EVIDENCE_MAX]


def _launchers_evidence(failure: Failure, seen: Evidence, alike: Sequence[Trouble]) -> list[Evidence]:
    """What launchers say of it, each with whether that agrees with the verdict, and why not where it does not."""
    exits = _first_by_rank(failure.exits)
    words = [one for one in failure.launcher_words if _cut(one.text) != seen.text]
    found = []
    for one in words[:LAUNCHER_WORDS_MAX]:
        own = exits.get(one.rank) if one.rank is not None else None
        found.append(Evidence(text=_cut(one.text), says=_agreement(one, own, alike), file=one.file))
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
        return _cut(f"{who} raised {trouble.error.type}: {trouble.error.message}".partition("\n")[0])
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
    """`/data/train.py:88 step` -> `train.py:88`"""
    where = re.match(r"(?P<place>.*:\d+)(?: |$)", frame)
    return where["place"].replace("\\", "/").rpartition("/")[2] if where else ""


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "..."


def _verdict(
    category: str,
    title: str,
    confidence: float,
    *,
    first_error: Evidence | None = None,
    culprits: tuple[Culprit, ...] = (),
    evidence: tuple[Evidence, ...] = (),
) -> Verdict:
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
