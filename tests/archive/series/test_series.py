"""Series read from a job's folder: steps of its journal, samples of its ranks."""

from pathlib import Path

import pytest

from cli.journals import START_S, one_failure_and_on, steps, write_events, write_job
from holdfast.agent.watch.sample_ring import SampleRing
from holdfast.archive.series.heat import NoSamples, heat_map
from holdfast.archive.series.steps import StepTimes
from holdfast.journal.jobdir import JobDir, StateDir
from holdfast.journal.store import Store
from holdfast.model.documents.jobs import Mark
from holdfast.model.nodes.samples import DeviceSample, Moment
from holdfast.model.policy import Policy
from holdfast.model.samples import RankSample


def test_steps_are_read_once_and_then_what_is_new(tmp_path: Path) -> None:
    job = write_job(StateDir(tmp_path), "llama", one_failure_and_on())
    times = StepTimes()
    assert len(times.of(job).step) == 160
    store = Store.open(job.journal_path)
    write_events(store, steps(START_S + 500, 2, 141, 150), Policy())
    store.close()
    found = times.of(job)
    assert len(found.step) == 170 and found.step[-1] == 150 and found.attempts[-1] == 2


def test_a_new_journal_of_an_old_name_begins_anew(tmp_path: Path) -> None:
    job = write_job(StateDir(tmp_path), "llama", one_failure_and_on())
    times = StepTimes()
    times.of(job)
    for path in job.path.glob("journal.db*"):
        path.unlink()
    store = Store.open(job.journal_path)
    write_events(store, steps(START_S + 9_000, 1, 1, 3), Policy())
    store.close()
    assert list(times.of(job).step) == [1, 2, 3]


@pytest.fixture
def sampled(tmp_path: Path) -> JobDir:
    job = JobDir(tmp_path / "llama")
    for worker in range(2):
        folder = job.worker(1, worker)
        folder.mkdir(parents=True)
        ring = SampleRing(folder)
        for second in range(20):
            ranks = tuple(
                RankSample(
                    at_s=100.0 + second,
                    rank=rank,
                    pid=10 + rank,
                    state="S",
                    tree_cpu_s=float(second * (rank + 1)),
                    step=second - rank,
                )
                for rank in (2 * worker, 2 * worker + 1)
            )
            devices = tuple(DeviceSample(index=place, utilization=0.25 * (place + 1)) for place in range(2))
            ring.add(Moment(at_s=100.0 + second, ranks=ranks, devices=devices))
            ring.flush()
        ring.close()
    return job


def test_a_heat_map_has_a_row_for_each_rank(sampled: JobDir) -> None:
    mark = Mark(kind="incident", at_s=105.0, incident=1)
    heat = heat_map(sampled, 1, "cpu", from_s=None, to_s=None, columns=5, incidents=(mark,))
    assert heat.ranks == (0, 1, 2, 3) and heat.unit == "cores" and heat.incidents == (mark,)
    assert [row[2] for row in heat.values] == [1.0, 2.0, 3.0, 4.0]
    behind = heat_map(sampled, 1, "step", from_s=None, to_s=None, columns=2)
    assert [row[0] for row in behind.values] == [0.0, 1.0, 2.0, 3.0]
    used = heat_map(sampled, 1, "utilisation", from_s=110.0, to_s=115.0, columns=100)
    assert [row[0] for row in used.values] == [25.0, 50.0, 25.0, 50.0] and len(used.values[0]) == 6


@pytest.mark.parametrize("metric", ["power", "nonsense"])
def test_what_was_not_sampled_is_said(sampled: JobDir, metric: str) -> None:
    with pytest.raises(NoSamples, match=metric):
        heat_map(sampled, 1, metric, from_s=None, to_s=None, columns=5)
