"""Implements the engine `local` for several workers: simulates all nodes on this machine, with an agent on
each.

Nodes and agents outlive this process; a later one with the same folder takes them over. The engine never
tests a node over its network, so a node without network still counts as alive.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from holdfast.core.plurals import counted
from holdfast.engines.local.hosts import (
    NODES_MAX,
    Hosts,
    children,
    clear,
    folders,
    hosts,
    is_marked,
    read_pid,
    refuse_namespaces,
    write_pid,
)
from holdfast.engines.nodes import EngineRefused, FixedNodes, JobPlace
from holdfast.model.nodes.workers import (
    AgentEnded,
    AnyNews,
    NodeAlive,
    NodeDown,
    NodeReady,
    NoMoreNodes,
    SetAside,
)

# -P: Python must not import modules from the user's folder.
AGENT = (sys.executable, "-P", "-m", "holdfast", "agent")
UNKNOWN_CODE = 255  # exit code of an agent that this process did not start
SOON_S, WAIT_S_MAX = 10.0, 30.0  # an agent that ends sooner is restarted after a wait that doubles each time
END_S = 3.0  # for agents to end by themselves


class _Agent(Struct):
    """The agent of a node. `process`: None if another process started it.

    `due_s`: when to start it again; None for never.
    """

    pid: int = 0
    process: subprocess.Popen[bytes] | None = None
    begun_s: float = 0.0
    wait_s: float = 0.0
    due_s: float | None = None


class LocalNodes(FixedNodes):
    """The NodeEngine of simulated nodes. Raises EngineRefused if this machine cannot simulate them.

    `kind`: "processes" or "netns". `env`: environment of agents and ranks. `agent`: the command that starts
    an agent.
    """

    def __init__(
        self,
        count: int,
        kind: str,
        env: Mapping[str, str],
        clock: Callable[[], float],
        agent: Sequence[str] = AGENT,
    ) -> None:
        if count > NODES_MAX:
            raise EngineRefused(
                f"one machine simulates at most {NODES_MAX} nodes, workers and spares together, not {count}"
            )
        if kind == "netns":
            refuse_namespaces()
        self._names = tuple(f"node-{number}" for number in range(count))
        self._kind, self._env, self._clock = kind, env, clock
        self._words = tuple(agent)
        self._agents = {name: _Agent() for name in self._names}
        self._down: set[str] = set()
        self._news: list[AnyNews] = []
        self._over: list[subprocess.Popen[bytes]] = []
        self._hosts: Hosts
        self._place: JobPlace

    port = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._names

    def listen(self, folder: Path) -> Sequence[str]:
        self._hosts = hosts(self._kind, folder, self._names)
        return (self._hosts.open(),)

    def begin(self, place: JobPlace) -> None:
        """Starts the nodes, in about half a second.

        A node that went down while no controller ran stays down.
        """
        self._place = place
        here = [name for name in self._names if self._hosts.holder(name) is not None]
        if not here:
            self._hosts.boot(self._names)
        for name in self._names:
            if self._hosts.holder(name) is None:
                self._lose(name, "the node failed while no controller was running")
                continue
            self._news.append(NodeReady(node=name))
            agent = self._agents[name]
            agent.pid = read_pid(self._hosts.place(name) / "agent") or 0
            if not self._is_up(agent, name):
                self._start(name)

    def turn(self) -> Sequence[AnyNews]:
        for name, agent in self._agents.items():
            if name in self._down:
                self._look_for_return(name)
            elif self._hosts.holder(name) is None:
                self._lose(name, "its machine reports that all its processes have ended")
            elif agent.pid and not self._is_up(agent, name):
                self._note_end(name, agent)
            elif agent.due_s is not None and self._clock() >= agent.due_s:
                self._start(name)
        self._hosts.collect()
        self._over = [process for process in self._over if process.poll() is None]
        news, self._news = self._news, []
        return news

    def channels(self) -> list[int]:
        return []

    def agent_again(self, node: str) -> None:
        agent = self._agents.get(node)
        if agent is not None and node not in self._down and not agent.pid and agent.due_s is None:
            agent.due_s = self._clock() + agent.wait_s

    def ask(self, node: str) -> None:
        if node in self._agents and self._hosts.holder(node) is not None:
            self._news.append(NodeAlive(node=node))
        elif node not in self._agents:
            self._news.append(NodeDown(node=node, reason="the job has no such node"))
        else:
            self._down.discard(node)  # the answer is a new one
            self._lose(node, "it is down")

    def lost(self, node: str, reason: str) -> None:
        """Does nothing: there are no other nodes."""

    def returned(self, node: str) -> None:
        """Does nothing, because a simulated node that returns needs no action."""

    def isolate(self, node: str, reason: str) -> None:
        says = "it is a simulated node of this machine, which other jobs may still use"
        self._news.append(SetAside(node=node, says=says))

    def more_nodes(self, workers: int, without: Sequence[str]) -> None:
        said = f"this machine simulates {counted(len(self._names), 'node')} for the job"
        self._news.append(NoMoreNodes(reason=f"{said}; more can be added at the start with --spares N"))

    def is_to_end(self) -> bool:
        return False

    def signalled(self, number: int) -> bool:
        return False

    def agents_end_with(self, code: int) -> int:
        return 0

    def end(self, code: int) -> None:
        """Ends agents and nodes; waits a few seconds at most."""
        for name, agent in self._agents.items():
            if self._is_up(agent, name):
                pid = (
                    agent.pid
                    if self._hosts.kind == "processes"
                    else next(iter(children(agent.pid)), agent.pid)
                )
                with suppress(OSError):
                    os.kill(pid, signal.SIGTERM)
        until_s = time.monotonic() + END_S
        while self._any_agent() and time.monotonic() < until_s:
            time.sleep(0.02)
        self._hosts.clear()
        for process in [*self._over, *(one.process for one in self._agents.values() if one.process)]:
            process.wait()

    # Agents -----------------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        agent = self._agents[name]
        agent.due_s = None
        try:
            words = [*self._hosts.inside(name), *self._words]
            with (self._hosts.place(name) / "agent.log").open("ab") as log:
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment(name),
                    cwd="/",
                    start_new_session=True,
                )
            write_pid(self._hosts.place(name) / "agent", process.pid)
        except OSError:  # no memory, no processes, a full disk, or the node just went down: try later
            agent.wait_s = _longer(agent.wait_s)
            agent.due_s = self._clock() + agent.wait_s
            return
        agent.pid, agent.process, agent.begun_s = process.pid, process, self._clock()

    def _environment(self, name: str) -> dict[str, str]:
        return {
            **self._env,
            **self._hosts.marks(name),
            "HOLDFAST_JOB_FOLDER": str(self._place.folder),
            "HOLDFAST_CONTROLLER": ",".join(self._place.addresses),
            "HOLDFAST_SECRET_FILE": str(self._place.secret_file),
            "HOLDFAST_LINK_FINGERPRINT": self._place.fingerprint,
            "HOLDFAST_NODE": name,
            "HOLDFAST_ADDRESS": self._hosts.address(name),
        }

    def _is_up(self, agent: _Agent, name: str) -> bool:
        if agent.process is not None:
            return agent.process.poll() is None
        return bool(agent.pid) and is_marked(agent.pid, self._hosts.mark(name))

    def _note_end(self, name: str, agent: _Agent) -> None:
        """Handles the end of an agent, and checks the node again, because the agent ends first when the
        node goes down.
        """
        code = UNKNOWN_CODE if agent.process is None else agent.process.returncode
        lived_s = self._clock() - agent.begun_s
        agent.wait_s = _longer(agent.wait_s) if agent.process is not None and lived_s < SOON_S else 0.0
        agent.pid, agent.process = 0, None
        if self._hosts.holder(name) is None:
            self._lose(name, "its machine reports that all its processes have ended")
        else:
            self._news.append(AgentEnded(node=name, code=code))

    def _any_agent(self) -> bool:
        return any(agent.pid and self._is_up(agent, name) for name, agent in self._agents.items())

    # Nodes ------------------------------------------------------------------------------------------------------

    def _lose(self, name: str, reason: str) -> None:
        process = self._agents[name].process
        if process is not None:
            self._over.append(process)  # it has ended, or is about to
        self._agents[name] = _Agent()
        if name not in self._down:
            self._down.add(name)
            self._news.append(NodeDown(node=name, reason=reason))

    def _look_for_return(self, name: str) -> None:
        """Checks whether a user has started a node again."""
        if self._hosts.holder(name) is None:
            return
        self._down.discard(name)
        self._news.append(NodeReady(node=name))
        self._start(name)


def agent_of(nodes: Hosts, name: str) -> int | None:
    """Returns the pid, on this machine, of the agent on a node; None if none runs."""
    pid = read_pid(nodes.place(name) / "agent")
    if pid is None or not is_marked(pid, nodes.mark(name)):
        return None
    return pid if nodes.kind == "processes" else next(iter(children(pid)), None)


def clear_leftovers(is_over: Callable[[Path], bool]) -> tuple[Path, ...]:
    """Ends nodes of finished jobs whose engine was killed before it could. Returns the jobs' folders."""
    over = tuple(folder for folder in sorted(folders()) if is_over(folder))
    for folder in over:
        clear(folder)
    return over


def _longer(wait_s: float) -> float:
    return min(WAIT_S_MAX, max(1.0, 2.0 * wait_s))
