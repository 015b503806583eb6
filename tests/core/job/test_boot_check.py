"""The boot check in the core: what its answers come to, before the first start and in a recovery."""

import pytest
from msgspec.structs import replace

from holdfast.controller.loop import replay, row_of
from holdfast.core.job.decide import decide
from holdfast.core.job.story import Story
from holdfast.core.nodes.passes import NO_MACHINE, OF_A_LOSS
from holdfast.core.verdict.categories import KINDS
from holdfast.model import events as ev
from holdfast.model import orders as od
from holdfast.model import state as ms
from holdfast.model.policy import Policy
from holdfast.model.verdicts import UNKNOWN, Verdict

QUICK = Policy(boot_check="quick")
RESTARTS = Policy(boot_check="quick", max_restarts=2, unconditional_restart=True)


class Told:
    """A job that is told events one after another; its log, and the orders of the last decision."""

    def __init__(self, policy: Policy, workers: int = 2) -> None:
        self.policy = policy
        self.state = ms.State()
        self.story = Story(policy)
        self.lines: list[str] = []
        self.orders: tuple[od.AnyOrder, ...] = ()
        self.rows = []
        self.at_s = 0.0
        self(ev.JobSubmitted(at_s=0.0, job="j", workers=workers))

    def __call__(self, event, after_s=1.0):
        self.at_s += after_s
        event = replace(event, at_s=self.at_s)
        decision = decide(self.state, event, self.policy)
        row = row_of(event, decision)
        self.rows.append((row.at_s, row.kind, row.event, row.orders, row.why, len(self.rows) + 1))
        self.state, self.orders = decision.state, decision.orders
        self.lines += [line.text for line in self.story.hear(event, decision)]
        return decision

    @property
    def job(self):
        return self.state.job

    @property
    def order(self):
        assert len(self.orders) == 1, self.orders
        return self.orders[0]

    def place(self, *nodes, first=0):
        placed = tuple(ev.Placed(first + number, node) for number, node in enumerate(nodes))
        return self(ev.WorkersPlaced(at_s=0.0, attempt=self.job.attempt + 1, placed=placed))

    def checked(self, *nodes, after_s=1.0, **more):
        return self(
            ev.NodesChecked(at_s=0.0, attempt=self.job.attempt + 1, nodes=nodes, **more), after_s=after_s
        )

    def dies(self):
        self(ev.RankExited(at_s=0.0, attempt=self.job.attempt, worker=0, rank=0, code=-9))
        self(ev.VerdictReached(at_s=0.0, incident=self.job.incidents, verdict=UNKNOWN, environment=True))
        self(ev.AttemptStopped(at_s=0.0, attempt=self.job.attempt))


def begun(policy=QUICK, workers=2):
    told = Told(policy, workers)
    told.place("n0", "n1")
    return told


def test_it_is_asked_for_between_placement_and_start():
    told = begun()
    assert told.order == od.CheckNodes(attempt=1, nodes=("n0", "n1"), suite="quick")
    told.checked("n0", "n1", status="pass", passed=31, warned=2, skipped=4, seconds=1.2)
    assert isinstance(told.order, od.StartAttempt)
    assert "boot check of n0, n1: 31 passed, 2 to look at, 4 skipped, in 1.2 s" in told.lines


def test_off_is_what_it_was():
    told = begun(Policy())
    assert isinstance(told.order, od.StartAttempt)


def test_it_waits_for_all_nodes():
    told = begun()
    told.checked("n0")
    assert told.orders == ()
    told(ev.ControllerResumed(at_s=0.0))
    assert told.order == od.CheckNodes(attempt=1, nodes=("n1",), suite="quick")
    told.checked("n1")
    assert isinstance(told.order, od.StartAttempt)


def test_what_it_warns_of_is_a_line_each_and_stops_nothing():
    told = begun(workers=1)
    warned = ev.CheckFinding(
        node="n0", check="io-shm", status="warn", text="io-shm: /dev/shm has 64 MiB", advice="Make it larger."
    )
    told.checked("n0", status="warn", troubles=(warned,), warned=1)
    assert isinstance(told.order, od.StartAttempt)
    assert "to look at: io-shm: /dev/shm has 64 MiB. Advice: Make it larger." in told.lines


