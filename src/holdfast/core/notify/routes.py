"""Decides which channels a notice goes to: rules by event, severity, job, label, time of day. Pure."""

from datetime import datetime, time, tzinfo
from fnmatch import fnmatchcase

from msgspec import Struct

from holdfast.model.documents.notices import SEVERITIES, Notice, NoticeEvent, Severity


class Quiet(Struct, frozen=True, kw_only=True):
    """Hours in which only what is at least `passes` is sent. `start` after `end`: over midnight. Local to `zone`."""

    start: time
    end: time
    passes: Severity = "critical"
    days: tuple[int, ...] = ()  # 0: Monday; none: every day


class OnCall(Struct, frozen=True, kw_only=True):
    """A channel that is used only in these hours. `start` after `end`: over midnight."""

    channel: str
    start: time
    end: time
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


def channels_of(notice: Notice, rules: tuple[Rule, ...], zone: tzinfo) -> tuple[str, ...]:
    """Each channel once, in the order of the rules. A rule that fits and is last ends the search."""
    found: list[str] = []
    now = datetime.fromtimestamp(notice.at_s, zone)
    for rule in rules:
        if not _fits(notice, rule):
            continue
        if not any(_is_held(notice, quiet, now) for quiet in rule.quiet):
            found += rule.channels
            found += [one.channel for one in rule.on_call if _within(now, one.start, one.end, one.days)]
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


def _is_held(notice: Notice, quiet: Quiet, now: datetime) -> bool:
    return _rank(notice.severity) < _rank(quiet.passes) and _within(now, quiet.start, quiet.end, quiet.days)


def _within(now: datetime, start: time, end: time, days: tuple[int, ...]) -> bool:
    """The hours after midnight of a span over midnight belong to the day before."""
    at = now.time()
    if start <= end:
        return start <= at < end and (not days or now.weekday() in days)
    if at >= start:
        return not days or now.weekday() in days
    return at < end and (not days or (now.weekday() - 1) % 7 in days)


def _rank(severity: Severity) -> int:
    return SEVERITIES.index(severity)
