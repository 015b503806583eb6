"""Creates candidates for the root cause from matched log lines. Pure.

A candidate has its signature, its position in time, and whether training continued after it. Lines without a
timestamp, such as the end of a traceback, get the time of the last timestamped line before them in the same
log. Two candidates are ordered only if their times, their times since boot or their offsets show the order.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import reduce

from msgspec import Struct

from holdfast.core.clock_offsets import are_comparable, clock_offsets
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.verdict.categories import KINDS
from holdfast.late_pattern import late
from holdfast.model.matches import Match, Search, Source, Writer
from holdfast.model.signatures import FIELD, Role, Severity, Signature, Words
from holdfast.model.verdicts import Culprit

SHARED = ("op", "seq", "pg", "step", "epoch")  # captures that make one line the same event for all ranks
LATE_BYTES = 2048
FAR_BYTES = 64 << 10  # a step or two write less
CALM_CHARS_MAX = 200
TRIES_MANY = 3
DOES_WITHOUT_CHARS_MAX = 600
# Parts of a text: code; parts in square brackets, left out where a field in them is not known; fields side by side or in brackets.
FIELDS = late(r"(?:\{\w+\})+(?: (?:\{\w+\})+)*")
PARTS = late(
    r"`(?P<code>[^`]*)`|\[(?P<maybe>(?:[^\[\]{}]*\{\w+\})+[^\[\]{}]*)\]|(?P<brackets>\s?[(\uff08](?:\{\w+\})+[)\uff09])"
    r"|(?P<before>[:,\uff1a\uff0c]?\s?)(?P<fields>(?:\{\w+\})+(?: (?:\{\w+\})+)*)(?P<after> ?)"
)
NEAR_BYTES = 256 << 10  # this near an end, a line can be its reason although steps came between
BARE = 0.5  # weight of a symptom that only says that something ended
OF_JOBS = frozenset({"worker", "npu"})  # areas whose lines are in the job's own log
CLOCK_SKEW_S = 30.0  # between nodes without good time synchronisation


class Ruling(Struct, frozen=True, kw_only=True):
    """The result of a rule that compares several lines. It replaces the values of one match's signature.

    `culprits`: None means those that the line names. `decided_by`: the information that determined the action;
    `disagree`: information that would lead to another action. `title`, `explanation`, `advice`: None means the
    signature's. `of_end`: the result is about the last lines of the log, so training did not continue after them,
    even if a step is logged below the first of these lines.
    """

    category: str
    role: Role = "cause"
    severity: Severity = "error"
    weight: float = 0.9
    action: str = ""
    culprits: tuple[Culprit, ...] | None = None
    title: Words | None = None
    explanation: Words | None = None
    advice: Words | None = None
    decided_by: Words | None = None
    disagree: tuple[Words, ...] = ()
    of_end: bool = False


class Candidate(Struct, frozen=True, eq=False):
    """One matched log line as a possible root cause.

    `at_s`: Unix time in seconds, with the clocks of the logs aligned. `uptime_s`: seconds since boot. `survived`:
    training continued after the line in the same log. `outlived`: training continued for more than a few steps.
    `order`: position by log and offset, which makes the choice reproducible.
    """

    match: Match
    signature: Signature
    category: str
    class_: str
    role: Role
    severity: Severity
    weight: float
    at_s: float | None
    uptime_s: float | None
    survived: bool
    order: int
    known: KnowledgeBase
    ruling: Ruling | None = None
    outlived: bool = False

    @property
    def writer(self) -> Writer:
        return self.match.writer

    @property
    def is_traceback(self) -> bool:
        return bool(self.match.error_type)

    def has(self, tag: str) -> bool:
        """Returns whether the candidate's signature or category has a tag."""
        return self.known.is_of(tag, self.signature.id, self.category)

    def says(self, wording: str) -> bool:
        """Returns whether the candidate's line contains a wording (a named pattern of signatures/rules)."""
        return self.known.says(wording, self.match.text)