def test_a_broken_node_is_left_before_the_first_start_without_any_restart():
    told = begun()
    decision = told.checked("n0", "n1", status="fail", failed=1, isolate={"n1": "gpu-ecc: broken"})
    assert decision.choice.rung == "reschedule-isolated"
    assert told.order == od.IsolateNode(incident=1, node="n1", reason="incident 1")
    told(ev.NodeIsolated(at_s=0.0, node="n1"))
    assert told.order == od.PlaceWorkers(attempt=1, workers=(1,), keep_nodes=("n0",), without_nodes=("n1",))
    told.place("n2", first=1)
    assert told.order == od.CheckNodes(attempt=1, nodes=("n2",), suite="quick")
    told.checked("n2", status="pass")
    assert isinstance(told.order, od.StartAttempt)
    assert [start.node for start in told.order.workers] == ["n0", "n2"]
    assert (told.job.restarts, told.job.hardware_reschedules) == (0, 1)
    assert (
        "incident 1: action: isolate n1 and place worker 1 elsewhere, because n1 failed its check (gpu-ecc: broken)"
        in told.lines
    )


def test_without_another_node_the_job_waits_where_one_may_come_and_fails_where_none_can():
    for hopeless, phase in ((False, ms.Waiting), (True, ms.Ended)):
        told = begun()
        told.checked("n0", "n1", isolate={"n1": "gpu-ecc: broken"})
        told(ev.NodeIsolated(at_s=0.0, node="n1"))
        told(ev.PlacementFailed(at_s=0.0, attempt=1, reason="there is no other node", hopeless=hopeless))
        assert isinstance(told.state.phase, phase)
    assert told.state.phase == ms.Ended(
        "failed",
        1,
        "n1 failed its check: gpu-ecc: broken; there is no other node (--no-checks-act starts it anyway)",
    )


def test_a_run_that_cannot_work_fails_before_anything_is_started():
    told = begun()
    told.checked("n0", "n1", status="fail", stop="train.py is not there; name one that is")
    assert isinstance(told.state.phase, ms.Ended)
    assert told.state.phase.code == 1
    assert "train.py is not there" in told.state.phase.reason
    assert told.job.attempt == 0


def test_after_a_reschedule_it_is_asked_again_and_a_broken_node_is_paid_once():
    told = begun(RESTARTS)
    told.checked("n0", "n1", status="pass")
    told.dies()
    assert told.order == od.PlaceWorkers(attempt=2, workers=(0, 1))
    told.place("n0", "n1")
    assert told.order == od.CheckNodes(attempt=2, nodes=("n0", "n1"))
    told.checked("n0", "n1", isolate={"n0": "gpu-lost: fell off the bus"})
    told(ev.NodeIsolated(at_s=0.0, node="n0"))
    assert told.order == od.PlaceWorkers(attempt=2, workers=(0,), keep_nodes=("n1",), without_nodes=("n0",))
    told.place("n2")
    told.checked("n2")
    assert isinstance(told.order, od.StartAttempt)
    assert told.job.restarts == 1


def test_after_a_reschedule_a_run_that_cannot_work_ends_with_the_training_s_own_code():
    told = begun(RESTARTS)
    told.checked("n0", "n1")
    told(ev.WorkerExited(at_s=0.0, attempt=1, worker=0, code=7))
    told(ev.VerdictReached(at_s=0.0, incident=1, verdict=UNKNOWN, environment=True))
    told(ev.AttemptStopped(at_s=0.0, attempt=1))
    told.place("n0", "n1")
    told.checked("n0", "n1", stop="the disk is full")
    assert told.state.phase.code == 7


def test_a_hang_restart_checks_nothing():
    told = begun(Policy(boot_check="quick", hang_restart=True))
    told.checked("n0", "n1")
    told(ev.HangFound(at_s=0.0, attempt=1, hang="quiet", culprits=(1,), reason="no step"))
    told(ev.VerdictReached(at_s=0.0, incident=1, verdict=UNKNOWN))
    told(ev.AttemptStopped(at_s=0.0, attempt=1))
    assert isinstance(told.order, od.StartAttempt)


def test_a_replaced_worker_s_new_node_alone_is_looked_at():
    told = begun(Policy(boot_check="quick", replace_workers=1))
    told.checked("n0", "n1")
    told(ev.NodeLost(at_s=0.0, node="n1", reason="gone"))
    told(ev.VerdictReached(at_s=0.0, incident=1, verdict=UNKNOWN))
    assert told.order == od.IsolateNode(incident=1, node="n1", reason="incident 1", only_lost=True)
    told(ev.NodeIsolated(at_s=0.0, node="n1"))
    told(ev.AttemptStopped(at_s=0.0, attempt=1))
    told.place("n2", first=1)
    assert told.order == od.CheckNodes(attempt=2, nodes=("n2",))


