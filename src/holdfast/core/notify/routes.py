"""Selects the channels for a notice, by rules on event, severity, job, label and time of day. Pure."""

from fnmatch import fnmatchcase

from msgspec import Struct

from holdfast.model.documents.notices import SEVERITIES, Notice, NoticeEvent, Severity


class Quiet(Struct, frozen=True, kw_only=True):
    """Quiet hours: only notices with at least the severity `passes` are sent.

    `start_min`, `end_min`: minutes after midnight; if the start is later than the end, the span includes
    midnight.
    """

    start_min: int
    end_min: int
    passes: Severity = "critical"
    days: tuple[int, ...] = ()  # 0: Monday; none: every day


class OnCall(Struct, frozen=True, kw_only=True):
    """A channel that is used only during the given hours; their form is that of Quiet."""

    channel: str
    start_min: int
    end_min: int
    days: tuple[int, ...] = ()


class Rule(Struct, frozen=True, kw_only=True):
    """A routing rule: the conditions for a notice, and the channels that it is sent to.

    An empty condition matches everything.

    `jobs`: shell-style patterns of names. `labels`: all must match; the values are patterns. `is_last`: skip
    later rules.
    """

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
    """The local time of a notice in the time zone of the rules.

    `weekday`: 0 is Monday; `minute`: minutes after midnight.
    """

    weekday: int
    minute: int


def channels_of(notice: Notice, rules: tuple[Rule, ...], now: Moment) -> tuple[str, ...]:
    """Returns the channels that a notice goes to, each once, in the order of the matching rules.

    A matching rule with `is_last` ends the search.
    """
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
    """Returns whether a time is within daily hours.

    After midnight, a span over midnight still counts as the day before.
    """
    if start_min <= end_min:
        return start_min <= now.minute < end_min and (not days or now.weekday in days)
    if now.minute >= start_min:
        return not days or now.weekday in days
    return now.minute < end_min and (not days or (now.weekday - 1) % 7 in days)


def _rank(severity: Severity) -> int:
    return SEVERITIES.index(severity)
