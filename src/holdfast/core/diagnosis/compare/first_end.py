"""Tells what follows from the process that a launcher saw end first: the broken connections of its peers. Pure.

A launcher's report is evidence about the process: who ended, and by which code or signal. A peer only sees that a
connection broke. If the process had an end of its own, the broken connections are its consequence: a signal, or a
code that no uncaught exception gives. Code 1 is an uncaught exception, and SIGABRT the watchdog; either can be the
broken connection itself, so then the complaint must come from another rank.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.clock_offsets import are_comparable
from holdfast.core.diagnosis.candidates import Ruling
from holdfast.core.diagnosis.events.context import as_context
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.verdict.categories import SIGNAL_WORDS, SIGNALS
from holdfast.model.matches import Match, Search
from holdfast.model.verdicts import Culprit

TABLE_BYTES = 1 << 10  # of a launcher's report, from its first line to the lines that say who and how
# Launchers look at their processes every few seconds (torchrun and DeepSpeed: at most 5), and clocks differ.
LONG_BEFORE_S = 60.0
TOGETHER_S = 15.0  # the launchers of several nodes report the end of one job within this
WEIGHT = 0.55
NUMBERS = {name: number for number, (name, _) in SIGNALS.items()} | SIGNAL_WORDS
SIGNAL_MAX = 64
SIGNAL_BASE = 128  # a shell's code for a process that a signal ended
ABORT = 6
EXCEPTION_CODE = 1  # CPython's code after an uncaught exception


class End(Struct, frozen=True):
    """The end of a process in the words of its launcher. `code`: negative for a signal."""

    match: Match
    code: int
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None

    @property
    def is_own(self) -> bool:
        """Returns whether the end cannot be that of a rank whose connection broke."""
        return self.code not in (EXCEPTION_CODE, -ABORT)


def of_first_end(search: Search, known: KnowledgeBase) -> dict[int, Ruling]:
    """Returns rulings if a launcher's report shows what broke the connections of the ranks. Keys: id() of the match.

    The complaints become context, as does what the launcher did to the other ranks; the report names the rank.
    """
    ends = reported_ends(search.matches, known)
    end = _first(ends, known)
    if end is None:
        return {}
    end = _with_rank(end, search.matches, known)
    complaints = [one for one in search.matches if known.has("complaint-about-lost-peer", one)]
    if any(_is_of(one, end) for one in complaints):
        return {}  # it lost a connection itself
    follow = [one for one in complaints if _follows(one, end, known)]
    if not follow:
        return {}
    ended = [one for one in search.matches if _is_ended_by_launcher(one, end, ends, known)]
    found = {id(one): as_context(one, known) for one in (*follow, *ended)}
    report = [one for one in search.matches if _is_report(one, end, known)]
    says_more = any(one.category != "unknown" for one in report)
    for one in report:
        is_less = says_more and one.category == "unknown"
        found[id(one)] = as_context(one, known) if is_less else _report(one, end, known)
    return found


def reported_ends(matches: Sequence[Match], known: KnowledgeBase) -> list[End]:
    """Returns the ends of processes that launchers report, in the order of logs and lines."""
    found: dict[tuple[int, int], End] = {}
    for one in matches:
        end = None
        if known.has("table-of-first-exit", one):
            end = _of_table(one, matches, known)
        elif known.has("launcher-tells-end", one):
            end = _of_line(one, known)
        if end is not None:
            found.setdefault((one.source, one.offset), end)
    return list(found.values())


def _of_line(one: Match, known: KnowledgeBase) -> End | None:
    match = known.found("end-of-process", one.text)
    parts = {name: text for name, text in match.groupdict().items() if text} if match else {}
    code = _code(parts)
    if code is None:
        return None
    return End(one, code, _number(parts.get("rank")), _number(parts.get("local_rank")), parts.get("host"))


def _of_table(head: Match, matches: Sequence[Match], known: KnowledgeBase) -> End | None:
    below = [
        one for one in matches if one.source == head.source and 0 <= one.offset - head.offset < TABLE_BYTES
    ]
    code = next((_code(one.captures) for one in below if known.has("exit-code-row", one)), None)
    who = next((one.captures for one in below if known.has("first-exit-process", one)), None)
    if code is None or who is None:
        return None
    return End(head, code, _number(who.get("rank")), _number(who.get("local_rank")), who.get("host"))


def _code(parts: Mapping[str, str]) -> int | None:
    """Returns the exit code, -N for signal N; None if none is reported, or 0."""
    if (signal := _number(parts.get("signal"))) is not None:
        return -signal
    if (named := NUMBERS.get(parts.get("name", ""))) is not None:
        return -named
    text = parts.get("code", "")
    code = int(text) if text.removeprefix("-").isdigit() else 0
    return (SIGNAL_BASE - code if 0 < code - SIGNAL_BASE <= SIGNAL_MAX else code) or None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _first(ends: Sequence[End], known: KnowledgeBase) -> End | None:
    """Returns the end that came first.

    A launcher that reports one end for each attempt of its node: of the last attempt the end that no broken
    connection explains. A launcher that reports all ends: the first.
    """
    each = [one for one in ends if known.has("launcher-tells-one-end", one.match)]
    if not each:
        return ends[0] if ends else None
    attempt = [one for one in each if _are_together(one.match, each[-1].match)]
    return next((one for one in attempt if one.is_own), attempt[0])


def _are_together(one: Match, other: Match) -> bool:
    seconds = _seconds_after(one, other)
    return one is other or seconds is not None and abs(seconds) <= TOGETHER_S


def _seconds_after(one: Match, other: Match) -> float | None:
    """Returns by how many seconds the first match is later; None if unknown."""
    at_s, other_s = one.writer.stamp_s, other.writer.stamp_s
    if at_s is None or other_s is None or not are_comparable(at_s, other_s):
        return None
    return at_s - other_s


def _with_rank(end: End, matches: Sequence[Match], known: KnowledgeBase) -> End:
    """Returns the end with its rank, if a table below names it for the local rank, or if the job has one node."""
    if end.rank is not None or end.local_rank is None:
        return end
    rows = [
        one.captures
        for one in matches
        if known.has("run-gave-up-on-rank", one)
        and one.source == end.match.source
        and one.last_offset > end.match.offset
        and _number(one.captures.get("local_rank")) == end.local_rank
    ]
    ranks = {_number(row.get("rank")) for row in rows}
    hosts = {one.writer.host for one in matches if one.writer.host}
    if not ranks and len(hosts) <= 1:
        ranks = {end.local_rank}
    return replace(end, rank=ranks.pop()) if len(ranks) == 1 else end


def _is_of(complaint: Match, end: End) -> bool:
    """Returns whether the process that ended first made the complaint."""
    writer = complaint.writer
    if writer.rank is not None and end.rank is not None:
        return writer.rank == end.rank
    return writer.local_rank is not None and writer.local_rank == end.local_rank


def _follows(complaint: Match, end: End, known: KnowledgeBase) -> bool:
    """Returns whether a complaint about a peer is a consequence of the end.

    A broken connection is reported by the first to notice it, the peer or the launcher. A time-out, or a line that can be
    a cause of its own, must be later than the end.
    """
    signature = known.get(complaint.signature)
    if signature is None or signature.role not in ("cause", "symptom"):
        return False
    if not end.is_own and (end.rank is None or complaint.writer.rank is None):
        return False
    seconds = _seconds_after(complaint, end.match)
    if signature.role == "symptom" and known.has("connection-broke", complaint):
        return seconds is None or seconds > -LONG_BEFORE_S
    return seconds is not None and seconds >= 0.0


def _is_ended_by_launcher(one: Match, end: End, ends: Sequence[End], known: KnowledgeBase) -> bool:
    """Returns whether a line is about processes that the launcher ended, or that failed, after the first end."""
    if one.source != end.match.source or one.offset == end.match.offset:
        return False
    if known.has("launcher-closes-rank", one):
        return True
    if one.offset < end.match.offset:
        return False
    later = any((one.source, one.offset) == (other.match.source, other.match.offset) for other in ends)
    return known.has("step-cancelled", one) or later and one.signature in known


def _is_report(one: Match, end: End, known: KnowledgeBase) -> bool:
    is_same_line = (one.source, one.offset) == (end.match.source, end.match.offset)
    return is_same_line and one.signature in known and known[one.signature].role == "symptom"


def _report(one: Match, end: End, known: KnowledgeBase) -> Ruling:
    """Returns the ruling on the launcher's report of the first end."""
    signature, category, action = known[one.signature], one.category, ""
    if known.is_of("no-cause-named", category):
        row = known.read("exit-code", str(end.code))
        if row:
            category = row.category
        elif category == "unknown":
            category = "python_exception"
        action = "" if row else "unknown"  # a code of the program's own choice says no more
    culprit = Culprit(rank=end.rank, host=end.host)
    is_named = culprit.rank is not None or culprit.host is not None
    has_table = known.has("launcher-tells-one-end", one)  # which names rank and host
    return Ruling(
        category=category,
        role="symptom",
        severity="fatal",
        weight=max(signature.weight, WEIGHT),
        action=action,
        culprits=(culprit,) if is_named and not has_table else None,
    )
