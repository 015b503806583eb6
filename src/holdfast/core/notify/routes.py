"""Decides which channels a notice goes to: rules by event, severity, job, label, time of day. Pure."""

from fnmatch import fnmatchcase

from msgspec import Struct

from holdfast.model.documents.notices import SEVERITIES, Notice, NoticeEvent, Severity


class Quiet(Struct, frozen=True, kw_only=True):
    """Hours in which only what is at least `passes` is sent. `start_min`, `end_min`: minutes of the day; a start after the
    end is over midnight."""

    start_min: int
    end_min: int
    passes: Severity = "critical"
    days: tuple[int, ...] = ()  # 0: Monday; none: every day


class OnCall(Struct, frozen=True, kw_only=True):
    """A channel that is used only in these hours, which are given as in Quiet."""

    channel: str
    start_min: int
    end_min: int
    days: tuple[int, ...] = ()


class Rule(Struct, frozen=True, kw_only=True):
    """Empty fields fit everything. `jobs`: patterns as of a shell. `labels`: all have to fit; values are patterns."""

    channels: tuple[str, ...] = ()
    on_call: tuple[OnCall, ...] = ()
    events: tuple[NoticeEvent, ...] = ()
    not_events: tuple[NoticeEvent, ...] = ()
    severity: Severity = "info"
    jobs: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    quiet: tuple[Quiet, ...] = ()
    is_last: bool = False


class Moment(Struct, frozen=True, kw_only=True):
    """The time of a notice where the rules are at home. `weekday`: 0 is Monday; `minute`: of the day."""

    weekday: int
    minute: int


def channels_of(notice: Notice, rules: tuple[Rule, ...], now: Moment) -> tuple[str, ...]:
    """Each channel once, in the order of the rules. A rule that fits and is last ends the search."""
    found: list[str] = []
    for rule in rules:
        if not _fits(notice, rule):
            continue
        if not any(_is_held(notice, quiet, now) for quiet in rule.quiet):
            found += rule.channels
            found += [
                one.channel for one in rule.on_call if _within(now, one.start_min, one.end_min, one.days)
            ]
        if rule.is_last:
            break
    return tuple(dict.fromkeys(found))


def _fits(notice: Notice, rule: Rule) -> bool:
    return (
        (not rule.events or notice.event in rule.events)
        and notice.event not in rule.not_events
        and _rank(notice.severity) >= _rank(rule.severity)
        and (not rule.jobs or any(fnmatchcase(notice.job, pattern) for pattern in rule.jobs))
        and (not rule.categories or any(fnmatchcase(notice.category, one) for one in rule.categories))
        and all(fnmatchcase(notice.labels.get(key, ""), value) for key, value in rule.labels.items())
    )


def _is_held(notice: Notice, quiet: Quiet, now: Moment) -> bool:
    return _rank(notice.severity) < _rank(quiet.passes) and _within(
        now, quiet.start_min, quiet.end_min, quiet.days
    )


def _within(now: Moment, start_min: int, end_min: int, days: tuple[int, ...]) -> bool:
    """The hours after midnight of a span over midnight belong to the day before."""
    if start_min <= end_min:
        return start_min <= now.minute < end_min and (not days or now.weekday in days)
    if now.minute >= start_min:
        return not days or now.weekday in days
    return now.minute < end_min and (not days or (now.weekday - 1) % 7 in days)


def _rank(severity: Severity) -> int:
    return SEVERITIES.index(severity)
