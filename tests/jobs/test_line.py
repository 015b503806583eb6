"""The connection of a user command to a controller, over real sockets."""

import threading

import pytest

from holdfast.jobs.line import JobLine, LineLost
from holdfast.journal.jobdir import StateDir
from holdfast.link.arrived import Joined
from holdfast.link.hub import Hub
from holdfast.model.calls import RequestDone
from holdfast.observe.clock import JobClock
from holdfast.parsers.call_words import encode
from holdfast.supervise.controller_files import job_secret, publish


@pytest.fixture
def job(tmp_path):
    return StateDir(tmp_path).create("llama", 0.0)


@pytest.fixture
def hub(job):
    made = Hub(secret=job_secret(job), listen=[("127.0.0.1", 0)], clock=JobClock())
    publish(job, made.addresses, "")
    yield made
    made.close()


@pytest.fixture
def line(job, hub):
    made = JobLine(job, job_secret(job), JobClock())
    connecting = threading.Thread(target=made.connect, args=(60.0,))
    connecting.start()
    joined = []
    while connecting.is_alive():
        joined += [one.peer for one in hub.turn() if isinstance(one, Joined)]
    yield made, joined[0]
    made.close()


def test_the_last_answer_of_a_controller_that_ends_arrives(hub, line):
    ours, client = line
    done = RequestDone(call="call-1", done=True, text="job llama is being stopped")
    assert hub.say(client, encode(done))
    hub.close()  # before the client reads: it finds answer and goodbye together
    words = []
    while not words:
        words = ours.words(60.0)
    assert words == [done]
    with pytest.raises(LineLost, match="the controller has ended"):
        ours.words(60.0)