def filled(text: str, captures: Mapping[str, str], missing: str = "") -> str:
    """Returns a text template with `{name}` replaced by captured values.

    A field without a value is removed together with the colon or comma before it, or with the square brackets
    around it: `lost[ on {host}]`. Of neighbouring fields, `{name}{why}` or `{name} {why}`, the known ones are
    kept. Inside code, the field's name in capital letters replaces a missing value: `ethtool DEVICE`.
    Elsewhere `missing` replaces it, as in `a process on … died`.
    """

    def known(fields: str) -> str:
        parts = (
            "".join((captures.get(name) or "").strip() for name in FIELD.findall(part))
            for part in fields.split(" ")
        )
        return " ".join(part for part in parts if part)

    def part_of(found: re.Match[str]) -> str:
        if found["code"] is not None:
            return FIELDS.sub(lambda field: known(field[0]) or FIELD.findall(field[0])[0].upper(), found[0])
        if found["maybe"] is not None:
            is_known = all(map(known, FIELDS.findall(found["maybe"])))
            return FIELDS.sub(lambda field: known(field[0]), found["maybe"]) if is_known else ""
        if found["brackets"] is not None:
            return FIELDS.sub(lambda field: known(field[0]), found[0]) if known(found[0]) else ""
        text_of_fields = known(found["fields"])
        if text_of_fields:
            return found["before"] + text_of_fields + found["after"]
        if missing and not found["before"].strip():
            return found["before"] + missing + found["after"]
        is_ascii = found.start() > 0 and text[found.start() - 1].isascii()
        return found["after"] if is_ascii else ""  # Chinese sets no space between its words

    return PARTS.sub(part_of, text)


def class_of(category: str) -> str:
    return kind_of(category)[0]


def kind_of(category: str) -> tuple[str, str]:
    """Returns the class and the default action of a failure category. `xid_79` counts as `xid_N`."""
    return KINDS.get(category) or KINDS["xid_N" if category.startswith("xid_") else "unknown"]


def candidates(
    search: Search,
    known: KnowledgeBase,
    rulings: Mapping[int, Ruling],
) -> list[Candidate]:
    """Returns one candidate for each match with a known signature, in the order of logs and offsets.

    `rulings`: results of rules, by id() of the match.
    """
    ahead_s = _clocks_ahead(search)
    by_source: dict[int, list[Match]] = defaultdict(list)
    for match in search.matches:
        if match.signature in known:
            by_source[match.source].append(match)
    made: list[Candidate] = []
    for source, seen in sorted(by_source.items()):
        seen.sort(key=lambda match: match.offset)
        stamps = [(one.offset, one.writer.stamp_s) for one in seen if one.writer.stamp_s is not None]
        for match in seen:
            at_s = _at(match, stamps)
            made.append(
                _candidate(
                    match,
                    known[match.signature],
                    rulings.get(id(match)),
                    at_s=None if at_s is None else at_s - ahead_s.get(source, 0.0),
                    survived=_survived(match, search.sources[source], known[match.signature]),
                    outlived=_outlived(match, search.sources[source]),
                    order=len(made),
                    known=known,
                )
            )
    return made


def _clocks_ahead(search: Search) -> dict[int, float]:
    """Returns by log how many seconds its clock is ahead of the first log's clock.

    It is computed from lines that several logs contain. Small differences are ignored, because ranks do not
    print the same line at the same moment.
    """
    seen: dict[str, dict[Hashable, float]] = defaultdict(dict)
    for match in search.matches:
        if match.writer.stamp_s is not None:
            key = (match.signature, *(match.captures.get(name) for name in SHARED))
            seen[str(match.source)].setdefault(key, match.writer.stamp_s)
    found = clock_offsets(seen) if len(seen) > 1 else {}
    return {int(name): one.offset_s for name, one in found.items() if abs(one.offset_s) > CLOCK_SKEW_S}


def _candidate(
    match: Match,
    signature: Signature,
    ruling: Ruling | None,
    *,
    at_s: float | None,
    survived: bool,
    outlived: bool,
    order: int,
    known: KnowledgeBase,
) -> Candidate:
    category = ruling.category if ruling else match.category
    said: Ruling | Signature = ruling or signature
    is_of_end = ruling is not None and ruling.of_end
    is_calm = ruling is None and _is_said_calmly(match, signature, known)
    return Candidate(
        match=match,
        signature=signature,
        category=category,
        class_=class_of(category),
        role=said.role,
        severity=_severity(match, said, is_calm=is_calm),
        weight=said.weight,
        at_s=at_s,
        uptime_s=match.writer.uptime_s,
        survived=survived and not is_of_end,
        outlived=outlived and not is_of_end,
        order=order,
        known=known,
        ruling=ruling,
    )


