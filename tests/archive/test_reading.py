"""A job read from its folder: beside a writer, of other versions, damaged, and who drives it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from agent.running import wait_for_environ
from cli.conftest import place as place
from cli.journals import (
    POLICY,
    START_S,
    failure,
    hang_then_lost_node_then_success,
    one_failure_and_on,
    started,
    steps,
    submitted,
    write_job,
)
from holdfast.archive.job import read, read_incident, read_job
from holdfast.archive.state import ELSEWHERE_S
from holdfast.jobs.record import RecordUnreadable
from holdfast.journal.jobdir import StateDir
from holdfast.journal.rows import Row
from holdfast.journal.store import Store, open_reader
from holdfast.model.events import FindingNoted, StopRequested


@pytest.fixture
def state(tmp_path):
    return StateDir(tmp_path)


def here(state, events, **more):
    return write_job(state, "llama", events, host=socket.gethostname(), **more)


def test_a_supervised_job_is_described_by_its_journal(state):
    job = here(state, one_failure_and_on())
    with job.lock():
        row = read(job).row()
    assert row.state == "training"


def test_without_supervisor_and_processes_it_is_dead(state):
    job = here(state, one_failure_and_on())
    reading = read(job)
    assert reading.row().state == "dead"
    assert reading.truth.since_s == pytest.approx(START_S + 192)
    assert all(rank.ended for rank in reading.document().ranks)


def test_a_process_of_the_attempt_makes_it_unsupervised(state):
    job = here(state, [submitted(), *started(START_S + 1, 1)])
    folder = job.worker(1, 0)
    folder.mkdir(parents=True)
    pid = os.posix_spawn(
        "/bin/sleep",
        ["sleep", "100"],
        {"HOLDFAST_WORKER_DIR": str(folder), "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"},
    )
    wait_for_environ(pid)
    try:
        truth = read(job).truth
        assert (truth.state, truth.living) == ("unsupervised", frozenset({1}))
        assert truth.is_being_ended  # it was not detached
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # SIGKILL takes effect later on a busy machine
    assert read(job).truth.state == "dead"  # a zombie does not live
    os.waitpid(pid, 0)


def test_a_rank_whose_pid_is_of_another_namespace_lives_with_its_worker(state):
    job = here(state, [submitted(), *started(START_S + 1, 1)])
    folder = job.worker(1, 0)
    folder.mkdir(parents=True)
    facts = [{"kind": "rank-started", "t": time.time(), "pid": 2**22 + rank, "rank": rank} for rank in (0, 1)]
    facts.append({"kind": "rank-exited", "t": time.time(), "pid": 2**22 + 1, "rank": 1, "code": 1})
    (folder / "reaper.jsonl").write_text("".join(json.dumps(fact) + "\n" for fact in facts))
    pid = os.posix_spawn("/bin/sleep", ["sleep", "100"], {"HOLDFAST_WORKER_DIR": str(folder)})
    wait_for_environ(pid)
    try:
        assert read(job).truth.living == frozenset({0})
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert read(job).truth.state == "dead"


def test_what_a_person_runs_on_the_worker_is_no_rank(state):
    job = here(state, [submitted(), *started(START_S + 1, 1)])
    folder = job.worker(1, 0)
    folder.mkdir(parents=True)
    pid = os.posix_spawn("/bin/sleep", ["sleep", "100"], {"HOLDFAST_WORKER_DIR": f"{folder}/"})
    wait_for_environ(pid)
    try:
        assert read(job).truth.state == "dead"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_ended_jobs_are_distinguished(state):
    ends = {
        "SIGTERM was sent to Holdfast": "stopped",
        "Slurm gives the nodes to a job of higher priority": "preempted",
        "the Slurm job was cancelled (cancelled)": "stopped",
    }
    for number, (reason, expected) in enumerate(ends.items()):
        job = write_job(
            state, f"j{number}", [submitted(), StopRequested(at_s=START_S + 9, reason=reason, code=143)]
        )
        row = read(job).row()
        assert row.state == expected
        assert reason[:20] in row.sentence.text.en
    failed = write_job(
        state, "f", [submitted(), *started(START_S + 1, 1), *failure(START_S + 5, 1, 1)], policy=None
    )
    assert read(failed).row().state == "failed"
    good = write_job(state, "g", hang_then_lost_node_then_success())
    assert read(good).row().state == "succeeded"


def test_a_job_that_the_scheduler_starts_again_is_preempted(state):
    moved = FindingNoted(
        at_s=START_S + 9, finding="job-moved", text="Slurm requeues the job: it starts again"
    )
    job = here(state, [submitted(), *started(START_S + 1, 1), moved])
    assert read(job).row().state == "preempted"


def test_on_another_machine_a_silent_job_is_unknown(state):
    job = write_job(state, "llama", [submitted(), *started(START_S + 1, 1), *steps(START_S + 5, 1, 1, 5)])
    last_s = START_S + 9
    assert read(job, lambda: last_s + ELSEWHERE_S - 1).truth.state == "training"
    assert read(job, lambda: last_s + ELSEWHERE_S + 1).truth.state == "unknown"


HOLD = """
import fcntl, os, signal, sys
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
os.write(lock, b"%d" % os.getpid())
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_stopped_supervisor_is_said(state):
    job = here(state, one_failure_and_on())
    process = subprocess.Popen([sys.executable, "-S", "-c", HOLD, job.path / "lock"])
    try:
        os.waitpid(process.pid, os.WUNTRACED)
        assert f"the supervisor, process {process.pid}, is stopped" in read(job).document().warnings[0]
    finally:
        process.kill()
        process.wait()


