"""Samples of a job and of a node: what is known is exported, what is not is absent, and few ranks are named."""

import math

import pytest
from msgspec.structs import replace

from core.metrics.test_ledger import FAILURE, START, heard
from holdfast.core.metrics.exposition import SERIES_MAX, bounded
from holdfast.core.metrics.job_samples import AT_FAULT_MAX, PHASES, JobFacts, job_samples, rates_of
from holdfast.core.metrics.node_samples import NodeFacts, OwnFacts, Spooled, node_samples, own_samples
from holdfast.core.metrics.table import BY_NAME
from holdfast.model.nodes.samples import DeviceSample, NodeSample, PortSample
from holdfast.model.state import Ended, HangFault, Incident, Worker
from holdfast.model.steps import StepNow, Straggler
from holdfast.model.verdicts import Culprit, Verdict

FACTS = JobFacts(engine="local", version="1.0")


def of_job(ledger, facts=FACTS, at_s=150.0, state=None):
    return job_samples(state or ledger.state, ledger.now(at_s), facts)


def value(samples, metric, *labels):
    found = [one for one in samples if one.metric == metric and one.labels[1:] == labels]
    assert len(found) <= 1, found
    return found[0].value if found else None


def test_every_sample_has_the_labels_of_its_metric():
    facts = replace(
        FACTS, max_restarts=3, agents=2, last_output_s=9.0, steps=StepNow(total=5, now_s=0.1, loss=math.nan)
    )
    samples = of_job(heard(*START, *FAILURE), facts)
    for one in samples:
        assert len(one.labels) == len(BY_NAME[one.metric].labels), one
    assert len({(one.metric, one.labels) for one in samples}) == len(samples)


def test_exactly_one_phase_is_on():
    samples = of_job(heard(*START))
    on = [one.labels[1] for one in samples if one.metric == "holdfast_job_phase" and one.value]
    assert on == ["running"]
    assert len([one for one in samples if one.metric == "holdfast_job_phase"]) == len(PHASES)


def test_what_is_not_known_is_absent():
    samples = of_job(heard(START[0]))
    for metric in (
        "job_step",
        "job_loss",
        "job_last_output_timestamp_seconds",
        "job_restarts_max",
        "job_outcome",
    ):
        assert value(samples, f"holdfast_{metric}") is None


def test_an_outcome():
    ledger = heard(*START)
    ended = replace(ledger.state, phase=Ended(outcome="failed", code=1, reason="x"))
    samples = of_job(ledger, state=ended)
    assert value(samples, "holdfast_job_outcome", "failed") == 1.0
    assert value(samples, "holdfast_job_outcome", "succeeded") == 0.0


def test_a_hang_and_its_culprit():
    ledger = heard(*START)
    verdict = Verdict(
        category="process_stopped",
        class_="process",
        title="x",
        confidence=1.0,
        culprits=(Culprit(rank=3, worker=1),),
    )
    incident = Incident(
        1, 1, 140.0, faults=(HangFault(hang="stopped", culprits=(3,), reason="x"),), verdict=verdict
    )
    job = replace(ledger.state.job, incident=incident, workers=(Worker("n0"), Worker("n1")))
    samples = of_job(ledger, state=replace(ledger.state, job=job))
    assert value(samples, "holdfast_job_hang") == 1.0
    assert value(samples, "holdfast_incident_open_since_timestamp_seconds") == 140.0
    assert value(samples, "holdfast_rank_at_fault", "n1", "3", "process_stopped") == 1.0
    assert value(samples, "holdfast_ranks_at_fault", "process_stopped") == 1.0


def test_a_job_of_16384_ranks_with_a_thousand_stragglers_names_few_of_them():
    slow = (Straggler(ranks=tuple(range(1_000)), node="n7", ratio=2.0, source="arrivals"),)
    samples = of_job(heard(*START), replace(FACTS, stragglers=slow))
    named = [one for one in samples if one.metric == "holdfast_rank_at_fault"]
    assert len(named) == AT_FAULT_MAX
    assert value(samples, "holdfast_ranks_at_fault", "straggler") == 1_000
    assert value(samples, "holdfast_job_finding_open", "straggler") == 1.0
    assert bounded(samples)[1] == 0
    assert len(samples) < SERIES_MAX


@pytest.mark.parametrize(
    ("batch", "counts", "sequence", "step_s", "samples", "tokens"),
    [
        (256.0, "samples", 4096, 2.0, 128.0, 524_288.0),
        (256.0, "samples", None, 2.0, 128.0, None),
        (4096.0, "tokens", None, 2.0, None, 2_048.0),
        (256.0, "", 4096, 2.0, None, None),
        (None, "samples", 4096, 2.0, None, None),
        (256.0, "samples", 4096, 0.0, None, None),
        (256.0, "samples", 4096, None, None, None),
    ],
)
def test_rates(batch, counts, sequence, step_s, samples, tokens):
    found = rates_of(batch, counts, sequence, step_s)
    assert (found.samples, found.tokens) == (samples, tokens)


def test_a_node():
    device = DeviceSample(
        index=0, utilization=1.0, sm_active=0.02, power_w=120.0, temperature_c=71, memory_used_bytes=5
    )
    port = PortSample(device="mlx5_0", port=1, state="DOWN", errors={"link_downed": 2})
    facts = NodeFacts(
        job="pretrain",
        node="n0",
        version="1.0",
        ranks_running=8,
        devices=(device, DeviceSample(index=1, error="no answer")),
        devices_age_s=0.5,
        sample=NodeSample(ports=(port,)),
        link=Spooled(connected=False, entries=3, memory_bytes=900, dropped=1, lost=0),
    )
    samples = node_samples(facts)
    for one in samples:
        assert len(one.labels) == len(BY_NAME[one.metric].labels), one
    assert value(samples, "holdfast_device_sm_active_ratio", "n0", "0") == 0.02
    assert value(samples, "holdfast_device_power_watts", "n0", "1") is None
    assert value(samples, "holdfast_port_up", "n0", "mlx5_0", "1") == 0.0
    assert value(samples, "holdfast_port_errors_total", "n0", "mlx5_0", "1", "link_downed") == 2
    assert value(samples, "holdfast_link_connected", "n0") == 0.0


def test_a_process_of_holdfast():
    facts = OwnFacts(part="agent", version="1.0", python="3.11", started_s=5.0, cpu_s=1.5)
    samples = own_samples(facts, snapshot_age_s=0.1, exposition_s=0.002, dropped=0)
    for one in samples:
        assert len(one.labels) == len(BY_NAME[one.metric].labels), one
    assert "holdfast_journal_writable" not in {one.metric for one in samples}
