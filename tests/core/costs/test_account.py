"""The classes of a job's wall clock: each second is in one, and they add up, whatever the journal holds."""

from hypothesis import given
from hypothesis import strategies as st

from core.costs.journal_kit import happenings, journal_of, killed, start, steps, submitted
from holdfast.core.costs.account import Account, with_steps
from holdfast.core.costs.classes import NAMES
from holdfast.core.costs.fleet import bill, price_of
from holdfast.core.costs.settings import merged, settings_of
from holdfast.core.job.decide import decide
from holdfast.model import events as ev
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.model.steps import FirstLast, Phase, Slowdown, StepReport

POLICY = Policy(max_restarts=8, unconditional_restart=True, hang_restart=True)


def account_of(events, policy=POLICY, since_s=None):
    account, state = Account(since_s), State()
    for event in events:
        decision = decide(state, event, policy)
        account.hear(event, decision)
        state = decision.state
    return account


def cost_of(events, policy=POLICY, since_s=None, gpus=0):
    return account_of(events, policy, since_s).cost(gpus, "given" if gpus else "")


KILLED = [*submitted(), *steps(10, 1, 1, 91), *killed(101, 1), *start(110, 2), *steps(131, 2, 72, 120)]


def test_a_killed_rank_costs_its_recovery_and_the_steps_since_the_checkpoint():
    cost = cost_of(KILLED, gpus=8)
    assert cost.by_class == {
        "computing": 120.0,
        "repeated-steps": 19.0,
        "diagnosis": 2.0,
        "stopping": 4.0,
        "placing": 3.0,
        "starting": 31.0,
    }
    assert cost.wall_s == sum(cost.by_class.values()) == 179.0
    assert cost.gpu_hours == 179.0 * 8 / 3600
    (incident,) = cost.incidents
    assert (incident.number, incident.rung, incident.hang) == (1, "reschedule-unconditional", "")


def test_a_restart_that_a_person_asked_for_has_its_repeated_steps_too():
    asked = ev.RestartRequested(at_s=101.0, attempt=1, by="anna")
    stopped = ev.AttemptStopped(at_s=103.0, attempt=1)
    events = [*submitted(), *steps(10, 1, 1, 91), asked, stopped, *start(110, 2), *steps(131, 2, 72, 120)]
    cost = cost_of(events)
    assert cost.by_class["repeated-steps"] == 19.0
    assert abs(sum(cost.by_class.values()) - cost.wall_s) < 1e-9
    assert cost.incidents == ()


def test_only_the_time_since_then_is_counted_and_it_adds_up():
    whole, late = cost_of(KILLED), cost_of(KILLED, since_s=135.0)
    assert (late.since_s, late.until_s) == (135.0, 179.0)
    assert abs(sum(late.by_class.values()) - 44.0) < 1e-9
    assert late.by_class["repeated-steps"] == 15.0
    assert whole.wall_s > late.wall_s
    assert cost_of(KILLED, since_s=1e9).wall_s == 0.0


def test_pauses_and_slow_steps_are_taken_from_the_time_with_steps():
    report = StepReport(
        iteration_lines=120,
        last=FirstLast(step=120),
        median_step_time_s=1.0,
        phases=(Phase(kind="checkpoint", first_step=10, last_step=120, count=6, median_s=4.0),),
        slowdowns=(
            Slowdown(
                first_step=101, last_step=None, before_s=1.0, after_s=1.2, ratio=1.2, kind="lasting",
                cost_gpu_hours=None, explanation="",
            ),
        ),
    )  # fmt: skip
    cost = with_steps(cost_of(KILLED), report)
    assert cost.by_class["checkpointing"] == 18.0
    assert abs(cost.by_class["slow-steps"] - 4.0) < 1e-9
    assert abs(cost.by_class["computing"] - 98.0) < 1e-9
    assert abs(sum(cost.by_class.values()) - cost.wall_s) < 1e-9
    assert list(cost.by_class) == [name for name in NAMES if name in cost.by_class]


def test_more_pauses_than_time_are_scaled_down_and_said():
    report = StepReport(
        iteration_lines=9,
        median_step_time_s=1.0,
        phases=(Phase(kind="checkpoint", first_step=1, last_step=9, count=9, median_s=100.0),),
    )
    cost = with_steps(cost_of(KILLED), report)
    assert cost.notes and cost.by_class["computing"] > 0.0
    assert abs(sum(cost.by_class.values()) - cost.wall_s) < 1e-9


def test_a_journal_without_steps_is_one_long_start():
    ended = ev.WorkerExited(at_s=100.0, attempt=1, worker=0, code=0)
    cost = cost_of([*submitted(), ended])
    assert not cost.has_steps and cost.by_class == {"starting": 100.0}


def test_an_empty_journal_costs_nothing():
    cost = cost_of([])
    assert (cost.wall_s, cost.by_class, cost.gpu_hours) == (0.0, {}, 0.0)
    assert bill([cost]).goodput is None


def test_a_long_hang_timeout_is_the_setting_that_cost_most():
    policy = Policy(max_restarts=8, hang_restart=True, hang_timeout_s=1800.0)
    hang = ev.HangFound(at_s=1850.0, attempt=1, hang="quiet", culprits=(0,), reason="it stands")
    events = [
        *submitted(),
        *steps(10, 1, 1, 41),
        hang,
        *killed(1850, 1)[1:],
        *start(1860, 2),
        *steps(1900, 2, 41, 50),
    ]
    rows = settings_of(cost_of(events, policy, gpus=80), policy)
    assert (rows[0].setting, rows[0].value, rows[0].other) == ("hang-timeout", "30 min", "10 s")
    assert (rows[0].gpu_hours, rows[0].incidents) == (40.0, 1)
    assert abs(rows[0].other_gpu_hours - 80 * 10 / 3600) < 1e-9
    (first, *_) = merged([*rows, *rows])
    assert first.gpu_hours == 80.0


@given(happenings)
def test_whatever_happens_each_second_is_in_one_class(what):
    cost = cost_of(journal_of(what))
    assert abs(sum(cost.by_class.values()) - cost.wall_s) < 1e-6
    assert all(seconds >= 0.0 for seconds in cost.by_class.values())


@given(happenings, st.floats(0, 5_000))
def test_a_part_of_the_time_adds_up_too(what, since_s):
    cost = cost_of(journal_of(what), since_s=since_s)
    assert abs(sum(cost.by_class.values()) - cost.wall_s) < 1e-6


def test_a_fleet_is_the_sum_of_its_jobs_in_gpu_hours_and_money():
    costs = [cost_of(KILLED, gpus=8), cost_of(KILLED, gpus=16)]
    made = bill(costs, price_of("$2.50/h"))
    assert made.jobs == 2 and made.currency == "$"
    assert abs(made.gpu_hours - 179.0 * 24 / 3600) < 1e-9
    assert abs(made.money - 2.5 * made.gpu_hours) < 1e-9
    assert abs(sum(one.gpu_hours for one in made.classes) - made.gpu_hours) < 1e-9
    assert abs(made.goodput - 120 / 179) < 1e-9