def _severity(match: Match, said: Ruling | Signature, *, is_calm: bool) -> Severity:
    """Returns the severity of a match.

    A signature with severity "warning" becomes an error if its line is the exception that ends a traceback.
    """
    if is_calm:
        return "warning"
    is_raised = match.error_type and not match.error_type.endswith("Warning") and said.role == "cause"
    return "error" if is_raised and said.severity == "warning" and said.weight > BARE else said.severity


def _is_said_calmly(match: Match, signature: Signature, known: KnowledgeBase) -> bool:
    """Returns whether a line states that it is no error, for example by its log level.

    False for signatures that are made for such lines, and for the last line of a traceback, because only the
    traceback's first line has the level.
    """
    return (
        signature.role == "cause"
        and signature.area == "worker"
        and signature.severity in ("fatal", "error")
        and class_of(signature.category)
        != "process"  # many programs log their end by a signal as information
        and not match.error_type
        and (is_calm(match.text, known) or _is_tried_again(match, known))
        and not any(is_calm(line, known) for line in signature.matches)
    )


def _is_tried_again(match: Match, known: KnowledgeBase) -> bool:
    return known.says("tries-again", match.text[:DOES_WITHOUT_CHARS_MAX]) and match.count < TRIES_MANY


def is_calm(text: str, known: KnowledgeBase) -> bool:
    """Returns whether a line is marked as no error, for example by its log level.

    False if a logger repeats, at its own level, an exception that terminated a rank.
    """
    says_so = known.says("calm-level", text[:CALM_CHARS_MAX]) or known.says(
        "does-without", text[:DOES_WITHOUT_CHARS_MAX]
    )
    return says_so and not known.says("uncaught-on-rank", text)


def is_before(one: Candidate, other: Candidate) -> bool | None:
    """Returns whether one candidate was written before the other; None if unknown."""
    if one.match.source == other.match.source:
        return one.match.offset < other.match.offset
    if one.at_s is not None and other.at_s is not None and are_comparable(one.at_s, other.at_s):
        return one.at_s < other.at_s
    if one.uptime_s is not None and other.uptime_s is not None:
        return one.uptime_s < other.uptime_s
    return None


def is_cause(candidate: Candidate) -> bool:
    return candidate.role == "cause" and candidate.severity in ("fatal", "error")


def stands_below(candidate: Candidate, other: Candidate) -> bool:
    return candidate.match.source == other.match.source and candidate.match.offset > other.match.offset


def first_of(candidates: Sequence[Candidate]) -> Candidate:
    """Returns the earliest candidate; if the order is unknown, the one with the highest confidence."""
    return reduce(_earlier, candidates)


def _earlier(one: Candidate, other: Candidate) -> Candidate:
    before = is_before(one, other)
    if before is None:
        before = (-one.weight, one.order) < (-other.weight, other.order)
    return one if before else other


def is_much_later(one: Candidate, other: Candidate) -> bool:
    """Returns whether one candidate came too late to be the cause of the other.

    A margin allows for differences between clocks and for buffered output.
    """
    if one.at_s is not None and other.at_s is not None and are_comparable(one.at_s, other.at_s):
        same_clock = one.match.source == other.match.source
        return one.at_s - other.at_s > (CLOCK_SKEW_S if not same_clock else CLOCK_SKEW_S / 2)
    return False


def _at(match: Match, stamps: Sequence[tuple[int, float | None]]) -> float | None:
    if match.writer.stamp_s is not None or not stamps:
        return match.writer.stamp_s
    before = bisect_right(stamps, match.offset, key=lambda stamp: stamp[0])
    return stamps[max(0, before - 1)][1]


def _survived(match: Match, source: Source, signature: Signature) -> bool:
    """Returns whether training continued after a match: the same log contains later steps.

    A margin allows for output that a rank wrote before it was terminated and that reached the log later, and
    for the one or two steps that other ranks make before they notice an exception. For lines of the job
    itself, later lines with increasing counters count as steps.
    """
    last = source.last_step_offset
    if signature.area in OF_JOBS:
        last = max(last or 0, source.counts_on_offset or 0) or None
    at = max(match.last_offset, match.offset)
    if last is not None and match.error_type and not source.is_finished and last - at <= FAR_BYTES:
        last = source.last_three_steps_offset or source.counts_on_offset
    late_bytes = LATE_BYTES if signature.area == "scheduler" and signature.severity == "fatal" else 0
    return last is not None and at + late_bytes < last


def _outlived(match: Match, source: Source) -> bool:
    few_from = source.last_steps_offset
    return few_from is not None and max(match.last_offset, match.offset) < few_from