@pytest.mark.parametrize(("suite", "wait_s"), [("quick", 20.0), ("full", 90.0)])
def test_no_answer_is_said_and_the_run_starts(suite, wait_s):
    told = begun(Policy(boot_check=suite))
    told.checked("n0")
    told(ev.Tick(at_s=0.0), after_s=wait_s - 2.0)
    assert told.orders == ()
    told(ev.Tick(at_s=0.0), after_s=2.0)
    assert isinstance(told.order, od.StartAttempt)
    assert "the boot check of n1 gave no answer" in told.rows[-1][4]
    assert "n0" not in told.rows[-1][4]


def test_an_answer_after_the_start_changes_nothing():
    told = begun()
    told(ev.Tick(at_s=0.0), after_s=30.0)
    before = told.state
    told(ev.NodesChecked(at_s=0.0, attempt=1, nodes=("n0", "n1"), isolate={"n0": "broken"}))
    assert told.state == before


def test_a_tick_while_it_looks_is_no_history():
    told = begun()
    before = told.state
    assert told(ev.Tick(at_s=0.0)).state is before


def test_a_node_lost_meanwhile_is_left():
    told = begun()
    told(ev.NodeLost(at_s=0.0, node="n0", reason="gone"))
    assert told.order == od.PlaceWorkers(attempt=1, workers=(0,), keep_nodes=("n1",), without_nodes=("n0",))
    told.checked("n1")
    told.place("n2")
    assert told.order == od.CheckNodes(attempt=1, nodes=("n2",))


def test_a_person_may_stop_it():
    told = begun()
    told(ev.StopRequested(at_s=0.0, reason="asked"))
    assert isinstance(told.order, od.EndJob)
    assert told.state.phase == ms.Ended("stopped", 130, "asked")


def test_shadow_says_what_would_be_done_and_starts():
    for policy, word in (
        (Policy(boot_check="quick", shadow=True, max_restarts=1), "shadow"),
        (
            Policy(boot_check="quick", checks_act=False),
            "--checks-act is off (a check may not stop the job or isolate a node)",
        ),
    ):
        told = begun(policy)
        told.checked("n0", "n1", isolate={"n1": "broken"})
        assert isinstance(told.order, od.StartAttempt)
        assert told.rows[-1][4] == f"{word}: the boot check would isolate n1; the attempt starts anyway"


def test_a_node_that_troubleshooting_finds_broken_decides_the_rung():
    told = begun(RESTARTS)
    told.checked(
        "n0", "n1", status="warn", troubles=(ev.CheckFinding(node="n0", check="x", status="warn", text="t"),)
    )
    told(ev.RankExited(at_s=0.0, attempt=1, worker=0, rank=0, code=1))
    assert told.order == od.Diagnose(incident=1, attempt=1, boot="warn", known=("x",))
    told(
        ev.NodesChecked(
            at_s=0.0,
            attempt=1,
            nodes=("n1",),
            context="on-failure",
            isolate={"n1": "gpu-lost: fell off the bus"},
        )
    )
    decision = told(ev.VerdictReached(at_s=0.0, incident=1, verdict=UNKNOWN))
    assert decision.choice.rung == "reschedule-isolated"
    assert decision.choice.isolate == ("n1",)
    assert any(line.startswith("troubleshooting of n1: ") for line in told.lines)


def test_what_troubleshooting_finds_after_the_rung_was_chosen_is_one_more_fault():
    told = begun(Policy(boot_check="quick", max_restarts=2, hang_restart=True))
    told.checked("n0", "n1")
    told(ev.HangFound(at_s=0.0, attempt=1, hang="quiet", culprits=(1,), reason="no step"))
    told(ev.VerdictReached(at_s=0.0, incident=1, verdict=UNKNOWN))
    assert isinstance(told.state.phase, ms.Stopping)
    late = ev.NodesChecked(
        at_s=0.0, attempt=1, nodes=("n1",), context="on-failure", isolate={"n1": "gpu-lost: fell off the bus"}
    )
    decision = told(late)
    assert decision.choice.rung == "reschedule-isolated"
    assert decision.choice.isolate == ("n1",)
    assert told(late).orders == ()
    good = replace(late, isolate={})
    before = told.state
    assert told(good).state is before


