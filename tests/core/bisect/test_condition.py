"""Which runs a condition calls bad, and when that is decided."""

import math

import pytest

from holdfast.core.bisect.condition import BadCondition, Shown, judge, parsed


def shown(losses=(), *, exit=None, over=False, timed_out=False, step_s=None, seconds=1.0):
    values = {"loss": dict(enumerate(losses, 1))}
    if step_s:
        values["step_s"] = dict(enumerate(step_s, 1))
    return Shown(
        values=values,
        last_step=len(losses) or None,
        exit=exit,
        is_over=over or exit is not None or timed_out,
        timed_out=timed_out,
        seconds=seconds,
    )


@pytest.mark.parametrize(
    ("text", "run", "judgement"),
    [
        ("exit!=0", shown(), None),
        ("exit!=0", shown(exit=1), "bad"),
        ("exit!=0", shown(exit=0), "good"),
        ("exit==-9", shown(exit=-9), "bad"),
        ("exit!=0", shown(timed_out=True), "unknown"),
        ("timeout", shown(timed_out=True), "bad"),
        ("timeout", shown(exit=0), "good"),
        ("loss>2.3@3", shown([2.0, 2.1]), None),
        ("loss>2.3@3", shown([2.0, 2.1, 2.4]), "bad"),
        ("loss>2.3@3", shown([2.0, 2.1, 2.2]), "good"),
        ("loss>2.3@3", shown([2.0], exit=1), "unknown"),
        ("loss > 2.3 @ 2-4", shown([9, 2.0, 9.0, 2.1]), "good"),
        ("loss>2.3", shown([2.0, 2.5], exit=0), "bad"),
        ("loss>2.3", shown([2.0, 2.5]), None),
        ("loss>2.3", shown([2.0, 2.5], exit=1), "unknown"),
        ("nan", shown([2.0, math.nan]), "bad"),
        ("nan", shown([2.0, 1.0]), None),
        ("nan", shown([2.0, 1.0], exit=0), "good"),
        ("nan", shown(exit=0), "unknown"),
        ("step_s>0.2", shown([1.0] * 10, exit=0, step_s=[9.0, 9.0] + [0.1] * 8), "good"),
        ("step_s>0.2", shown([1.0] * 10, exit=0, step_s=[0.3] * 10), "bad"),
        ("steps<5", shown([1.0] * 4, timed_out=True), "bad"),
        ("seconds>=1", shown(exit=0), "bad"),
        ("exit!=0 or loss>2@1", shown([3.0]), "bad"),
        ("exit!=0 or loss>2@1", shown([1.0]), None),
        ("exit!=0 or loss>2@1", shown([1.0], exit=0), "good"),
    ],
)
def test_judgements(text, run, judgement):
    found = judge(parsed(text), run)
    assert (found.judgement if found is not None else None) == judgement


@pytest.mark.parametrize(
    "text", ["", "loss", "loss>x", "loss=2", "exit!=0@5", "loss>2@9-3", "speed>1", "nan@3"]
)
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(BadCondition):
        parsed(text)
