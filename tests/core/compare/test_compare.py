"""Where two runs part, from step records by hand."""

import math

from holdfast.core.compare.compare import compare
from holdfast.core.compare.facts import differences
from holdfast.core.compare.series import RunValues
from holdfast.model.runs.comparison import Fact
from holdfast.model.steps import StepRecord


def run(name, losses, *, first=1, attempt=0, **further):
    values = RunValues(name)
    values.take(
        StepRecord(step, loss=loss, run=attempt, **{key: of(step) for key, of in further.items()})
        for step, loss in enumerate(losses, first)
    )
    return values


def losses(count=40, seed=0):
    return [
        round(2.5 * math.exp(-step / 30) + 0.02 * math.sin(step * 1.7 + seed), 4) for step in range(count)
    ]


def only(found):
    assert len(found.others) == 1
    return found.others[0]


def test_equal_runs_are_equal():
    found = only(compare([run("a", losses()), run("b", losses())]))
    assert (found.step, found.common, found.means) == (None, 40, "")


def test_one_digit_is_a_difference():
    other = losses()
    other[16] += 0.0001
    found = only(compare([run("a", losses()), run("b", other)]))
    assert (found.step, found.means) == (17, "event")
    assert found.parted[0].first == losses()[16]


def test_nan_equals_nan_and_nothing_else():
    bad = [*losses(10), math.nan, math.nan]
    assert only(compare([run("a", bad), run("b", bad)])).step is None
    found = only(compare([run("a", losses(12)), run("b", bad)]))
    assert found.step == 11
    assert any("not a finite number from step 11" in note for note in found.notes)


def test_what_differs_first_in_a_step_says_what_to_look_for():
    rates = run("b", losses(), learning_rate=lambda step: 1e-3 if step < 9 else 2e-3)
    found = only(compare([run("a", losses(), learning_rate=lambda step: 1e-3), rates]))
    assert (found.step, found.means) == (9, "learning-rate")
    norms = run("b", losses(), grad_norm=lambda step: 1.0 if step < 12 else 1.5)
    found = only(compare([run("a", losses(), grad_norm=lambda step: 1.0), norms]))
    assert (found.step, found.means) == (12, "backward")
    data = run("b", losses(), data=lambda step: str(step if step < 5 else step + 1))
    found = only(compare([run("a", losses(), data=lambda step: str(step)), data]))
    assert (found.step, found.means) == (5, "data")


def test_differences_from_the_first_step_point_at_the_start():
    assert only(compare([run("a", losses()), run("b", losses(seed=1))])).means == "start"


def noisy(name, seed, shift=0.0, at=1000):
    values = losses()
    noise = [1e-4 * step * math.sin(step * 3.1 + seed) for step in range(len(values))]
    return run(
        name,
        [v + n + (shift if i + 1 >= at else 0) for i, (v, n) in enumerate(zip(values, noise, strict=True))],
    )


def test_noise_between_repeats_is_no_difference():
    first, repeats = noisy("a", 0), [noisy("a2", 1), noisy("a3", 2)]
    found = compare([first, noisy("b", 3), noisy("c", 4, shift=0.5, at=21)], repeats)
    assert found.others[0].step is None
    assert found.others[1].step == 21
    assert found.others[1].parted[0].noise > 0
    assert any("only larger differences count" in note for note in found.notes)


def test_equal_repeats_make_any_difference_count():
    other = losses()
    other[30] += 0.0001
    found = compare([run("a", losses()), run("b", other)], [run("a2", losses())])
    assert only(found).step == 31


def test_a_resumed_run_counts_with_its_last_values_and_says_so():
    resumed = run("b", [9.0] * 25)
    resumed.take(StepRecord(step, loss=loss, run=1) for step, loss in enumerate(losses(), 1))
    found = only(compare([run("a", losses()), resumed]))
    assert found.step is None
    assert found.run.repeated == 25
    assert any("repeated after a restart" in note for note in found.notes)


def test_runs_of_different_lengths_are_compared_as_far_as_both_go():
    found = only(compare([run("a", losses(40)), run("b", losses(25))]))
    assert (found.step, found.common) == (None, 25)
    assert any("ends at step 25" in note for note in found.notes)


def test_missing_losses_and_empty_runs_are_said():
    gaps = [loss if step % 3 else None for step, loss in enumerate(losses())]
    found = only(compare([run("a", losses()), run("b", gaps)]))
    assert found.step is None
    assert any("have no loss" in note for note in found.notes)
    found = only(compare([run("a", losses()), RunValues("b")]))
    assert (found.common, found.step) == (0, None)
    assert any("no steps were found" in note for note in found.notes)


def test_the_rank_that_differs_first_is_named():
    first, other = run("a", losses()), run("b", losses())
    for rank in range(4):
        mine = losses(seed=rank)
        first.take_rank(rank, (StepRecord(step, loss=loss) for step, loss in enumerate(mine, 1)))
        changed = [
            loss + (0.1 if (step >= 14) + (rank == 2 and step == 13) else 0)
            for step, loss in enumerate(mine, 1)
        ]
        other.take_rank(rank, (StepRecord(step, loss=loss) for step, loss in enumerate(changed, 1)))
    found = only(compare([first, other]))
    assert (found.step, found.ranks, found.means) == (13, (2,), "ranks")


def test_writers_without_rank_may_print_a_step_in_any_order():
    first, other = RunValues("a"), RunValues("b")
    for step in range(1, 10):
        first.take([StepRecord(step, loss=1.0 + step), StepRecord(step, loss=2.0 + step)])
        other.take([StepRecord(step, loss=2.0 + step), StepRecord(step, loss=1.0 + step)])
    assert only(compare([first, other])).step is None


def test_speed_and_since_when():
    def times(slow_from):
        return lambda step: 0.1 if step < slow_from else 0.15

    found = only(compare([run("a", losses(80), time_s=times(1000)), run("b", losses(80), time_s=times(41))]))
    assert found.speed is not None and found.speed.since is not None
    assert abs(found.speed.since - 41) <= 3
    same = only(compare([run("a", losses(80), time_s=times(1000)), run("b", losses(80), time_s=times(1000))]))
    assert same.speed is not None and same.speed.since is None


def fact(name, value, kind="setting", **further):
    return Fact(kind=kind, name=name, value=value, **further)


def test_facts_of_the_start():
    first = [
        fact("seed", "1"),
        fact("lr", "0.1"),
        fact("nccl", "2.20", "version"),
        fact("MASTER_PORT", "29500", "environment"),
    ]
    other = [
        fact("seed", "2"),
        fact("lr", "0.1"),
        fact("nccl", "2.21", "version"),
        fact("MASTER_PORT", "31234", "environment"),
    ]
    assert [(one.kind, one.name) for one in differences(first, other)] == [
        ("seed", "seed"),
        ("version", "nccl"),
    ]


def test_a_fact_of_one_journal_beside_a_mere_log_is_no_difference():
    assert differences([fact("holdfast shim", "True", is_recorded=True)], [fact("lr", "0.1")]) == ()
