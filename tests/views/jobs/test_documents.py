"""Rows and documents of jobs and incidents, from the story of a journal."""

from datetime import UTC

import msgspec
import pytest

from cli.journals import (
    COMMAND,
    OOM,
    POLICY,
    START_S,
    failure,
    hang_then_lost_node_then_success,
    one_failure_and_on,
    started,
    steps,
    submitted,
)
from holdfast.core.job.decide import decide
from holdfast.core.job.story import Story
from holdfast.model.documents.incidents import IncidentDocument, StackGroup
from holdfast.model.documents.jobs import JobDocument, LogLine
from holdfast.model.events import CheckFinding, NodesChecked, StopRequested, VerdictReached
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.model.steps import StepNow
from holdfast.model.verdicts import Evidence
from holdfast.observe.logs.step_file import StepFile
from holdfast.views.jobs.incident import EVIDENCE_MAX, incident_document, kept_evidence
from holdfast.views.jobs.job import job_document
from holdfast.views.jobs.rows import incident_row, job_row
from holdfast.views.jobs.seen import Scene, Seen, Surroundings

NOW = StepFile(
    at_s=START_S + 200,
    attempt=2,
    now=StepNow(step=140, total=1000, now_s=1.0, median_s=1.0, eta_s=860.0),
    recent=tuple(float(number) for number in range(60)),
)


def summary_of(events, policy=POLICY):
    story, state = Story(policy), State()
    for event in events:
        decision = decide(state, event, policy)
        story.hear(event, decision)
        state = decision.state
    return story.summary()


def seen(state="training", **more):
    fields = {
        "id": "llama",
        "name": "llama",
        "policy": POLICY,
        "facts": {"command": list(COMMAND), "host": "gpu-03"},
    }
    return Seen(state=state, **(fields | more))


def test_the_row_of_a_job_that_trains_again():
    row = job_row(summary_of(one_failure_and_on()), seen(steps=NOW, state_since_s=START_S + 143.5), UTC)
    assert (row.step, row.total_steps, row.step_s, row.eta_s) == (140, 1000, 1.0, 860.0)
    assert row.sparkline == NOW.recent[-30:]
    assert row.sentence.text.en.startswith("Rank 2 (gpu-03, 5d:00.0) ran out of GPU memory at 15:22:18;")
    assert (row.category, row.cause, row.restarts, row.incidents) == ("gpu_oom", "", 1, 1)
    assert row.goodput == 0.7812
    assert row.command == "torchrun --nproc-per-node 4 train.py"
    assert row.nodes == ("gpu-03",)


def test_a_job_that_nobody_drives_has_no_pace():
    for state in ("dead", "unsupervised", "unknown", "failed", "waiting", "recovering"):
        row = job_row(summary_of(one_failure_and_on()), seen(state, steps=NOW), UTC)
        assert (row.step_s, row.eta_s) == (None, None)
        assert "training" not in row.sentence.text.en or state in ("failed", "recovering")


def test_the_cause_is_the_same_for_jobs_that_failed_alike():
    rows = []
    for rank_line in (
        "rank 2: CUDA out of memory, 512 MiB at 0x7f00",
        "rank 7: CUDA out of memory, 20 MiB at 0x81",
    ):
        first = msgspec.structs.replace(OOM.first_error, text=rank_line)
        verdict = msgspec.structs.replace(OOM, first_error=first)
        events = [submitted(), *started(START_S + 1, 1), *failure(START_S + 50, 1, 1)]
        events[-2] = VerdictReached(at_s=START_S + 51, incident=1, verdict=verdict)
        summary = summary_of(events, Policy())
        rows.append(job_row(summary, seen("failed"), UTC))
    assert rows[0].cause == rows[1].cause
    assert rows[0].cause.startswith("gpu_oom:")


def test_a_job_that_failed_without_an_incident_has_a_cause_too():
    events = [
        submitted(),
        *started(START_S + 1, 1),
        StopRequested(at_s=START_S + 2, reason="SIGTERM was sent"),
    ]
    assert job_row(summary_of(events), seen("stopped"), UTC).cause == ""


def test_an_incident_costs_what_its_parts_cost():
    summary = summary_of(hang_then_lost_node_then_success())
    for incident in summary.incidents:
        cost = incident_row(incident, summary, seen("succeeded"), UTC).cost
        assert cost.lost_s == pytest.approx(sum(cost.by_cause.values()), abs=1e-9)
        timeline = incident_document(incident, summary, seen("succeeded"), zone=UTC).timeline
        assert "repeated-steps" not in dict(timeline)
    whole = job_document(summary, seen("succeeded"), zone=UTC).cost
    each = [incident_row(one, summary, seen("succeeded"), UTC).cost.lost_s for one in summary.incidents]
    assert whole.lost_s == pytest.approx(sum(each), abs=1e-6)
    assert whole.steps_repeated == 6


def test_the_rungs_that_were_not_taken_say_why():
    summary = summary_of(one_failure_and_on())
    rungs = incident_document(summary.incidents[0], summary, seen(), zone=UTC).rungs
    assert [(rung.rung, rung.chosen) for rung in rungs] == [
        ("reschedule-unconditional", True),
        ("in-place", False),
        ("hang-restart", False),
        ("replace-worker", False),
        ("reschedule-isolated", False),
    ]
    assert rungs[2].why == "the job did not hang"
    assert rungs[2].says.zh == "作业没有挂起"
    assert rungs[0].says.zh.startswith("重新调度作业，原因：")


