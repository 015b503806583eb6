"""`holdfast run --page`: the page of one job, in a process beside the training, for as long as the run lasts."""

import os
import re
import signal

import pytest

from holdfast.client import Client, NotThere
from run.place import wait_for

TRAINS = "import time\nfor n in range(10**6): print('step', n, flush=True); time.sleep(0.05)"


def address(run):
    found = wait_for(
        lambda: f"the address:\n{run.err}", lambda: re.search(r"page: (http\S+?)jobs/t", run.err)
    )
    return found[1]


def pages(runs):
    """The processes that serve pages."""
    return [pid for pid in runs.left() if b"holdfast.web.job_page" in command(pid)]


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_a_run_serves_its_page_until_it_ends(runs):
    runs.python("print('over')", "--job", "other").code()
    run = runs.start("run", "--job", "t", "--page", "--", "python3", "-S", "-c", TRAINS)
    with Client(address(run)) as client:
        wait_for("its step", lambda: (client.job("t").row.step or 0) > 5)
        assert client.me().by == "loopback"
        with pytest.raises(NotThere):
            client.job("other")
        assert [row.id for row in client.jobs().jobs] == ["t"]
        client.stop("t")
    run.code()
    wait_for("the end of the page", lambda: not pages(runs))
    assert not list(runs.job().glob("page-*"))


def test_a_page_that_dies_costs_the_training_nothing(runs):
    run = runs.start("run", "--job", "t", "--page", "127.0.0.1:0", "--", "python3", "-S", "-c", TRAINS)
    address(run)
    (pid,) = pages(runs)
    os.kill(pid, signal.SIGKILL)
    wait_for("another one", lambda: pages(runs) and pages(runs) != [pid])
    assert run.process.poll() is None and not runs.events("rank-exited")
    run.signal(signal.SIGTERM)
    run.code()


def test_a_page_that_cannot_be_served_is_said_and_the_training_goes_on(runs):
    run = runs.start("run", "--job", "t", "--page", "203.0.113.7:1", "--", "python3", "-S", "-c", TRAINS)
    run.says("the web page of the job is no longer served")
    assert "token" in (runs.job() / "page.log").read_text()
    run.signal(signal.SIGTERM)
    run.code()