def test_a_damaged_journal_is_shown_as_far_as_it_goes(state):
    job = here(state, one_failure_and_on())
    pages = bytearray(job.journal_path.read_bytes())
    at = pages.rindex(b'"step-reached"')
    pages[at + 5] ^= 1
    job.journal_path.write_bytes(pages)
    document = read_job(job)
    assert any("damaged" in warning for warning in document.warnings)
    assert document.row.incidents == 1


def test_no_journal_is_refused_in_words(state):
    with pytest.raises(RecordUnreadable, match="there is no journal"):
        read(state.create("fresh", START_S))


def test_a_journal_of_an_older_version_reads_as_before(state):
    """Without what newer ones hold: verdicts in Chinese and what else was considered, who asked for the end."""
    stop = StopRequested(at_s=START_S + 500, reason="SIGINT was sent to Holdfast", by="signal")
    new = here(state, [*one_failure_and_on(), stop])
    old = state.create("old", START_S)
    reader, store = open_reader(new.journal_path), Store.open(old.journal_path)
    for key, value in reader.all_meta().items():
        if key in ("job", "policy"):
            store.set_meta(key, value)
    for at_s, kind, event, orders, why, *_ in reader.read_raw():
        store.append([Row(at_s=at_s, kind=kind, event=_older(event), orders=orders, why=why)])
    reader.close()
    store.close()
    reading = read(old)
    assert reading.summary.ended_by == "signal"
    assert reading.incident(1).title.zh == "显存不足：rank 2 ran out of GPU memory"
    assert reading.incident(1).also == {}
    assert reading.summary.incidents == read(new).summary.incidents
    assert read_incident(old, 7) is None


def _older(event):
    told = json.loads(event)
    for fields in (told, told.get("verdict", {})):
        for key in ("title_zh", "advice_zh", "also", "by"):
            fields.pop(key, None)
    return json.dumps(told).encode()


def test_equal_documents_have_equal_tags(state):
    job = write_job(state, "llama", hang_then_lost_node_then_success())
    first, second = read_job(job), read_job(job)
    assert first.etag
    assert first.etag == second.etag
    assert read_incident(job, 1).etag != read_incident(job, 2).etag
    assert POLICY.max_restarts == first.policy["max_restarts"]
