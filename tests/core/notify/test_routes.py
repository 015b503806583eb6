"""Rules: who gets what, and when."""

import pytest

from holdfast.core.notify.routes import Moment, OnCall, Quiet, Rule, channels_of
from notices_kit import made

NOON = Moment(weekday=2, minute=12 * 60)
NIGHT = Quiet(start_min=22 * 60, end_min=8 * 60)


def at(weekday, hour, minute=0):
    return Moment(weekday=weekday, minute=60 * hour + minute)


def to(notice, *rules, now=NOON):
    return channels_of(notice, rules, now)


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        (Rule(), True),
        (Rule(events=("incident",)), True),
        (Rule(events=("verdict",)), False),
        (Rule(not_events=("incident",)), False),
        (Rule(severity="warning"), True),
        (Rule(severity="critical"), False),
        (Rule(jobs=("ll*",)), True),
        (Rule(jobs=("gpt*", "llama")), True),
        (Rule(jobs=("gpt*",)), False),
        (Rule(categories=("gpu_*",)), True),
        (Rule(categories=("host_oom",)), False),
        (Rule(labels={"team": "vision"}), True),
        (Rule(labels={"team": "vi*", "stage": "prod"}), False),
    ],
)
def test_a_rule_fits_what_it_names(rule, fits):
    notice = made(category="gpu_oom", labels={"team": "vision"})
    named = Rule(
        channels=("a",),
        **{name: getattr(rule, name) for name in rule.__struct_fields__ if name != "channels"},
    )
    assert to(notice, named) == (("a",) if fits else ())


def test_each_channel_once_and_a_last_rule_ends_the_search():
    rules = (Rule(channels=("a", "b")), Rule(channels=("b", "c"), is_last=True), Rule(channels=("d",)))
    assert to(made(), *rules) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("now", "is_quiet"),
    [
        (at(2, 21, 59), False),
        (at(2, 22), True),
        (at(2, 23, 59), True),
        (at(3, 0), True),
        (at(3, 7, 59), True),
        (at(3, 8), False),
    ],
)
def test_quiet_hours_over_midnight(now, is_quiet):
    rule = Rule(channels=("a",), quiet=(NIGHT,))
    assert to(made(), rule, now=now) == (() if is_quiet else ("a",))
    assert to(made(severity="critical"), rule, now=now) == ("a",)


def test_the_hours_after_midnight_belong_to_the_day_before():
    rule = Rule(channels=("a",), quiet=(Quiet(start_min=22 * 60, end_min=8 * 60, days=(4,)),))  # friday night
    assert to(made(), rule, now=at(4, 23)) == ()
    assert to(made(), rule, now=at(5, 7)) == ()
    assert to(made(), rule, now=at(4, 7)) == ("a",)
    assert to(made(), rule, now=at(5, 23)) == ("a",)
    sunday = Rule(channels=("a",), quiet=(Quiet(start_min=22 * 60, end_min=8 * 60, days=(6,)),))
    assert to(made(), sunday, now=at(0, 7)) == ()


def test_quiet_hours_within_a_day():
    rule = Rule(
        channels=("a",), quiet=(Quiet(start_min=12 * 60, end_min=13 * 60, days=(0, 1, 2), passes="warning"),)
    )
    assert to(made(severity="info"), rule, now=at(2, 12, 30)) == ()
    assert to(made(), rule, now=at(2, 12, 30)) == ("a",)
    assert to(made(severity="info"), rule, now=at(3, 12, 30)) == ("a",)


def test_who_is_on_call_gets_it_in_these_hours():
    rule = Rule(
        channels=("all",),
        on_call=(
            OnCall(channel="europe", start_min=8 * 60, end_min=20 * 60, days=(0, 1, 2, 3, 4)),
            OnCall(channel="asia", start_min=20 * 60, end_min=8 * 60),
        ),
    )
    assert to(made(), rule, now=at(1, 9)) == ("all", "europe")
    assert to(made(), rule, now=at(1, 21)) == ("all", "asia")
    assert to(made(), rule, now=at(6, 9)) == ("all",)
