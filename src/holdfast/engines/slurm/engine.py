"""Implements the engine `slurm`: a job's nodes are those of the Slurm allocation in which this process runs.

One step on each node runs its agent. The engine queries Slurm about nodes and the job at intervals, and when
the controller needs it. If Slurm does not respond or refuses, the engine notes it and queries again; it never
concludes a failure from that.
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.engines.nodes import IN_USE, EngineRefused, FixedNodes, JobPlace
from holdfast.engines.slurm.agent_steps import AGENT, STEP_NAME, AgentStep, environment, keeper_words
from holdfast.engines.slurm.job_watch import JobWatch
from holdfast.engines.slurm.lines import Lines, has_none
from holdfast.engines.slurm.move import Move, put_back
from holdfast.engines.slurm.probe import Probe
from holdfast.engines.slurm.queries import node_words, nodes_in
from holdfast.engines.slurm.rights import Rights
from holdfast.engines.slurm.run_command import Answer, Commands, asked, plain_environment, with_plain_times
from holdfast.engines.slurm.slurmd_watch import PROBE_S, SlurmdWatch, port_of
from holdfast.engines.slurm.standby_controller import STANDBY_NAME, StandbyController, standby_log
from holdfast.engines.slurm.tracked import Agent, Look
from holdfast.model.nodes.workers import (
    AgentEnded,
    AnyNews,
    EngineNote,
    NodeAlive,
    NodeDown,
    NodeReady,
    NoMoreNodes,
)
from holdfast.parsers.slurm import (
    SlurmNode,
    seconds_of,
    settings_of,
    steps_of_columns,
    version_of,
)
from holdfast.slurm_names import Allocation

ASK_AGAIN_S = 2.0
SURE_S = 5.0  # for agents that run already to find this controller
SOON_S, WAIT_S_MAX = 10.0, 30.0  # an agent that ends sooner is restarted after a wait that doubles each time
END_S = 5.0
SRUN_LOG = "srun.log"  # beside the log of the agent


class SlurmEngine(FixedNodes):
    """The NodeEngine for Slurm.

    `env`: environment of this process. `agent`: the command that starts an agent. `no_kill`: the job was
    submitted with --no-kill, so it outlives its nodes; False if unknown. `standby`: the command of the
    standby controller. `lost_with`: the node of the previous controller, which failed.
    """

    def __init__(
        self,
        allocation: Allocation,
        env: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
        *,
        agent: Sequence[str] = AGENT,
        no_kill: bool = False,
        standby: Sequence[str] = (),
        lost_with: str = "",
    ) -> None:
        self.allocation = allocation
        self._clock, self._agent_words, self._no_kill = clock, tuple(agent), no_kill
        self._env = plain_environment(env)
        self._commands = Commands(with_plain_times(self._env))
        self._agents = {name: Agent() for name in allocation.nodes}
        self._lines = Lines()
        self._cut: set[str] = set()
        self._looks: dict[str, Look] = {}
        self._seen: dict[str, SlurmNode] = {}
        self._gone: set[str] = set()
        self._news: list[AnyNews] = []
        self._reported: set[str] = set()
        self._settings: dict[str, str] = {}
        self._version = (0, 0)
        self._polled_s = 0.0
        self._poll_open = False
        self._place: JobPlace | None = None
        self._rights = Rights(allocation, self._commands, self._note, clock)
        self._slurmd = SlurmdWatch(self._seen, self._note, self._slurmd_is_lost, clock, no_kill=no_kill)
        self._watch = JobWatch(allocation, self._commands, self._note, clock)
        self._move: Move | None = None
        here = allocation.node or socket.gethostname()
        self._standby = (
            StandbyController(standby, allocation.nodes, here, self._start_standby)
            if standby and no_kill
            else None
        )
        self._lost_with = lost_with
        self._is_second = bool(lost_with)  # another controller began this job's steps

    port = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.allocation.nodes

    def listen(self, folder: Path) -> Sequence[str]:
        """Returns the address at which Slurm reaches this node. Waits a few seconds for scontrol."""
        node = self.allocation.node or socket.gethostname()
        answer = asked(node_words([node]), self._env, 5.0)
        address = next((one.address for one in nodes_in(answer) if one.address), node)
        for name in (address, socket.gethostname()):
            try:
                found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            except OSError:
                continue
            return (str(found[0][4][0]),)
        raise EngineRefused(
            f"the controller has no address to listen at: neither {address} nor {socket.gethostname()} resolves to an IP address"
        )

    def begin(self, place: JobPlace) -> None:
        self._place = place
        (place.folder / "nodes").mkdir(exist_ok=True)
        self._ask_config(lambda: self._ask_steps(first=True))
        self._ask_nodes()

    def turn(self) -> Sequence[AnyNews]:
        now_s = self._clock()
        self._commands.turn()
        for name, agent in self._agents.items():
            self._turn_agent(name, agent, now_s)
        if self._lines.due(now_s):
            self._turn_lines()
        for name in list(self._looks):
            self._turn_look(name, now_s)
        if now_s - self._polled_s >= self._slurmd.poll_s(now_s) and self._place is not None:
            self._polled_s = now_s
            self._poll(now_s)
        self._slurmd.turn(now_s)
        self._rights.turn(now_s)
        if self._move is not None:
            self._move.turn(now_s)
        self._watch.turn(now_s)
        self._turn_standby(now_s)
        news = [  # first why the job ends, then what ends with it
            *self._watch.news(),
            *(self._move.news() if self._move else ()),
            *self._news,
            *self._rights.news(),
        ]
        self._news.clear()
        return news

    def channels(self) -> list[int]:
        return []

    def agent_again(self, node: str) -> None:
        agent = self._agents.get(node)
        if self._is_ending:
            return
        if agent is not None and node not in self._gone and not agent.lives and agent.due_s is None:
            agent.due_s = self._clock() + agent.wait_s

    def ask(self, node: str) -> None:
        if node not in self._agents:
            self._news.append(NodeDown(node=node, reason=f"job {self.allocation.job} has no such node"))
            return
        self._look(node).wanted = True

    def lost(self, node: str, reason: str) -> None:
        """Does nothing: Slurm detects a lost node by itself."""

    def returned(self, node: str) -> None:
        """Does nothing, because Slurm detects by itself that a node has returned."""

    def isolate(self, node: str, reason: str) -> None:
        self._rights.isolate(node, reason)

    def more_nodes(self, workers: int, without: Sequence[str]) -> None:
        if self._place is None or not self.allocation.is_batch:
            why = "this allocation has no batch script that Slurm could requeue on other nodes"
            self._news.append(NoMoreNodes(reason=why))
            return
        if self._move is None or self._move.is_over:

            def bad() -> tuple[str, ...]:
                return tuple(dict.fromkeys((*without, *self._rights.excluded, *sorted(self._gone))))

            kill_wait_s = seconds_of(self._settings.get("KillWait", ""), 30.0)
            folder, is_marked = self._place.folder, self._rights.has_marked
            self._move = Move(
                self.allocation, self._commands, folder, workers, bad, kill_wait_s, is_marked, self._clock
            )

    def is_to_end(self) -> bool:
        self._watch.wonder()
        return True

    def signalled(self, number: int) -> bool:
        """Returns whether Slurm can name the reason for the signal; EndAsked then follows within 3 s."""
        if self._move is not None and self._move.is_moved:
            return True
        self._watch.signalled(number, seconds_of(self._settings.get("KillWait", ""), 30.0))
        return True

    def agents_end_with(self, code: int) -> int:
        return 0

    def end(self, code: int) -> None:
        """Ends the steps of running agents. Waits a few seconds, but not if Slurm ends the job itself.

        Slurm restarts a job only once the last process of its batch script has ended.
        """
        self._commands.drop()
        if self._standby is not None and self._standby.step is not None:
            self._standby.step.end()
        left = [agent.step for agent in self._agents.values() if agent.step is not None]
        if self._is_ending:
            left = [step for step in left if step.code() is None]
            for step in left:
                step.end()
            if self._watch.is_to_be_put_back and self._place is not None:
                put_back(self.allocation, self._env, self._place.folder)
            return
        until_s = time.monotonic() + END_S
        sent = False
        while (left := [step for step in left if step.code() is None]) and time.monotonic() < until_s:
            if not sent and time.monotonic() > until_s - END_S / 2:
                sent = True
                for step in left:
                    step.end()
            time.sleep(0.02)
        for step in left:
            os.kill(step.process.pid, signal.SIGKILL)
            step.process.wait()

    # Agents -----------------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        agent, place = self._agents[name], self._place
        agent.due_s = None
        assert place is not None
        home = place.folder / "nodes" / name
        given = environment(self._env, name, place)
        try:
            home.mkdir(parents=True, exist_ok=True)
            agent.step = AgentStep(
                name,
                keeper_words(name, STEP_NAME, self._agent_words, home / "agent.log", binds=self._binds),
                given,
                home / SRUN_LOG,
            )
        except OSError as error:
            agent.wait_s = _longer(agent.wait_s)
            agent.due_s = self._clock() + agent.wait_s
            self._note(f"the agent on {name} cannot be started, Holdfast will try again: {error}")
            return
        agent.lives, agent.begun_s = True, self._clock()

    def _start_standby(self, name: str, words: Sequence[str]) -> AgentStep:
        assert self._place is not None
        log = standby_log(self._place.folder, name)
        log.parent.mkdir(parents=True, exist_ok=True)
        kept = keeper_words(name, STANDBY_NAME, words, log, binds=self._binds)
        return AgentStep(name, kept, self._env, log.parent / SRUN_LOG)

    def _turn_standby(self, now_s: float) -> None:
        if self._standby is None or self._place is None or self._is_ending:
            return
        try:
            self._standby.turn(now_s, self._gone)
        except OSError as error:
            self._tell("standby", f"the standby controller cannot be started: {error}")

    @property
    def _binds(self) -> bool:
        """Returns True if the cluster binds tasks to cores."""
        return self._settings.get("TaskPlugin", "") not in ("", "task/none", "(null)")

    def _turn_agent(self, name: str, agent: Agent, now_s: float) -> None:
        if agent.due_s is not None and now_s >= agent.due_s and name not in self._gone:
            self._start(name)
        if agent.step is None or (code := agent.step.code()) is None:
            return
        is_launched = self._lines.was_connected(agent.step.process.pid)
        agent.step, agent.lives = None, False
        if code < 0 or code == IN_USE:  # srun was killed: its step lives on, if it had begun
            agent.lives, agent.sure_s = True, now_s + WAIT_S_MAX
            agent.due_s = None if code == IN_USE or is_launched else now_s
            self._ask_steps()
            return
        agent.wait_s = _longer(agent.wait_s) if now_s - agent.begun_s < SOON_S else 0.0
        if name not in self._gone:
            self._look(name).code = code

    def _ask_steps(self, first: bool = False) -> None:
        words = ["squeue", "-h", "-s", "-j", self.allocation.job, "-o", "%i|%j|%N"]
        self._commands.ask(words, lambda answer: self._steps_heard(answer, first))

    def _steps_heard(self, answer: Answer, first: bool) -> None:
        if not answer.is_good:
            self._note(
                f"Slurm does not list the steps of job {self.allocation.job}, Holdfast will try again: "
                f"{answer.why}"
            )
            if first:
                self._later(lambda: self._ask_steps(first=True))
            return
        steps = steps_of_columns(answer.text)
        here = {node for step in steps if step.name == STEP_NAME for node in step.nodes}
        self._is_second = self._is_second or (first and bool(here))
        if self._standby is not None:
            self._standby.heard(steps, self._clock())
        for name, agent in self._agents.items():
            if agent.step is not None:
                continue
            if first:
                self._news.append(NodeReady(node=name))
                agent.lives, agent.sure_s = name in here, self._clock() + SURE_S
                if name not in here:
                    self._start(name)
            elif agent.lives and name not in here:
                agent.lives = False
                self._look(name).code = 255

    def _later(self, again: Callable[[], None]) -> None:
        self._commands.ask(["sleep", str(ASK_AGAIN_S)], lambda _: again())

    # Nodes ------------------------------------------------------------------------------------------------------

    def _turn_lines(self) -> None:
        """Checks nodes whose step has lost its connections, before the controller asks."""
        self._cut = self._lines.cut(
            {name: one.step.process.pid for name, one in self._agents.items() if one.step is not None}
        )
        for name in self._cut - self._gone - self._looks.keys():
            if (seen := self._seen.get(name)) is not None:
                look = self._looks[name] = Look(heard=True)
                self._probe(look, seen)

    def _look(self, name: str) -> Look:
        """Queries Slurm and the node's slurmd at once."""
        if name not in self._looks:
            look = self._looks[name] = Look()
            self._commands.ask(
                node_words([name], self._version),
                lambda answer: self._look_heard(name, answer),
                5.0,
            )
            if (seen := self._seen.get(name)) is not None:
                self._probe(look, seen)
        return self._looks[name]

    def _look_heard(self, name: str, answer: Answer) -> None:
        look = self._looks.get(name)
        self._nodes_heard(answer)
        if look is None:
            return
        look.heard = True
        found = [node for node in nodes_in(answer) if node.name == name]
        look.node = found[0] if found else None
        if look.probe is None and look.node is not None:
            self._probe(look, look.node)

    def _probe(self, look: Look, node: SlurmNode) -> None:
        if node.address:
            look.probe = Probe(node.address, port_of(node, self._settings), self._clock(), PROBE_S)

    def _turn_look(self, name: str, now_s: float) -> None:
        look = self._looks[name]
        reached = look.probe.look(now_s) if look.probe is not None else None
        ended = look.code is not None or name in self._cut or name == self._lost_with
        if reached is False and not ended and look.wanted and not self._is_second:
            # The controller heard its agent, so its step had begun.
            step = self._agents[name].step
            ended = step is not None and has_none(step.process.pid)
        is_proven = reached is False and ended  # whatever Slurm answers
        if not is_proven and (not look.heard or (look.probe is not None and reached is None)):
            return
        del self._looks[name]
        if look.node is not None and look.node.is_down and not reached:
            self._lose(name, f"Slurm says it is {look.node.state.lower()}{_because(look.node.reason)}")
        elif reached is False and ended:
            self._lose(name, "the connections of its job step were closed, and its slurmd cannot be reached")
        elif look.code is not None and self._is_ending:
            self._gone.add(name)
            self._news.append(
                NodeDown(node=name, reason="Slurm ended the job step with the whole job", with_job=True)
            )
        elif look.code is not None:
            self._news.append(AgentEnded(node=name, code=look.code))
        elif look.wanted and reached:
            self._news.append(NodeAlive(node=name))
            self._make_sure(name, now_s)
        elif look.wanted and reached is False:
            self._tell(
                f"cut-{name}",
                f"{name} cannot be reached, but Slurm still counts it as up: it is not lost yet",
            )

    def _make_sure(self, name: str, now_s: float) -> None:
        """Starts another agent if a step of the previous controller has no connected agent.

        That controller's srun may have died during the launch. A second agent on a node ends by a lock:
        standby controllers exist only where the file system supports locks.
        """
        agent = self._agents[name]
        may_be_gone = self._lost_with and agent.lives and agent.step is None
        if may_be_gone and now_s >= agent.sure_s and not self._is_ending:
            agent.sure_s = now_s + WAIT_S_MAX
            self._start(name)

    @property
    def _is_ending(self) -> bool:
        """Returns True if Slurm is taking the job's nodes away, so that no step can be started on them."""
        return self._watch.is_reported or (self._move is not None and self._move.is_moved)

    def _lose(self, name: str, reason: str) -> None:
        agent = self._agents[name]
        if agent.step is not None:
            agent.step.end()
            self._rights.leave_to_end(agent.step)
        self._agents[name] = Agent()
        self._gone.add(name)
        self._news.append(NodeDown(node=name, reason=reason))
        self._rights.crashed(name, reason, self._remaining(), no_kill=self._no_kill)

    def _remaining(self) -> tuple[str, ...]:
        return tuple(name for name in self.nodes if name not in self._gone)

    # Polling ----------------------------------------------------------------------------------------------------

    def _poll(self, now_s: float) -> None:
        if self._poll_open:
            return
        self._poll_open = True
        self._slurmd.begin_round(self._remaining(), now_s)
        self._ask_nodes()
        if any(agent.lives and agent.step is None for agent in self._agents.values()):
            self._ask_steps()
        self._watch.look()

    def _ask_nodes(self) -> None:
        self._commands.ask(node_words(self.nodes, self._version), self._polled)

    def _polled(self, answer: Answer) -> None:
        self._poll_open = False
        self._nodes_heard(answer)
        if answer.is_good:
            return
        self._tell("sick", f"Slurm does not respond, the training continues: {answer.why}")

    def _nodes_heard(self, answer: Answer) -> None:
        if answer.is_good:
            self._reported.discard("sick")
        for node in nodes_in(answer):
            if node.name in self._agents:
                self._seen[node.name] = node
                self._slurmd.heard(node, is_gone=node.name in self._gone)

    def _ask_config(self, then: Callable[[], None]) -> None:
        """Queries Slurm's configuration, then calls `then` even if it failed; defaults remain."""

        def heard(answer: Answer) -> None:
            if answer.is_good:
                self._settings = settings_of(answer.text)
                self._rights.settings = self._slurmd.settings = self._settings
                self._version = self._watch.version = version_of(self._settings.get("SLURM_VERSION", ""))
            else:
                self._later(lambda: self._ask_config(lambda: None))
            then()

        self._commands.ask(["scontrol", "show", "config"], heard)

    def _slurmd_is_lost(self, name: str) -> None:
        """Removes a node from the job if Slurm is about to give it up, which would end the whole job."""
        self._rights.give_back(name, tuple(one for one in self._remaining() if one != name))

    def _note(self, text: str) -> None:
        self._news.append(EngineNote(text=text))

    def _tell(self, what: str, text: str) -> None:
        """Reports a condition once, until it has ended."""
        if what not in self._reported:
            self._reported.add(what)
            self._note(text)


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _longer(wait_s: float) -> float:
    return min(WAIT_S_MAX, max(1.0, 2.0 * wait_s))
