"""A job whose processes are all gone when the test is over."""

import pytest

from agent.running import Job, wait_for


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "worker-0"
    folder.mkdir()
    one = Job(folder)
    yield one
    one.end()
    wait_for("the end of its processes", lambda: not one.marked())
