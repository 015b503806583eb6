"""The state folder: names, layout, locks, and what is said when one is refused."""

import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.journal.jobdir import (
    NAME,
    BadJobName,
    JobExists,
    JobInUse,
    NoSuchJob,
    StateDir,
    StateUnwritable,
    check_name,
)
from journal.processes import Writer


def test_the_layout_is_the_documented_one(tmp_path):
    job = StateDir(tmp_path).create("llama", 1.0)
    assert job.name == "llama"
    assert job.path == tmp_path / "jobs" / "llama"
    assert job.journal_path == job.path / "journal.db"
    assert job.attempt(1) == job.path / "attempt-001"
    assert job.worker(12, 3) == job.path / "attempt-012" / "worker-3"
    assert job.incidents == job.path / "incidents"


def test_jobs_come_newest_first(tmp_path):
    state = StateDir(tmp_path / "state")
    assert state.jobs() == []
    for name, at_s in (("b", 10.0), ("c", 30.0), ("a", 20.0)):
        state.create(name, at_s)
    (tmp_path / "state" / "jobs" / ".hidden").mkdir()
    (tmp_path / "state" / "jobs" / "a-file").write_text("")
    assert [job.name for job in state.jobs()] == ["c", "a", "b"]
    assert state.job("a").created_at_s() == 20.0


def test_made_up_names_are_valid_and_differ(tmp_path):
    state = StateDir(tmp_path)
    names = {state.create(None, 1767225600.0).name for _ in range(30)}
    assert len(names) == 30
    assert all(re.fullmatch(r"\d{4}-\d{4}-[a-z2-9]{3}", name) for name in names)


@pytest.mark.parametrize(
    "name, reason",
    [
        ("", "empty"),
        ("a" * 65, "65 characters"),
        ("-a", "begins with '-'"),
        ("..", "begins with '.'"),
        ("a/b c/", "not '/ '"),
        ("a\n", "not '\\n'"),
        ("作业", "begins with"),
    ],
)
def test_bad_names_are_refused_with_the_reason(tmp_path, name, reason):
    for call in (lambda: StateDir(tmp_path).create(name, 0.0), lambda: StateDir(tmp_path).job(name)):
        with pytest.raises(BadJobName) as told:
            call()
        assert reason in str(told.value)
    assert os.listdir(tmp_path) == []


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=70) | st.from_regex(NAME))
def test_a_name_is_taken_only_when_it_is_one_harmless_part_of_a_path(name):
    try:
        check_name(name)
    except BadJobName:
        return
    assert 0 < len(name) <= 64 and name.isascii() and not set(name) & set("/\0\n ") and name[0].isalnum()


def test_a_used_name_is_refused_with_a_free_one(tmp_path):
    state = StateDir(tmp_path)
    state.create("llama", 0.0)
    assert state.create("llama", 5.0).created_at_s() == 0.0  # nothing was run yet
    for name, proposed in (("llama", "llama-2"), ("llama-2", "llama-3")):
        state.create(name, 0.0).journal_path.write_text("x")
        with pytest.raises(
            JobExists, match=rf"holdfast attach {name} reattaches to it; .* --job {proposed}\b"
        ):
            state.create(name, 0.0)
    with pytest.raises(NoSuchJob, match="no job gpt"):
        state.job("gpt")


def test_one_job_is_run_once_at_a_time(tmp_path):
    state = StateDir(tmp_path)
    job = state.create("llama", 0.0)
    with job.lock() as lock:
        assert lock.held
        with pytest.raises(JobInUse, match=rf"job llama is being run by process {os.getpid()}.*--job"):
            state.job("llama").lock()
        job.journal_path.write_text("x")
        with pytest.raises(JobInUse):
            state.create("llama", 0.0)
    job.lock().release()


def test_a_killed_holder_frees_the_job(tmp_path):
    job = StateDir(tmp_path).create("llama", 0.0)

    def work(acknowledge):
        lock = job.lock()
        acknowledge(int(lock.held))
        os.read(os.pipe()[0], 1)  # waits to be killed

    holder = Writer(work)
    holder.wait_for_acknowledgements(1)
    with pytest.raises(JobInUse) as told:
        job.lock()
    assert told.value.pid == holder.pid
    holder.kill()
    job.lock().release()


def test_a_state_folder_that_cannot_be_written_is_distinguished(tmp_path):
    (tmp_path / "file").write_text("")
    state = StateDir(tmp_path / "file" / "state")
    with pytest.raises(StateUnwritable, match="cannot be written"):
        state.create(None, 0.0)
    assert isinstance(StateUnwritable(), OSError) and state.jobs() == []