@pytest.mark.parametrize(("workers", "where"), [(1, ""), (2, "n1: ")])
def test_of_several_nodes_the_one_of_troubleshooting_is_named(workers, where):
    told = Told(RESTARTS, workers)
    nodes = ("n1", "n0")[:workers]
    told.place(*nodes)
    told.checked(*nodes)
    told(ev.RankExited(at_s=0.0, attempt=1, rank=0, worker=0, code=-9))
    trouble = ev.CheckFinding(node="n1", check="disk", status="fail", text="/tmp is full", advice="")
    told(
        ev.NodesChecked(
            at_s=0.0,
            attempt=1,
            nodes=("n1",),
            context="on-failure",
            troubles=(trouble,),
            failed=1,
            seconds=1.0,
        )
    )
    of = " of n1" if where else ""
    assert f"troubleshooting{of}: 0 passed, 1 failed, 0 to look at, 0 skipped, in 1.0 s" in told.lines
    assert f"failed: {where}/tmp is full." in told.lines


def test_journals_of_before_are_replayed_as_they_were():
    told = begun(Policy(max_restarts=1))
    told.dies()
    assert replay(told.rows, Policy(max_restarts=1)) == told.state


def test_a_stranger_s_event_is_passed_over_and_its_own_is_replayed():
    told = begun(RESTARTS)
    told.checked("n0", "n1", status="pass", passed=3)
    told.dies()
    told.place("n0", "n1")
    assert replay(told.rows, RESTARTS) == told.state


# --- a node that has just passed


AGAIN = replace(RESTARTS, boot_check_again_s=600.0, max_restarts=9, same_problem_in_a_row_max=9)
KILLED = Verdict(category="process_killed", class_="process", title="killed", confidence=0.9)
PASS = {"status": "pass", "passed": 31}


def trained(policy=AGAIN, **answer):
    told = begun(policy)
    told.checked("n0", "n1", **{**PASS, **answer})
    return told


def ended_by(told, verdict, after_s=1.0):
    """The attempt dies of this, and its end is over."""
    told(ev.RankExited(at_s=0.0, attempt=told.job.attempt, worker=0, rank=0, code=-9), after_s=after_s)
    told(ev.VerdictReached(at_s=0.0, incident=told.job.incidents, verdict=verdict, environment=True))
    for order in told.orders:
        if isinstance(order, od.IsolateNode):
            told(ev.NodeIsolated(at_s=0.0, node=order.node))
    told(ev.AttemptStopped(at_s=0.0, attempt=told.job.attempt))
    return told


def test_a_node_that_has_just_passed_is_not_looked_at_again():
    told = ended_by(trained(), KILLED, after_s=115.0)
    told.place("n0", "n1")
    assert isinstance(told.order, od.StartAttempt)
    assert "boot check: not made again, all nodes passed it 2 min ago" in told.lines
    assert replay(told.rows, AGAIN) == told.state


def test_a_node_that_was_never_looked_at_is_and_it_alone():
    told = ended_by(trained(), KILLED)
    told.place("n0", "n2")
    assert told.order == od.CheckNodes(attempt=2, nodes=("n2",))
    assert "boot check: only of n2; the other new places passed it 4 s ago" in told.lines


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "skip", "passed": 0, "skipped": 9},
        {"why_not": "the list of checks could not be read"},
        {"status": "fail", "failed": 1, "not_passed": ("n0", "n1")},
    ],
)
def test_who_has_not_passed_is_looked_at_again(answer):
    told = ended_by(trained(**answer), KILLED)
    told.place("n0", "n1")
    assert told.order == od.CheckNodes(attempt=2, nodes=("n0", "n1"))


def test_a_pass_holds_for_its_time_only():
    told = ended_by(trained(), KILLED, after_s=597.0)
    told.place("n0", "n1")
    assert told.order == od.CheckNodes(attempt=2, nodes=("n0", "n1"))