def test_a_failed_job_says_what_would_have_had_to_be_allowed():
    events = [submitted(), *started(START_S + 1, 1), *failure(START_S + 50, 1, 1)]
    summary = summary_of(events, Policy())
    rungs = incident_document(summary.incidents[0], summary, seen("failed", policy=Policy()), zone=UTC).rungs
    told = {rung.rung: rung.why for rung in rungs if not rung.chosen}
    assert told["reschedule-unconditional"] == "no restart is allowed (--max-restarts is not set)"


def test_evidence_is_in_order_with_its_place_and_the_first_error_marked():
    summary = summary_of(one_failure_and_on())
    document = incident_document(summary.incidents[0], summary, seen(), zone=UTC)
    assert [row.id for row in document.evidence] == ["1.1", "1.2", "1.3"]
    assert [row.kind for row in document.evidence] == ["exit", "exit", "line"]
    (first,) = [row for row in document.evidence if row.first_error]
    place = first.place
    assert (place.file, place.line) == ("attempt-001/worker-0/rank-2.log", 1812)
    assert (place.attempt, place.worker, place.rank) == (1, 0, 2)
    assert (first.who.rank, first.who.node) == (2, "gpu-03")
    assert document.evidence_total == 3


def test_of_much_evidence_the_first_error_is_kept():
    lines = tuple(Evidence(text=f"line {number}", at_s=START_S + number) for number in range(500))
    verdict = msgspec.structs.replace(OOM, evidence=lines, first_error=lines[490])
    events = [submitted(), *started(START_S + 1, 1), *failure(START_S + 50, 1, 1)]
    events[-2] = VerdictReached(at_s=START_S + 51, incident=1, verdict=verdict)
    summary = summary_of(events, Policy())
    document = incident_document(summary.incidents[0], summary, seen("failed"), zone=UTC)
    assert (len(document.evidence), document.evidence_total) == (EVIDENCE_MAX, 502)
    assert sum(row.first_error for row in document.evidence) == 1
    assert any(row.first_error for row in kept_evidence(document.evidence, 8))


def test_checks_files_and_lines_around_are_in_the_document():
    events = [submitted(), *started(START_S + 1, 1), *failure(START_S + 50, 1, 1)]
    told = CheckFinding(
        node="gpu-03", check="gpu-alive", status="fail", text="it is gone", advice="Reboot it."
    )
    events.insert(
        -2,
        NodesChecked(
            at_s=START_S + 50.6, attempt=1, nodes=("gpu-03",), context="on-failure", troubles=(told,)
        ),
    )
    summary = summary_of(events)
    first = OOM.first_error
    scene = Scene(
        stacks=(StackGroup(ranks=(0, 1), frames=("train.py:1 main",)),),
        has_bundle=True,
        surroundings={(first.file, first.text): Surroundings(77, ("before",), ("after",))},
    )
    document = incident_document(summary.incidents[0], summary, seen("recovering"), scene, zone=UTC)
    assert [check.check for check in document.checks] == ["gpu-alive"]
    (row,) = [row for row in document.evidence if row.first_error]
    assert (row.before, row.after, row.place.offset) == (("before",), ("after",), 77)
    assert document.has_bundle
    assert document.stacks == scene.stacks


def test_a_dead_rank_has_ended_though_nobody_saw_it():
    summary = summary_of([submitted(), *started(START_S + 1, 1), *steps(START_S + 5, 1, 1, 9)])
    document = job_document(summary, seen("unsupervised", living=frozenset({1})), zone=UTC)
    assert [(rank.rank, rank.ended, rank.code) for rank in document.ranks] == [
        (0, True, None),
        (1, False, None),
    ]
    assert "training" not in document.phase_words
    whole = job_document(summary, seen("dead", living=frozenset(), state_since_s=START_S + 20), zone=UTC)
    assert all(rank.ended for rank in whole.ranks)
    assert whole.attempts[-1].ended_at_s == START_S + 20


def test_documents_can_be_sent_and_read_again():
    summary = summary_of(hang_then_lost_node_then_success())
    job = job_document(summary, seen("succeeded", steps=NOW), zone=UTC)
    assert msgspec.json.decode(msgspec.json.encode(job), type=JobDocument) == job
    incident = incident_document(summary.incidents[1], summary, seen("succeeded"), zone=UTC)
    assert msgspec.json.decode(msgspec.json.encode(incident), type=IncidentDocument) == incident


def test_an_error_line_that_led_to_an_incident_is_no_finding_that_stopped_nothing():
    summary = summary_of(one_failure_and_on())
    found_s = summary.incidents[0].found_at_s
    lines = [
        LogLine(seq=1, at_s=found_s - 500, kind="news", text="a survived error", finding="log"),
        LogLine(seq=2, at_s=found_s - 2, kind="news", text="CUDA out of memory", finding="log"),
        LogLine(seq=3, at_s=found_s - 2, kind="news", text="slower", finding="slowdown"),
    ]
    document = job_document(summary, seen(), lines)
    assert [line.text for line in document.findings] == ["a survived error", "slower"]
