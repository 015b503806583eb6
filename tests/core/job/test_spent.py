"""What the time of a job went to: the parts add up to the whole, whatever happened."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.job.decide import decide
from holdfast.core.job.story import Story
from holdfast.model import events as ev
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.model.verdicts import UNKNOWN

POLICY = Policy(max_restarts=8, unconditional_restart=True, hang_restart=True)


def told(events, policy=POLICY):
    story, state = Story(policy), State()
    for event in events:
        decision = decide(state, event, policy)
        story.hear(event, decision)
        state = decision.state
    return story.summary()


def start(at_s, attempt, node="n0"):
    return [
        ev.WorkersPlaced(at_s=at_s, attempt=attempt, placed=(ev.Placed(0, node),)),
        ev.AttemptStarted(at_s=at_s + 1, attempt=attempt),
    ]


def steps(at_s, attempt, first, last):
    return [
        ev.StepReached(at_s=at_s + number, attempt=attempt, step=step)
        for number, step in enumerate(range(first, last + 1))
    ]


def killed(at_s, attempt, number=1):
    return [
        ev.RankExited(at_s=at_s, attempt=attempt, worker=0, rank=0, code=-9),
        ev.VerdictReached(at_s=at_s + 2, incident=number, verdict=UNKNOWN),
        ev.AttemptStopped(at_s=at_s + 6, attempt=attempt),
    ]


def submitted():
    return [ev.JobSubmitted(at_s=0.0, job="j", workers=1), *start(5, 1)]


def parts(incident):
    return {part.what: part.seconds for part in incident.spent}


def test_a_killed_rank_costs_its_recovery_and_the_steps_before():
    summary = told(
        [*submitted(), *steps(10, 1, 1, 91), *killed(101, 1), *start(110, 2), *steps(131, 2, 72, 120)]
    )
    (incident,) = summary.incidents
    assert parts(incident) == {
        "diagnosis": 2.0,
        "stopping": 4.0,
        "placing": 3.0,
        "starting": 21.0,
        "repeated-steps": 19.0,  # from step 72, which the start has paid for, to step 91
    }
    assert incident.steps_lost == 20
    spent = summary.spent
    assert spent.started_s == 10.0
    whole_s = summary.last_at_s - summary.submitted_at_s
    assert spent.useful_s + spent.started_s + sum(parts(incident).values()) == whole_s


def test_of_a_hang_the_time_since_the_last_step_is_lost():
    hang = ev.HangFound(at_s=80.0, attempt=1, hang="quiet", culprits=(0,), reason="it stands")
    summary = told([*submitted(), *steps(10, 1, 1, 41), hang])
    assert parts(summary.incidents[0]) == {"detection": 30.0}
    assert summary.spent.useful_s == 40.0


def test_time_without_a_controller_counts_where_steps_go_on_and_only_there():
    alone = [*submitted(), *steps(10, 1, 1, 11), ev.ControllerResumed(at_s=1000.0)]
    went_on = told([*alone, ev.StepReached(at_s=1001.0, attempt=1, step=500)])
    assert went_on.spent.useful_s == 991.0
    failed = told([*alone, *killed(1001, 1)[:1]])
    assert parts(failed.incidents[0]) == {"unsupervised": 980.0}
    assert failed.spent.useful_s == 11.0


def test_a_job_without_steps_has_no_useful_time():
    summary = told([*submitted(), ev.WorkerExited(at_s=100.0, attempt=1, worker=0, code=0)])
    assert (summary.spent.useful_s, summary.spent.started_s) == (0.0, 100.0)


def test_who_asked_for_the_end_is_named_also_by_an_older_journal():
    asked = {
        "SIGTERM was sent to Holdfast": "signal",
        "Slurm gives the nodes to a job of higher priority": "preemption",
        "the time limit of the Slurm job is reached": "scheduler",
        "anything else": "",
    }
    for reason, by in asked.items():
        assert told([*submitted(), ev.StopRequested(at_s=9.0, reason=reason)]).ended_by == by
    named = ev.StopRequested(at_s=9.0, reason="anna: wrong data", by="person")
    assert told([*submitted(), named]).ended_by == "person"


def test_attempts_have_their_steps_and_nodes():
    summary = told(
        [*submitted(), *steps(10, 1, 1, 9), *killed(30, 1), *start(40, 2, "n1"), *steps(50, 2, 5, 7)]
    )
    first, second = summary.attempts
    assert (first.first_step, first.last_step, first.nodes) == (1, 9, {0: "n0"})
    assert (second.first_step, second.last_step, second.nodes) == (5, 7, {0: "n1"})
    (incident,) = summary.incidents
    assert (incident.nodes, incident.nodes_after) == ({0: "n0"}, {0: "n1"})
    assert [one.code for one in incident.exits] == [-9]


waits = st.floats(0, 500).map(lambda seconds: round(seconds, 3))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["step", "kill", "hang", "start", "stop", "resume", "tick"]),
            waits,
            st.integers(0, 50),
        ),
        max_size=40,
    )
)
def test_whatever_happens_the_parts_add_up_to_the_whole(happenings):
    """Also for events that make no sense where they come."""
    at_s, number = 6.0, 0
    events = submitted()
    for what, wait_s, step in happenings:
        at_s += wait_s
        attempt = number + 1
        match what:
            case "step":
                events.append(ev.StepReached(at_s=at_s, attempt=attempt, step=step))
            case "kill":
                number += 1
                events += [
                    ev.RankExited(at_s=at_s, attempt=attempt, worker=0, rank=0, code=1),
                    ev.VerdictReached(at_s=at_s, incident=number, verdict=UNKNOWN),
                ]
            case "hang":
                events.append(
                    ev.HangFound(at_s=at_s, attempt=attempt, hang="quiet", culprits=(), reason="it stands")
                )
            case "start":
                events.append(ev.AttemptStopped(at_s=at_s, attempt=attempt - 1))
                events.append(ev.WorkersPlaced(at_s=at_s, attempt=attempt, placed=(ev.Placed(0, "n0"),)))
                events.append(ev.AttemptStarted(at_s=at_s, attempt=attempt))
            case "stop":
                events.append(ev.AttemptStopped(at_s=at_s, attempt=attempt))
            case "resume":
                events.append(ev.ControllerResumed(at_s=at_s))
            case _:
                events.append(ev.Tick(at_s=at_s))
    summary = told(events)
    lost_s = sum(part.seconds for one in summary.incidents for part in one.spent)
    spent = summary.spent
    if not summary.outcome:
        whole_s = summary.last_at_s - summary.submitted_at_s
        assert abs(spent.useful_s + spent.started_s + spent.ending_s + lost_s - whole_s) < 1e-6
    assert min(spent.useful_s, spent.started_s, spent.ending_s, lost_s) >= 0
