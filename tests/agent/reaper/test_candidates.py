"""Guessed ranks that count before their time, and ends that a launcher hides: real processes under a real reaper."""

import os
import select
import signal
import sys

import pytest

from agent.running import Job, state, wait_for
from holdfast.agent.launch import CommandGone, RankFound, RankGone, Started
from holdfast.agent.reaper.candidates import Candidates, Ended
from holdfast.agent.reaper.guesses import SETTLED_S
from holdfast.agent.reaper.ranks import STEADY_S

TRIES_MAX = 5
SLEEPS = "import time; time.sleep(600)"
# Works more than what has started it, which hides how it ended: as a notebook's client does of its kernel.
CLIENT = """
import subprocess, sys
work = "import time\\nwhile time.process_time() < 3: pass\\nimport os; os._exit(3)"
subprocess.run([sys.executable, "-S", "-c", work])
sys.exit(int(sys.argv[1]))
"""


def guessed_after_s(job, found):
    return found.t - job.all(Started)[0].t


def is_rank_at_once(folder, shows_it):
    """Whether a process is a rank before it has settled, once `shows_it` has been called with its job and pid.

    On a busy machine the reaper may look late: it has a few tries.
    """
    for number in range(TRIES_MAX):
        (folder / str(number)).mkdir()
        job = Job(folder / str(number))
        try:
            pid = job.python(SLEEPS).until(Started).pid
            shows_it(job, pid)
            found = job.until(RankFound, rank=0)
            assert (found.pid, found.source, found.world_size) == (pid, "guess", 1)
            if guessed_after_s(job, found) < SETTLED_S:
                return True
        finally:
            job.end()
            wait_for("the end of its processes", lambda job=job: not job.marked())
    return False


def test_a_process_that_is_stopped_is_a_rank_at_once(tmp_path):
    def stop(_job, pid):
        os.kill(pid, signal.SIGSTOP)
        wait_for("its stop", lambda: state(pid) == "T")

    assert is_rank_at_once(tmp_path, stop)


def test_who_makes_steps_is_a_rank_at_once(tmp_path):
    assert is_rank_at_once(tmp_path, lambda job, _pid: job.running.trains())


def test_who_makes_none_is_a_rank_when_it_has_settled(job):
    job.python(SLEEPS)
    assert guessed_after_s(job, job.until(RankFound, rank=0)) > STEADY_S


def test_an_exit_code_that_the_launcher_hides_is_reported(job):
    job.run([sys.executable, "-S", "-c", CLIENT, "1"])
    job.until(CommandGone, code=1)
    assert (0, 3) in [(one.rank, one.code) for one in job.all(RankGone)]


@pytest.mark.parametrize(
    ("ended", "code", "hidden"),
    [
        (3, 1, [3]),
        (-9, 1, [-9]),
        (3, 3, []),  # passed on
        (-9, 137, []),  # likewise, as a shell does
        (0, 1, []),  # a tool that ended well
        (None, 1, []),  # an older kernel
    ],
)
def test_which_ends_a_launcher_hides(ended, code, hidden):
    candidates = Candidates(select.poll())
    candidates.ended = [Ended(11, 0, ended)]
    assert [one.code for one in candidates.hidden_by(10, code)] == hidden
    assert candidates.hidden_by(11, code) == []  # the command's own end is reported as such
