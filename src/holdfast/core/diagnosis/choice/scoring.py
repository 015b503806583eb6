"""Weighs rivals: causes of which none explains another. Pure.

Each has points, from 0 to 100 and a little more: how sure its line is, plus what the table of weights adds or takes
(`[[weight]]` in signatures/rules/choice.toml): how grave its kind is, and how long before the end of the job it was.
Of the rivals within MARGIN of the best, the earliest is the root cause.
"""

from collections.abc import Collection, Sequence

from holdfast.core.clock_offsets import are_comparable
from holdfast.core.diagnosis.candidates import Candidate, stands_below
from holdfast.model.rules import Weight
from holdfast.model.signatures import EXCEPTION

MARGIN = 15  # points; less is no reason to prefer a later rival
SURE = 75  # points of a signature that nothing vague displaces, however early
LIKELY = 50
VAGUE = 60  # points of an exception of which nothing but its own words is known
DOUBTFUL = 30  # points of a line that may be anything
LIMIT_BYTES = 16 << 10  # of a log, from an exception to the time limit of a job that hung because of it


def contenders(rivals: Sequence[Candidate], ends: Sequence[Candidate]) -> list[Candidate]:
    """Returns the rivals that no other one outweighs; never empty where rivals are given.

    `ends`: lines about the end of processes of the job: launchers' reports, and what ranks died of.
    """
    points = {id(one): sureness(one) + strength(one, rivals, ends) for one in rivals}
    best = max(points.values(), default=0)
    sure = [one for one in rivals if sureness(one) >= SURE]
    return [
        one for one in rivals if points[id(one)] > best - MARGIN or sure and _raised_before_limit(one, sure)
    ]


def doubts(rivals: Sequence[Candidate], ends: Sequence[Candidate]) -> list[Candidate]:
    """Returns the rivals that cast doubt on the root cause: all but those of too little strength, however sure."""
    strengths = {id(one): strength(one, rivals, ends) for one in rivals}
    best = max(strengths.values(), default=0)
    return [one for one in rivals if strengths[id(one)] > best - MARGIN]


def sureness(one: Candidate) -> int:
    """Returns the points for the weight of a signature: how sure the category is by this line alone."""
    points = round(100 * one.weight)
    is_bare = one.signature.id == EXCEPTION and points <= VAGUE
    return DOUBTFUL if is_bare or points < LIKELY else min(points, SURE)


def strength(one: Candidate, rivals: Sequence[Candidate], ends: Sequence[Candidate]) -> int:
    """Returns the points that the table of weights adds or takes."""
    to_end_s = seconds_to_end(one, rivals, ends)
    areas = {rival.signature.area for rival in rivals if rival.match.source == one.match.source}
    return sum(row.points for row in one.known.rules.weight if _applies(row, one, areas, to_end_s))


def seconds_to_end(one: Candidate, rivals: Sequence[Candidate], ends: Sequence[Candidate]) -> float | None:
    """Returns how long before the end of the job a line was written; None if unknown.

    The end is the last end of a process; without one the last rival.
    """
    for group in (ends, rivals):
        after = [seconds for end in group if (seconds := _seconds_before(one, end)) is not None]
        if after:
            return max(after)
    return None


def _seconds_before(one: Candidate, later: Candidate) -> float | None:
    if one.at_s is not None and later.at_s is not None and are_comparable(one.at_s, later.at_s):
        return later.at_s - one.at_s
    if one.uptime_s is not None and later.uptime_s is not None:
        return later.uptime_s - one.uptime_s
    return None


def _applies(row: Weight, one: Candidate, areas: Collection[str], to_end_s: float | None) -> bool:
    if row.before_s and (to_end_s is None or to_end_s < row.before_s):
        return False
    if row.log_area and row.log_area not in areas:
        return False
    is_of_class = one.class_ in row.classes and row.severity in ("", one.severity)
    is_any = not row.classes and not row.tags
    return is_any or is_of_class or any(one.has(tag) for tag in row.tags)


def _raised_before_limit(one: Candidate, sure: Sequence[Candidate]) -> bool:
    """An exception after which the log ends but for the time limit: the other ranks waited for this one."""
    return one.is_traceback and all(
        end.has("ends-a-hang")
        and stands_below(end, one)
        and end.match.offset - one.match.last_offset < LIMIT_BYTES
        for end in sure
    )
