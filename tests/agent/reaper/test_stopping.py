"""How long a launcher whose ranks are gone may go on, and what it is that copies their output."""

import os
import subprocess
import sys

import pytest

from agent.reaper.test_reaper import SLEEPER
from holdfast.agent.reaper.stopping import DOOMED_GRACE_S, doom_s, may_be_copied


@pytest.fixture
def rank():
    """Starts processes that are taken for ranks, and ends them. Their output is this process's, the launcher's."""
    started = []

    def start(**files):
        started.append(subprocess.Popen([sys.executable, "-S", "-c", SLEEPER], **files))
        return started[-1].pid

    yield start
    for one in started:
        one.kill()
        one.communicate()


def test_a_launcher_that_copies_nothing_has_its_time_from_its_sigterm_on():
    assert doom_s(10.0, 10.05, is_copied=False) == 10.0 + DOOMED_GRACE_S
    assert doom_s(10.0, 15.0, is_copied=False) == 15.0
    assert doom_s(10.0, 15.0, is_copied=True) == 15.0 + DOOMED_GRACE_S


def test_ranks_that_write_where_the_launcher_does_are_not_copied(rank):
    assert not may_be_copied([rank(), rank()], os.getpid())


@pytest.mark.parametrize("files", [{"stdout": subprocess.PIPE}, {"stderr": subprocess.PIPE}])
def test_ranks_with_a_pipe_may_be_copied(rank, files):
    assert may_be_copied([rank(), rank(**files)], os.getpid())


def test_ranks_with_a_file_of_their_own_may_be_copied(rank, tmp_path):
    with (tmp_path / "log").open("w") as file:
        assert may_be_copied([rank(stdout=file)], os.getpid())


def test_what_cannot_be_read_may_be_copied(rank):
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.communicate()
    assert may_be_copied([gone.pid], os.getpid())
    assert may_be_copied([rank()], None)
    assert may_be_copied([], os.getpid())
