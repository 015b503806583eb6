"""Whose nodes a run clears away before it begins its own: those of jobs that are over, and nobody notices the looking."""

import msgspec
import pytest

from cli.journals import COMMAND, POLICY, hang_then_lost_node_then_success, started, submitted, write_job
from holdfast.journal.store import Store
from holdfast.model.settings import RunSettings
from holdfast.supervise import engine_choice


@pytest.fixture
def asked(state):
    """asked(name, events): whether the job of these events is over, and whether its lock was touched."""

    def ask(name, events):
        job = write_job(state, name, events)
        store = Store.open(job.journal_path)
        settings = RunSettings(command=COMMAND, state_dir=str(state.root), policy=POLICY)
        store.set_meta("job", msgspec.json.encode({"settings": settings, "cwd": "/"}))
        store.close()
        (job.path / "lock").unlink(missing_ok=True)
        return engine_choice._is_over(job.path), (job.path / "lock").exists()

    return ask


def test_a_job_that_goes_on_is_not_locked_for_who_takes_it_up_would_be_refused(asked):
    events = [submitted(), *started(submitted().at_s + 1, 1)]
    assert asked("on", events) == (False, False)


def test_a_job_that_has_ended_is_over_once_its_controller_is_gone(asked, state):
    assert asked("ended", hang_then_lost_node_then_success()) == (True, True)
    job = state.job("ended")
    with job.lock():
        assert not engine_choice._is_over(job.path)


def test_a_folder_that_is_gone_is_over_and_one_without_a_journal_is_not(tmp_path):
    assert engine_choice._is_over(tmp_path / "gone")
    assert not engine_choice._is_over(tmp_path)
