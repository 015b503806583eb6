"""Connections of real processes, and attempts to reach a port: no Slurm is needed."""

import socket
import subprocess
import sys
import time

import pytest
from msgspec.structs import replace

from holdfast.engines.slurm.lines import EVERY_S, Lines, has_none
from holdfast.engines.slurm.move import Plan, plan_in
from holdfast.engines.slurm.probe import Probe
from slurm.kit import wait_for

CLIENT = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); sys.stdin.read()"


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def client(server):
    """A process that is connected to us, and our end of it."""
    words = [sys.executable, "-S", "-c", CLIENT, str(server.getsockname()[1])]
    process = subprocess.Popen(words, stdin=subprocess.PIPE)
    end, _ = server.accept()
    yield process, end
    end.close()
    process.stdin.close()
    process.wait()


def test_a_connection_that_was_closed_is_cut_and_one_that_never_stood_is_not(client):
    process, end = client
    pids = {"n1": process.pid, "n2": 1 << 22}  # there is no such process
    lines = Lines()
    assert lines.cut(pids) == set()
    end.close()
    wait_for("the end of the connection", lambda: has_none(process.pid))
    assert lines.cut(pids) == {"n1"}
    assert lines.cut({"n2": 1 << 22}) == set()
    assert Lines().cut(pids) == set()  # who has not seen it stand


def test_lines_are_looked_at_in_turns():
    lines = Lines()
    assert [lines.due(at_s) for at_s in (0.0, EVERY_S / 2, EVERY_S)] == [True, False, True]


def answered(address, port):
    probe = Probe(address, port, time.monotonic(), 5.0)
    wait_for("an answer", lambda: probe.look(time.monotonic()) is not None)
    return probe.answer, probe.refused


def test_a_machine_that_takes_or_refuses_a_connection_is_there(server):
    port = server.getsockname()[1]
    assert answered("127.0.0.1", port) == (True, False)
    server.close()
    assert answered("127.0.0.1", port) == (True, True)
    assert answered("no address", port) == (False, False)


def test_who_answers_none_of_several_packets_in_time_is_not(server):
    """A listener whose queue is full drops what comes, as a machine does that is gone."""
    server.listen(0)
    full = [Probe("127.0.0.1", server.getsockname()[1], 0.0, 1.0) for _ in range(2)]
    probe = Probe("127.0.0.1", server.getsockname()[1], 0.0, 1.0)
    assert [probe.look(at_s) for at_s in (0.0, 0.3, 0.6, 0.9, 1.1)] == [None, None, None, None, False]
    for one in full:
        one.close()


def test_a_move_is_requested_in_one_call_and_else_in_several(tmp_path):
    plan = Plan(job="7", restarts=1, without="n3", nodes="4-6")
    update = ["scontrol", "update", "JobId=7"]
    assert plan.words() == [
        [*update, "ExcNodeList=n3", "NumNodes=4-6", "StartTime=now"],
        [*update, "ExcNodeList=n3"],
        [*update, "NumNodes=4-6"],
        [*update, "StartTime=now"],
    ]
    assert plan.fewer_words() == []
    spared = replace(plan, tasks="5", least="4", least_tasks="4")
    assert spared.words()[0] == [*update, "ExcNodeList=n3", "NumNodes=4-6", "NumTasks=5", "StartTime=now"]
    assert spared.fewer_words() == [*update, "NumNodes=4", "NumTasks=4", "StartTime=now"]
    assert plan_in(tmp_path) is None
    (tmp_path / "slurm-move.json").write_text('{"job": "7"}')
    assert plan_in(tmp_path) is None
    (tmp_path / "slurm-move.json").write_text('{"job": "7", "restarts": 1, "without": "n3", "nodes": "4-6"}')
    assert plan_in(tmp_path) == plan
