"""What an incident leaves as evidence."""

import json
import math
import tarfile

import zstandard

from holdfast.agent.bundle import (
    WORKERS_WHOLE,
    BundleWriter,
    JobScene,
    Scene,
    WorkerScene,
    members,
    sample_lines,
)
from holdfast.agent.watch.sample_ring import SampleRing
from holdfast.core.verdict.first import first_verdict
from holdfast.model.failures import Failure, RankExit
from holdfast.model.nodes.samples import DeviceSample, Moment, NodeSample, RasReport
from holdfast.model.samples import RankSample
from holdfast.model.steps import StepFinding, StepRecord
from holdfast.observe.logs.bundles import FAILURE, read_member


def scene(folder, **changed):
    failure = Failure(exits=(RankExit(rank=1, pid=7, code=-9, at_s=5.0),))
    usual = {
        "incident": 3,
        "attempt": 1,
        "folder": folder,
        "failure": failure,
        "verdict": first_verdict(failure),
        "offsets": {},
        "kernel": (b"NVRM: a line",),
        "kernel_why_not": "",
        "samples": (RankSample(rank=1, pid=7, at_s=4.0, state="S"),),
        "settings": b"{}",
        "env": {"NCCL_DEBUG": "WARN", "HOME": "/home/ada", "NCCL_TOKEN": "hf_abcdefghijklmnopqrstuvwx"},
        "at_s": 5.0,
    }
    return Scene(**{**usual, **changed})


def written(tmp_path, **changed):
    worker = tmp_path / "attempt-001" / "worker-0"
    worker.mkdir(parents=True)
    (worker / "rank-1.log").write_text("step 1\npassword=hunter2hunter2\n")
    (worker / "rank-1.log.idx").write_bytes(b"\0")
    (worker / "rank-1.stacks").write_text("File train.py\n")
    said = []
    writer = BundleWriter(tmp_path / "incidents", said.append)
    path = writer.write(scene(worker, **changed))
    writer.wait(60)
    return path, said


def names(path):
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            return [member.name for member in archive]


def test_all_that_tells_is_in_it(tmp_path):
    path, said = written(tmp_path)
    assert path.name == "incident-003.tar.zst"
    assert said == []
    assert names(path) == [
        "verdict.json",
        "failure.json",
        "settings.json",
        "versions.json",
        "environment.json",
        "kernel.log",
        "samples.jsonl",
        "attempt-001/worker-0/rank-1.stacks",
        "attempt-001/worker-0/rank-1.log",
    ]


def test_the_last_steps_and_what_was_found_in_them_are_in_it(tmp_path):
    slow = StepFinding(kind="slowdown", text="slower since step 40", step=44, numbers={"ratio": 1.5})
    steps = (StepRecord(step=43, time_s=0.2), StepRecord(step=44, time_s=0.3, loss=math.nan))
    path, _ = written(tmp_path, steps=steps, findings=(slow,))
    lines = [json.loads(line) for line in read_member(path, "samples.jsonl").splitlines()]
    assert [(one["step"], one["time_s"]) for one in lines if one["kind"] == "step"] == [(43, 0.2), (44, 0.3)]
    (found,) = [one for one in lines if one["kind"] == "step-finding"]
    assert (found["finding"], found["numbers"]) == ("slowdown", {"ratio": 1.5})


def test_the_ends_of_ranks_are_read_back(tmp_path):
    path, _ = written(tmp_path)
    assert json.loads(read_member(path, FAILURE))["exits"][0]["rank"] == 1


def test_secrets_and_what_is_nobodys_business_stay_here(tmp_path):
    path, _ = written(tmp_path)
    environment = json.loads(read_member(path, "environment.json"))
    assert "HOME" not in environment
    assert "abcdefghijklm" not in environment["NCCL_TOKEN"]


def test_that_the_kernels_log_was_not_read_is_evidence_too(tmp_path):
    path, _ = written(tmp_path, kernel=(), kernel_why_not="no right to read it")
    assert read_member(path, "kernel-not-read.txt") == b"no right to read it\n"


