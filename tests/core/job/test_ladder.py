"""The ladder, rung by rung: which one is chosen for what, what it costs, and when it steps up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.job import ladder
from holdfast.core.job.decide import decide
from holdfast.core.job.decision import Decision
from holdfast.model import events as ev
from holdfast.model import orders as od
from holdfast.model import state as ms
from holdfast.model.policy import Policy
from holdfast.model.verdicts import UNKNOWN, Verdict

DAY_S = 86_400.0
DEVICE = ms.Device(node="n0", device="3", code="80E01801")
WORKERS = tuple(ms.Worker(node=f"n{number}", schedule_cnt=1, proc_start_cnt=1) for number in range(3))
FULL = Policy(max_restarts=4, unconditional_restart=True, hang_restart=True, replace_workers=2)

HEALS = ms.DeviceFault(device=DEVICE, steps_up=False)
STAYS = ms.DeviceFault(device=DEVICE, steps_up=True)
USERS = ms.DeviceFault(device=replace(DEVICE, code="80C98002"), steps_up=True, user_caused=True)
LOST = ms.NodeFault(node="n1", reason="gone")
HUNG = ms.HangFault(hang="quiet", culprits=(1,), reason="no step for 60 s")
EXIT = ms.ExitFault(worker=0, code=1, rank=0)
NOT_STARTED = ms.StartFault(worker=0, code=127, reason="train: not found")


def job(*faults: ms.AnyFault, **facts: object) -> ms.Job:
    of_incident = {key: facts.pop(key) for key in list(facts) if key in ms.Incident.__struct_fields__}
    incident = ms.Incident(number=1, attempt=1, since_s=0.0, faults=faults, **of_incident)
    return ms.Job(workers=WORKERS, attempt=1, alive=True, incident=incident, incidents=1, step=50, **facts)


TABLE = [
    # faults, policy, rung
    ((HEALS,), Policy(max_restarts=1), "in-place"),
    ((HEALS,), Policy(replace_workers=1), "in-place"),
    ((HEALS,), Policy(), "fail"),
    ((STAYS,), Policy(max_restarts=1), "reschedule-isolated"),
    ((STAYS,), Policy(max_restarts=1, replace_workers=1), "replace-worker"),
    ((STAYS,), Policy(), "fail"),
    ((USERS,), Policy(max_restarts=1, replace_workers=1), "reschedule-unconditional"),
    ((USERS,), Policy(replace_workers=1), "fail"),
    ((LOST,), Policy(max_restarts=1), "reschedule-isolated"),
    ((LOST,), Policy(replace_workers=1), "replace-worker"),
    ((LOST,), Policy(unconditional_restart=True, hang_restart=True), "fail"),
    ((HUNG,), Policy(hang_restart=True), "hang-restart"),
    ((HUNG,), Policy(max_restarts=1, unconditional_restart=True), "notify"),
    ((HUNG, LOST), FULL, "replace-worker"),
    ((HUNG, HEALS), FULL, "in-place"),
    ((HUNG, EXIT), Policy(hang_restart=True), "hang-restart"),
    ((HUNG, EXIT), Policy(max_restarts=1, unconditional_restart=True), "reschedule-unconditional"),
    ((HUNG, EXIT), Policy(max_restarts=1), "fail"),
    ((EXIT,), Policy(max_restarts=1, unconditional_restart=True), "reschedule-unconditional"),
    ((EXIT,), Policy(max_restarts=1), "fail"),
    ((EXIT,), Policy(unconditional_restart=True), "fail"),
    ((EXIT, LOST), Policy(max_restarts=1), "reschedule-isolated"),
    ((EXIT, HEALS), Policy(max_restarts=1), "in-place"),
    ((NOT_STARTED,), FULL, "fail"),
]  # fmt: skip


@pytest.mark.parametrize(("faults", "policy", "rung"), TABLE)
def test_the_rung_for_a_fault(faults, policy, rung):
    assert ladder.choose(job(*faults), policy).choice.rung == rung


def test_an_environment_fault_is_restarted_without_being_asked_to():
    chosen = ladder.choose(job(EXIT, environment=True), Policy(max_restarts=1))
    assert chosen.choice.rung == "reschedule-unconditional"


PRICES = [
    # faults, restarts, hardware_reschedules, replacements, hangs_in_a_row
    ((HEALS,), 0, 0, 0, 0),
    ((HUNG,), 0, 0, 0, 1),
    ((LOST,), 0, 0, 1, 0),
    ((EXIT,), 1, 0, 0, 0),
    ((USERS,), 1, 0, 0, 0),
]


@pytest.mark.parametrize(("faults", "restarts", "hardware", "replacements", "hangs"), PRICES)
def test_what_a_rung_costs(faults, restarts, hardware, replacements, hangs):
    paid = ladder.choose(job(*faults), FULL).job
    got = (paid.restarts, paid.hardware_reschedules, paid.replacements, paid.hangs_in_a_row)
    assert got == (restarts, hardware, replacements, hangs)


def test_a_reschedule_for_hardware_counts_in_both_columns():
    paid = ladder.choose(job(LOST), Policy(max_restarts=1)).job
    assert (paid.restarts, paid.hardware_reschedules, paid.to_isolate) == (1, 1, ("n1",))


def test_only_workers_on_bad_nodes_are_replaced():
    paid = ladder.choose(job(LOST), FULL).job
    assert [worker.node for worker in paid.workers] == ["n0", None, "n2"]
    two = ladder.choose(job(LOST, STAYS), FULL)
    assert [worker.node for worker in two.job.workers] == [None, None, "n2"]
    assert (two.job.replacements, set(two.choice.isolate)) == (2, {"n0", "n1"})


def test_when_replacements_do_not_reach_for_all_bad_nodes_the_job_is_rescheduled():
    chosen = ladder.choose(job(LOST, STAYS, replacements=1), FULL)
    assert (chosen.choice.rung, chosen.job.replacements) == ("reschedule-isolated", 1)


@pytest.mark.parametrize("restarts", [4, 5])
def test_spent_restarts_fail_the_job(restarts):
    chosen = ladder.choose(job(EXIT, restarts=restarts), FULL)
    assert chosen.choice.rung == "fail"
    assert "all 4 restarts are used up" in chosen.choice.why


def test_one_incident_pays_once():
    first = ladder.choose(job(LOST), Policy(max_restarts=1)).job
    placed = replace(
        first, workers=WORKERS, incident=replace(first.incident, faults=(ms.NodeFault("n2", "gone"),))
    )
    again = ladder.choose(placed, Policy(max_restarts=1))
    assert (again.choice.rung, again.job.restarts) == ("reschedule-isolated", 1)
    assert [worker.node for worker in again.job.workers] == ["n0", "n1", None]


def test_three_hang_restarts_in_a_row_then_the_job_fails():
    rungs = [ladder.choose(job(HUNG, hangs_in_a_row=row), FULL).choice.rung for row in range(5)]
    assert rungs == ["hang-restart"] * 3 + ["fail"] * 2


def test_the_fourth_of_the_same_problem_is_the_codes_fault():
    def rung(row: int, problem: str) -> str:
        known = job(EXIT, problem="p").incident
        facts = replace(job(EXIT, problems_in_a_row=row), problem=problem, incident=known)
        return ladder.choose(facts, FULL).choice.rung

    assert [rung(row, "p") for row in range(5)] == ["reschedule-unconditional"] * 3 + ["fail"] * 2
    assert rung(3, "another") == "reschedule-unconditional"


@pytest.mark.parametrize("fault", [HEALS, LOST])
def test_a_node_or_device_fault_in_between_begins_the_rows_anew(fault):
    paid = ladder.choose(replace(job(fault, problems_in_a_row=3, hangs_in_a_row=2), problem="p"), FULL).job
    assert (paid.problems_in_a_row, paid.problem, paid.hangs_in_a_row) == (0, "", 0)


def test_the_same_bug_at_the_same_step_fails_fast():
    facts = replace(
        job(EXIT, user_code=True, environment=True), problem="p", problems_in_a_row=1, problem_step=50
    )
    facts = replace(facts, incident=replace(facts.incident, problem="p"))
    policy = Policy(max_restarts=9)
    assert ladder.choose(facts, policy).choice.rung == "fail"
    assert ladder.choose(replace(facts, problem_step=40), policy).choice.rung == "reschedule-unconditional"
    assert ladder.choose(facts, FULL).choice.rung == "reschedule-unconditional"


RAISED = "ValueError at train.py:88: bad sample #"
OF_THE_CODE = Verdict(
    category="data_error",
    class_="training",
    title="rank 1 raised it",
    confidence=0.8,
    action="fix_data",
    raised=RAISED,
)
FAILS_FAST = replace(FULL, same_error_fails=True)


def again(verdict: Verdict = OF_THE_CODE, **facts: object) -> ms.Job:
    """The second failure, as the first one left it: at step 50 both times, the boot check passed."""
    known: dict[str, object] = {
        "error": RAISED,
        "problem": "p",
        "problems_in_a_row": 1,
        "problem_step": 50,
        "boot": ms.BootChecked(status="pass"),
    }
    now = job(EXIT, verdict=verdict)
    now = replace(now, incident=replace(now.incident, problem="p"))
    return replace(now, **{**known, **facts})


@pytest.mark.parametrize(
    ("facts", "rung"),
    [
        ({}, "fail"),
        ({"boot": ms.BootChecked(status="warn")}, "fail"),
        ({"problem_step": 49}, "fail"),  # another rank had printed its step, or not yet
        ({"problem_step": None, "step": None}, "fail"),  # before the first step
        ({"problem_step": 40}, "reschedule-unconditional"),
        ({"problem_step": None}, "reschedule-unconditional"),
        ({"error": "ValueError at train.py:90: bad sample #"}, "reschedule-unconditional"),
        ({"error": ""}, "reschedule-unconditional"),
        ({"boot": None}, "reschedule-unconditional"),  # nobody looked at the nodes
        ({"boot": ms.BootChecked(status="fail")}, "reschedule-unconditional"),
    ],
)
def test_the_same_exception_at_the_same_place_and_step_fails_fast(facts, rung):
    assert ladder.choose(again(**facts), FAILS_FAST).choice.rung == rung


def test_it_says_where_and_when():
    why = ladder.choose(again(), FAILS_FAST).choice.why
    assert why == (
        "rank 1 raised it: the same error twice at train.py:88, at step 50, and the checks found nothing: "
        "another start would fail the same way"
    )
    assert (
        "before the first step" in ladder.choose(again(problem_step=None, step=None), FAILS_FAST).choice.why
    )


def test_unconditional_restarts_that_were_asked_for_keep_their_count():
    assert ladder.choose(again(), FULL).choice.rung == "reschedule-unconditional"


@pytest.mark.parametrize(
    "verdict",
    [
        replace(OF_THE_CODE, category="filesystem_error", class_="environment", action="fix_env"),
        replace(OF_THE_CODE, action="fix_env"),  # a service that does not answer
        replace(OF_THE_CODE, category="host_oom", class_="memory", action="reduce_memory"),
        replace(OF_THE_CODE, category="nccl_network_error", class_="communication", action="fix_network"),
        replace(OF_THE_CODE, raised=""),
    ],
)
def test_what_another_start_can_mend_is_restarted_again(verdict):
    now = again(verdict, error=verdict.raised)
    assert ladder.choose(now, FAILS_FAST).choice.rung == "reschedule-unconditional"


@pytest.mark.parametrize("fault", [HEALS, LOST])
def test_a_node_or_device_fault_in_between_forgets_the_error(fault):
    assert ladder.choose(replace(job(fault), error=RAISED), FULL).job.error == ""


def test_the_error_of_a_restart_is_remembered():
    assert ladder.choose(again(error="", problem=""), FAILS_FAST).job.error == RAISED


def test_another_device_that_may_heal_is_not_taken_for_the_users_doing():
    """Worker 0 is being replaced, its node is out of the job; then a device of worker 1 fails."""
    being_replaced = ladder.choose(job(STAYS), FULL).job
    other = ms.DeviceFault(device=ms.Device("n1", "0", "80E01801"), steps_up=False)
    incident = replace(being_replaced.incident, faults=(STAYS, other))
    chosen = ladder.choose(replace(being_replaced, incident=incident), FULL)
    assert (chosen.choice.rung, chosen.job.restarts) == ("replace-worker", 0)


def test_a_reschedule_that_waits_for_a_node_goes_on_as_one():
    paid = ladder.choose(job(EXIT), FULL).job
    waiting = ladder.wait_for_node(paid, "none").job
    placed = replace(waiting, workers=WORKERS, incident=replace(waiting.incident, faults=(EXIT, LOST)))
    chosen = ladder.choose(placed, FULL)
    assert (chosen.choice.rung, chosen.job.replacements, chosen.job.restarts) == ("reschedule-isolated", 0, 1)


def test_in_shadow_nothing_moves():
    chosen = ladder.choose(job(LOST), replace(FULL, shadow=True))
    assert chosen.choice.rung == "replace-worker"
    assert (chosen.job.workers, chosen.job.to_isolate) == (WORKERS, ())


# --- devices that come back


def seen(times_s: list[float], policy: Policy = FULL) -> list[bool]:
    facts, steps_up = ms.Job(workers=WORKERS), []
    for at_s in times_s:
        facts, fault = ladder.note_device(facts, DEVICE, at_s, policy)
        steps_up.append(fault.steps_up)
    return steps_up


def test_the_third_time_within_a_day_steps_up():
    assert seen([0.0, 100.0, DAY_S - 1]) == [False, False, True]
    assert seen([0.0, 100.0, DAY_S]) == [False, False, False]


@given(st.lists(st.floats(0, 3 * DAY_S), max_size=12).map(sorted))
def test_a_device_steps_up_exactly_at_three_within_the_window(times_s):
    expected = [
        sum(at_s - DAY_S < other for other in times_s[: index + 1]) >= 3 for index, at_s in enumerate(times_s)
    ]
    assert seen(times_s) == expected


# --- as seen from the whole core


RUNNING = ms.State(ms.Job(name="j", workers=WORKERS, attempt=1, alive=True, step=50), ms.Running(since_s=0.0))


def told(*events: ev.AnyEvent, policy: Policy = FULL, state: ms.State = RUNNING) -> Decision:
    decision = Decision(state)
    for event in events:
        decision = decide(decision.state, event, policy)
    return decision


def device_faulted(at_s: float) -> ev.DeviceFaulted:
    return ev.DeviceFaulted(at_s=at_s, node="n0", device="3", code="80E01801")


def verdict(at_s: float, **says: bool | str) -> ev.VerdictReached:
    return ev.VerdictReached(at_s=at_s, incident=1, verdict=UNKNOWN, **says)


def test_one_device_fault_reported_many_times_is_one():
    decision = told(*(device_faulted(1.0 + 0.1 * times) for times in range(5)), verdict(2.0))
    assert decision.choice is not None
    assert decision.choice.rung == "in-place"
    assert len(decision.state.job.devices_seen) == 1


def test_a_hung_rank_that_dies_while_it_is_diagnosed_is_acted_on():
    policy = Policy(max_restarts=1, unconditional_restart=True)
    decision = told(
        ev.HangFound(at_s=1.0, attempt=1, hang="quiet", culprits=(1,), reason="no step"),
        ev.RankExited(at_s=1.1, attempt=1, worker=0, rank=1, code=-6),
        *(ev.WorkerExited(at_s=1.2, attempt=1, worker=worker, code=1) for worker in range(3)),
        verdict(2.0),
        policy=policy,
    )
    assert decision.choice is not None
    assert decision.choice.rung == "reschedule-unconditional"


def test_a_job_that_ends_well_while_a_hang_is_diagnosed_has_succeeded():
    ends = [ev.WorkerExited(at_s=1.2, attempt=1, worker=worker, code=0) for worker in range(3)]
    hang = ev.HangFound(at_s=1.0, attempt=1, hang="quiet", culprits=(1,), reason="no step")
    phase = told(hang, *ends).state.phase
    assert isinstance(phase, ms.Finishing)
    assert (phase.outcome, phase.code) == ("succeeded", 0)


def test_a_failed_rank_is_not_forgotten_because_its_command_ends_with_0():
    ends = [ev.WorkerExited(at_s=1.2, attempt=1, worker=worker, code=0) for worker in range(3)]
    failed = ev.RankExited(at_s=1.0, attempt=1, worker=0, rank=0, code=1)
    assert isinstance(told(failed, *ends).state.phase, ms.Diagnosing)


def test_a_fresh_start_is_no_progress_and_steps_beyond_the_best_are():
    in_a_row = replace(RUNNING.job, hangs_in_a_row=2, problems_in_a_row=2, bar_step=100, step=None)
    state = ms.State(in_a_row, ms.Running(since_s=0.0))

    def rows(step: int) -> tuple[int, int]:
        after = told(ev.StepReached(at_s=1.0, attempt=1, step=step), state=state).state.job
        return after.hangs_in_a_row, after.problems_in_a_row

    assert rows(90) == rows(109) == (2, 2)
    assert rows(110) == (0, 0)


def test_steps_that_are_read_after_the_failure_are_steps_before_it():
    """Else the next attempt passes them and seems to have made progress."""
    failed = told(
        ev.StepReached(at_s=1.0, attempt=1, step=40),
        ev.RankExited(at_s=1.1, attempt=1, worker=0, rank=0, code=1),
        ev.StepReached(at_s=1.2, attempt=1, step=160),
    )
    assert (failed.state.job.step, failed.state.job.bar_step) == (160, 160)


def test_a_device_that_does_not_heal_takes_its_worker_elsewhere():
    healing = told(device_faulted(1.0), verdict(2.0), ev.AttemptStopped(at_s=3.0, attempt=1))
    assert healing.orders == (od.HealDevice(incident=1, node="n0", device="3", code="80E01801"),)
    not_healed = ev.DeviceHealed(at_s=4.0, node="n0", device="3", healed=False)
    decision = decide(healing.state, not_healed, FULL)
    assert decision.choice is not None
    assert (decision.choice.rung, decision.choice.isolate) == ("replace-worker", ("n0",))
    place = decide(decision.state, ev.NodeIsolated(at_s=5.0, node="n0"), FULL)
    assert place.orders == (
        od.PlaceWorkers(attempt=2, workers=(0,), keep_nodes=("n1", "n2"), without_nodes=("n0",)),
    )


def test_a_device_fault_before_the_first_start_is_healed_first():
    half = ms.Job(name="j", workers=(WORKERS[0], ms.Worker()))
    state = ms.State(replace(half, attempt=0), ms.Placing(since_s=0.0))
    placed = ev.WorkersPlaced(at_s=2.0, attempt=1, placed=(ev.Placed(1, "n1"),))
    decision = told(device_faulted(1.0), placed, state=state)
    assert isinstance(decision.state.phase, ms.Healing)
    started = decide(decision.state, ev.DeviceHealed(at_s=3.0, node="n0", device="3", healed=True), FULL)
    assert isinstance(started.orders[0], od.StartAttempt)


def test_a_hung_job_without_steps_writes_no_tick_down():
    hung = replace(RUNNING.job, step=None, incident=job(HUNG, rung="notify").incident)
    state = ms.State(hung, ms.Running(since_s=0.0, handled=True))
    assert told(ev.Tick(at_s=9_000.0), state=state).state is state