@pytest.mark.parametrize(
    "verdict",
    [
        UNKNOWN,
        replace(KILLED, confidence=0.5),
        Verdict(category="ecc_uncorrectable", class_="hardware", title="t", confidence=0.9),
        Verdict(category="nccl_network_error", class_="communication", title="t", confidence=0.9),
        Verdict(category="storage_io", class_="host", title="t", confidence=0.9),
    ],
    ids=lambda verdict: f"{verdict.category}-{verdict.confidence}",
)
def test_a_failure_that_may_be_a_machine_s_doing_has_all_looked_at(verdict):
    told = ended_by(trained(), verdict)
    told.place("n0", "n1")
    assert told.order == od.CheckNodes(attempt=2, nodes=("n0", "n1"))
    told.checked("n0", "n1", **PASS)
    told(ev.StepReached(at_s=0.0, attempt=2, step=30))
    ended_by(told, KILLED)
    told.place("n0", "n1")
    assert isinstance(told.order, od.StartAttempt)


def test_a_lost_node_casts_doubt_on_itself_alone():
    told = trained()
    told(ev.NodeLost(at_s=0.0, node="n1", reason="gone"))
    down = Verdict(category="node_down", class_="scheduler", title="t", confidence=0.95)
    ended_by(told, down)
    told.place("n0", "n2")
    assert told.order == od.CheckNodes(attempt=2, nodes=("n2",))
    told.checked("n2", **PASS)
    told(ev.StepReached(at_s=0.0, attempt=2, step=30))
    told(ev.NodeReleased(at_s=0.0, node="n1"))
    ended_by(told, KILLED)
    told.place("n0", "n1")
    assert told.order == od.CheckNodes(attempt=3, nodes=("n1",))


def test_a_faulty_device_is_a_reason_to_look_even_if_it_healed():
    told = trained(replace(AGAIN, hang_restart=True))
    told(ev.DeviceFaulted(at_s=0.0, node="n1", device="0", code="80E01801"))
    told(ev.VerdictReached(at_s=0.0, incident=1, verdict=UNKNOWN))
    told(ev.AttemptStopped(at_s=0.0, attempt=1))
    told(ev.DeviceHealed(at_s=0.0, node="n1", device="0", healed=True))
    told(ev.StepReached(at_s=0.0, attempt=2, step=30))
    ended_by(told, KILLED)
    told.place("n0", "n1")
    assert told.order == od.CheckNodes(attempt=3, nodes=("n0", "n1"))


def test_who_was_spared_the_look_is_looked_at_when_another_new_node_turns_out_broken():
    told = ended_by(trained(), KILLED)
    told.place("n0", "n2")
    told.checked("n2", status="fail", failed=1, isolate={"n2": "gpu-lost: fell off the bus"})
    told(ev.NodeIsolated(at_s=0.0, node="n2"))
    told.place("n3", first=1)
    assert told.order == od.CheckNodes(attempt=2, nodes=("n0", "n3"))


def test_troubleshooting_that_ends_after_the_start_has_its_node_looked_at_next_time():
    told = ended_by(trained(), KILLED)
    told.place("n0", "n1")
    told(
        ev.NodesChecked(at_s=0.0, attempt=1, nodes=("n1",), context="on-failure", isolate={"n1": "gpu-lost"})
    )
    told(ev.StepReached(at_s=0.0, attempt=2, step=30))
    ended_by(told, KILLED)
    told.place("n0", "n1")
    assert told.order == od.CheckNodes(attempt=3, nodes=("n1",))


def test_a_job_that_the_scheduler_starts_anew_has_all_its_nodes_looked_at():
    told = trained()
    told(ev.JobMoved(at_s=0.0, reason="requeued"))
    told.place("n0", "n1")
    assert told.order == od.CheckNodes(attempt=2, nodes=("n0", "n1"))


def test_a_pass_outlives_a_move_in_good_order_that_nobody_came_between():
    told = trained()
    told(ev.JobMoved(at_s=0.0, reason="moved", away_s=5.0))
    told.place("n0", "n2")
    assert told.order == od.CheckNodes(attempt=2, nodes=("n2",))


def test_a_pass_does_not_outlive_a_long_absence():
    told = trained()
    told(ev.JobMoved(at_s=0.0, reason="moved", away_s=60.0))
    told.place("n0", "n2")
    assert told.order == od.CheckNodes(attempt=2, nodes=("n0", "n2"))


def test_what_says_nothing_against_a_machine_are_categories():
    assert NO_MACHINE | OF_A_LOSS <= set(KINDS)
    assert not NO_MACHINE & OF_A_LOSS
    assert not any(KINDS[name][0] in ("hardware", "host", "network", "unknown") for name in NO_MACHINE)