def test_a_bundle_that_cannot_be_written_is_reported_and_does_no_harm(tmp_path):
    (tmp_path / "incidents").write_text("in the way")
    path, said = written(tmp_path)
    assert "could not be saved" in said[0]
    assert not path.is_file()


def test_what_is_no_bundle_has_no_members(tmp_path):
    (tmp_path / "x.tar.zst").write_bytes(b"no archive")
    assert read_member(tmp_path / "x.tar.zst", FAILURE) is None
    assert read_member(tmp_path / "missing.tar.zst", FAILURE) is None


def test_samples_are_those_of_the_ring_in_full_for_two_minutes_and_thinned_before(tmp_path):
    worker = tmp_path / "attempt-001" / "worker-0"
    worker.mkdir(parents=True)
    ring = SampleRing(worker)
    for at_s in range(1000):
        sample = RankSample(rank=0, pid=7, at_s=float(at_s), state="S")
        ras = RasReport(nccl="2.27.3") if at_s == 995 else None
        ring.add(
            Moment(
                at_s=float(at_s),
                ranks=(sample,),
                node=NodeSample(dirty_bytes=at_s),
                devices=(DeviceSample(index=0, power_w=71.0),),
                devices_age_s=0.5,
                ras=ras,
            )
        )
        ring.flush()
    ring.close()
    newest = RankSample(rank=0, pid=7, at_s=1000.0, state="T")
    lines = [json.loads(line) for line in sample_lines(scene(worker, at_s=1000.0, samples=(newest,)))]
    ranks = [line["at_s"] for line in lines if line["kind"] == "rank"]
    assert ranks[-1] == 1000.0 and ranks[-121:-1] == [float(at_s) for at_s in range(880, 1000)]
    assert ranks[:-121] == [float(at_s) for at_s in range(0, 880, 10)]
    assert {line["kind"] for line in lines} == {"rank", "node", "device", "ras"}
    device = next(line for line in lines if line["kind"] == "device")
    assert (device["power_w"], device["age_s"], device["at_s"]) == (71.0, 0.5, 0.0)


def test_the_ring_itself_is_not_in_it(tmp_path):
    worker = tmp_path / "attempt-001" / "worker-0"
    worker.mkdir(parents=True)
    for name in ("samples.new", "samples.old"):
        (worker / name).write_bytes(b"x" * 100)
    assert not [one.name for one in members(scene(worker)) if "samples." in one.name and "worker" in one.name]


def test_of_many_workers_the_first_are_whole_and_of_the_others_what_is_small(tmp_path):
    workers = []
    for worker in range(WORKERS_WHOLE + 2):
        folder = tmp_path / "attempt-002" / f"worker-{worker}"
        folder.mkdir(parents=True)
        (folder / "stdout").write_text(f"of {worker}, token=hf_abcdefghijklmnopqrstuvwx\n")
        (folder / f"rank-{worker}.error.json").write_text("{}")
        workers.append(WorkerScene(worker=worker, folder=folder))
    one = scene(tmp_path)
    job = JobScene(
        incident=4,
        attempt=2,
        failure=one.failure,
        verdict=one.verdict,
        settings=b"{}",
        env={},
        at_s=5.0,
        workers=(workers[-1], *workers[:-1], WorkerScene(worker=99, folder=tmp_path / "not" / "seen")),
    )
    said = []
    writer = BundleWriter(tmp_path / "incidents", said.append)
    path = writer.write_job(job)
    writer.wait(60)
    found = names(path)
    assert not said and found[:2] == ["verdict.json", FAILURE]
    last = WORKERS_WHOLE + 1
    assert f"attempt-002/worker-{last}/stdout" in found and "attempt-002/worker-6/stdout" in found
    assert f"attempt-002/worker-{last - 1}/stdout" not in found
    assert f"attempt-002/worker-{last - 1}/rank-{last - 1}.error.json" in found
