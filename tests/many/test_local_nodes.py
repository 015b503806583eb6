"""Nodes played by this machine: real processes and namespaces, seen through the engine."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.engines.local.hosts import found
from holdfast.engines.local.nodes import LocalNodes, agent_of, clear_leftovers
from holdfast.engines.nodes import EngineRefused, JobPlace
from holdfast.model.nodes.workers import AgentEnded, NodeAlive, NodeDown, NodeReady, NoMoreNodes, SetAside

WAIT_S = 60.0  # only a test that has gone wrong, or a loaded machine, waits so long
# An agent that says what it was given, and then waits.
AGENT = (
    sys.executable,
    "-S",
    "-c",
    "import os, signal, socket, sys\n"
    "for key in sorted(os.environ):\n"
    "    if key.startswith('HOLDFAST_'):\n"
    "        print(f'{key}={os.environ[key]}')\n"
    "print('host', socket.gethostname(), flush=True)\n"
    "signal.pause()\n",
)
KINDS = [
    "processes",
    pytest.param(
        "netns", marks=pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are for root")
    ),
]


class Begun:
    """An engine on a folder, and what it has said so far."""

    def __init__(self, folder, kind, count=3, agent=AGENT):
        self.folder, self.now_s, self.news = folder, 0.0, []
        self.engine = LocalNodes(count, kind, dict(os.environ), lambda: self.now_s, agent)
        addresses = self.engine.listen(folder)
        self.place = JobPlace(
            job="t",
            folder=folder,
            addresses=tuple(f"{one}:4000" for one in addresses),
            secret_file=folder / "secret",
        )
        self.engine.begin(self.place)

    @property
    def hosts(self):
        return found(self.folder)

    def hears(self, wanted):
        """Waits until it has said that; the clock of the engine goes on by a second each look."""
        until_s = time.monotonic() + WAIT_S
        while wanted not in self.news:
            assert time.monotonic() < until_s, f"{wanted} is not among {self.news}"
            self.news += self.engine.turn()
            self.now_s += 1.0
            time.sleep(0.01)
        self.news.clear()

    def agent(self, node):
        until_s = time.monotonic() + WAIT_S
        while not (pid := agent_of(self.hosts, node)) or not self.log(node).endswith("\n"):
            assert time.monotonic() < until_s, f"no agent on {node}: {self.log(node)}"
            time.sleep(0.01)
        return pid

    def log(self, node):
        return (self.folder / "nodes" / node / "agent.log").read_text()


@pytest.fixture
def begun(tmp_path):
    ones = []

    def begin(kind, **more):
        ones.append(Begun(tmp_path, kind, **more))
        return ones[-1]

    yield begin
    for one in ones:
        one.engine.end(0)


def gone(pids):
    """A process has none of its memory left, nor a command line, a moment before it ends."""
    until_s = time.monotonic() + WAIT_S
    while any(map(is_there, pids)):
        assert time.monotonic() < until_s, f"of {pids} some are left"
        time.sleep(0.01)
    return True


def is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("kind", KINDS)
def test_each_node_has_an_agent_that_knows_who_it_is(begun, kind):
    one = begun(kind)
    assert one.engine.nodes == ("node-0", "node-1", "node-2")
    assert one.engine.turn() == [NodeReady(node=name) for name in one.engine.nodes]
    for name in one.engine.nodes:
        one.agent(name)
        said = one.log(name)
        assert f"HOLDFAST_NODE={name}\n" in said
        assert f"HOLDFAST_JOB_FOLDER={one.folder}\n" in said
        assert f"HOLDFAST_CONTROLLER={one.place.addresses[0]}\n" in said
        assert f"HOLDFAST_SECRET_FILE={one.folder / 'secret'}\n" in said
        assert f"HOLDFAST_ADDRESS={one.hosts.address(name)}\n" in said
        assert kind == "processes" or f"host {name}\n" in said


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_that_ends_is_reported_with_its_code_and_started_again(begun, kind):
    one = begun(kind)
    pid = one.agent("node-1")
    os.kill(pid, signal.SIGKILL)
    one.hears(AgentEnded(node="node-1", code=-signal.SIGKILL))
    one.engine.agent_again("node-1")
    one.engine.agent_again("node-1")
    while not agent_of(one.hosts, "node-1"):
        one.engine.turn()
        one.now_s += 1.0
    assert one.agent("node-1") != pid


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_that_crashes_is_down_and_can_be_brought_up_again(begun, kind):
    one = begun(kind)
    pid = one.agent("node-2")
    one.engine.turn()
    one.hosts.crash("node-2")
    one.hears(NodeDown(node="node-2", reason="its machine reports that all its processes have ended"))
    assert gone([pid])
    one.engine.ask("node-2")
    one.hears(NodeDown(node="node-2", reason="it is down"))
    one.engine.agent_again("node-2")  # there is nothing to start it on
    assert one.engine.turn() == []
    one.hosts.boot(["node-2"])
    one.hears(NodeReady(node="node-2"))
    assert one.agent("node-2") != pid


@pytest.mark.parametrize("kind", KINDS)
def test_another_engine_takes_over_what_lives(begun, kind, tmp_path):
    first = begun(kind)
    pids = {name: first.agent(name) for name in ("node-0", "node-1")}
    first.hosts.crash("node-2")
    while first.hosts.holder("node-2") is not None:  # it takes a moment to end
        time.sleep(0.01)
    second = begun(kind)
    news = list(second.engine.turn())
    assert NodeReady(node="node-0") in news and NodeReady(node="node-1") in news
    assert NodeDown(node="node-2", reason="the node failed while no controller was running") in news
    assert {name: second.agent(name) for name in pids} == pids
    os.kill(pids["node-0"], signal.SIGKILL)
    first.engine.turn()  # in this test it lives on, and must collect its child
    second.hears(AgentEnded(node="node-0", code=255))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_at_the_end(begun, kind):
    one = begun(kind)
    pids = [one.agent(name) for name in one.engine.nodes]
    one.engine.end(0)
    assert gone(pids)
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    assert one.place.addresses[0].split(".")[2] not in [line.split()[0] for line in links.splitlines()]
    assert clear_leftovers(lambda folder: folder == one.folder) == ()


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_of_a_job_that_is_over_are_cleared_away_by_the_next(begun, kind):
    one = begun(kind)
    pids = [one.agent(name) for name in one.engine.nodes]
    assert one.folder not in clear_leftovers(lambda folder: False)
    assert all(map(is_there, pids))
    assert clear_leftovers(lambda folder: folder == one.folder) == (one.folder,)
    one.engine.turn()
    assert gone(pids)


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are for root")
def test_a_cable_that_is_pulled_stops_all_that_comes_and_goes(begun):
    one = begun("netns")
    hosts = one.hosts
    knock = "import socket, sys; socket.create_connection((sys.argv[1], 9), 2.0)"

    def reaches(there):
        words = [*hosts.inside("node-0"), sys.executable, "-S", "-c", knock, there]
        return b"refused" in subprocess.run(words, capture_output=True, cwd="/", check=False).stderr

    assert reaches("node-1") and reaches(one.engine.listen(one.folder)[0])
    hosts.cut("node-1")
    assert not reaches("node-1")
    one.engine.ask("node-1")
    one.hears(NodeAlive(node="node-1"))  # it is up: only its link is not
    hosts.join("node-1")
    until_s = time.monotonic() + WAIT_S
    while not reaches("node-1"):
        assert time.monotonic() < until_s


def test_more_nodes_than_there_are_are_not_to_be_had(begun):
    one = begun("processes", count=2)
    one.engine.turn()
    one.engine.isolate("node-1", "a bad device")
    one.engine.more_nodes(2, ["node-1"])
    aside, none = one.engine.turn()
    assert isinstance(aside, SetAside) and aside.node == "node-1"
    assert isinstance(none, NoMoreNodes) and "simulates 2 nodes" in none.reason
    with pytest.raises(EngineRefused, match="cannot be disconnected"):
        one.hosts.cut("node-0")


def test_an_agent_that_ends_at_once_is_started_less_and_less_often(begun):
    one = begun("processes", count=1, agent=("false",))
    starts = []
    while len(starts) < 6:
        for news in one.engine.turn():
            if isinstance(news, AgentEnded):
                starts.append(one.now_s)
                one.engine.agent_again("node-0")
        if agent_of(one.hosts, "node-0") is None:  # its end takes none of this clock's time
            one.now_s += 0.125
    # 1 + 2 + 4 + 8 + 16 s. On a busy machine the clock moves on between an end and its report, so single waits vary.
    assert starts[5] - starts[0] >= 16.0


def test_too_many_nodes_for_one_machine_are_refused():
    with pytest.raises(EngineRefused, match="at most 200 nodes"):
        LocalNodes(201, "processes", {}, lambda: 0.0)
