"""Runs `holdfast agent` on one node of a multi-node job: its link to the controller, the worker, and the main loop.

Input: commands, reapers, signals, time. Output: reports over the link, which stores them while the controller is
unreachable. A missing controller is never a reason to end processes. Makes no decisions about recovery.
"""

import os
import selectors
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

import msgspec
from msgspec.structs import replace

from holdfast import __version__, struct_types
from holdfast.agent.calls.on_node import Calls, CallScene
from holdfast.agent.nodes.copy_on_demand import CopyOnDemand
from holdfast.agent.nodes.home import NodeHome
from holdfast.agent.nodes.remote import ANY_ADDRESS, RemoteAgent
from holdfast.agent.rehearsal import rehearse_evidence
from holdfast.agent.watch.logs import Signatures
from holdfast.agent.watch.step_logs import StepForms
from holdfast.core.kubernetes.wrapped import is_wrapped, without_addresses
from holdfast.engines.nodes import IN_USE
from holdfast.jobs.agent_place import AgentPlace
from holdfast.link.agent_link import AgentLink
from holdfast.link.heard import Connected, Lost, Noted, Ordered, Refused, Said
from holdfast.link.life_port import LifePort
from holdfast.link.messages import UNREADABLE
from holdfast.link.spool import Spool, SpoolInUse
from holdfast.model.events import FindingNoted
from holdfast.model.nodes.imports import ImportsReport, TakeImports
from holdfast.model.nodes.workers import (
    AgentHello,
    AnyCommand,
    AnyReport,
    EventReport,
    KeepRows,
    Leave,
    SendRows,
    SetUp,
)
from holdfast.observe.clock import JobClock
from holdfast.settings.read import step_forms
from holdfast.supervise.live_signatures import live_signatures
from holdfast.supervise.monitoring.agent_choice import of_agent
from holdfast.supervise.monitoring.choice import Metrics, NoMetrics

LOOK_S = 0.1
FACTS_WAIT_S = 0.5  # at the start: a reaper reports its facts within milliseconds
GOODBYE_S = 5.0  # for the last reports to be taken
UNKILLABLE_S = 30.0  # beyond the grace: what still lives then is in state D
UNREACHED_S = 5.0  # without the controller: then the reason is printed
REASONS_SHOWN_MAX = 8  # while it is not reached
REFUSED_S = 60.0  # a refused agent without processes gives up
FAULTS_SHOWN_MAX = 20
SPOOL = "spool"
SIGNATURES = "signatures"  # in the state folder
NOT_TAKEN = 3
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
_COMMANDS: msgspec.msgpack.Decoder[AnyCommand] = msgspec.msgpack.Decoder(AnyCommand)


def tell(text: str) -> None:
    """Prints a line to stderr, which the engine redirects to a file. Never raises."""
    stamp = time.strftime("%H:%M:%S")
    try:
        for line in text.splitlines():
            sys.stderr.write(f"holdfast agent {stamp} {line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def run_agent(place: AgentPlace, env: Mapping[str, str]) -> int:
    """Runs the agent until the controller or a signal ends it. Returns the exit code."""
    struct_types.prepare()
    clock = JobClock()
    home = NodeHome(place.job_folder, place.node)
    try:
        spool = Spool(home.folder / SPOOL, clock)
    except SpoolInUse as error:
        tell(f"another agent of {place.node} is running here: {error}")
        return IN_USE
    return AgentWheel(place, home, spool, env, clock).turn()


class AgentWheel:
    """The agent's main loop. It has one thread, and nothing in it blocks longer than `LOOK_S`."""

    def __init__(
        self, place: AgentPlace, home: NodeHome, spool: Spool, env: Mapping[str, str], clock: JobClock
    ) -> None:
        self._place = place
        self._home = home
        self._copy = CopyOnDemand(home.folder)
        self._env = without_addresses(env)
        self._clock = clock
        self._instance = uuid.uuid4().hex
        self._agent: RemoteAgent | None = None
        self._metrics: Metrics = NoMetrics()  # until the controller has said what job it is
        self._spool = spool
        shared = place.job_folder.parents[1] / SIGNATURES
        self._signatures: Signatures = live_signatures(env, rehearse_evidence, shared)
        self._selector = selectors.DefaultSelector()
        self._watched: set[int] = set()
        self._signals: list[int] = []
        self._looked_s = 0.0
        self._faults = 0
        self._leaving_s: float | None = None
        self._refused_s: float | None = None
        self._unreached_s = clock()
        self._reasons: set[str] = set()  # reported reasons why the controller cannot be reached
        self._code: int | None = None
        self._link = AgentLink(
            name=place.node,
            role="agent",
            secret=place.secret,
            where=place.where,
            hello=self._hello,
            spool=spool,
            clock=clock,
            tls=place.tls(),
        )
        self._calls = Calls(self._scene, self._link.say)
        self._life = LifePort(place.address or ANY_ADDRESS, place.life_port)

    def turn(self) -> int:
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in (*ENDING, *PASSED_ON):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._selector.register(woken, selectors.EVENT_READ)
        try:
            self._fenced(self._take_up)
            tell(f"agent of {self._place.node}, process {os.getpid()}, job {self._place.job_folder.name}")
            while self._code is None:
                self._once(woken)
            return self._finish(self._code)
        finally:
            signal.set_wakeup_fd(-1)
            self._selector.close()
            os.close(woken)
            os.close(wake)

    def _take_up(self) -> None:
        """Reattaches to what a previous agent left running, without waiting for the controller."""
        given = self._home.set_up()
        if given is None:
            return
        agent = self._agent = self._made(given)
        agent.take_up()
        until_s = self._clock() + FACTS_WAIT_S
        while agent.runs == (0, None) and agent.is_to_be_heard and self._clock() < until_s:
            self._watch(agent.channels())
            self._selector.select(until_s - self._clock())
            agent.hear()
        number, worker = agent.runs
        if number:
            tell(f"reattached to worker {worker} of attempt {number}, which is running here")

    def _made(self, given: SetUp) -> RemoteAgent:
        """Returns the agent of a job. Its files are below a folder that this node chooses."""
        is_shared = bool(given.token) and given.token == self._place.token()
        settings = replace(given.settings, state_dir=str(self._place.job_folder.parent.parent))
        cwd = os.getcwd() if is_wrapped(self._env) else given.cwd  # the controller has another image
        agent = RemoteAgent(
            replace(given, settings=settings, cwd=cwd),
            self._home,
            self._place.node,
            self._clock,
            self._send,
            self._link.done,
            self._env,
            self._signatures,
            StepForms(lambda: step_forms(settings.step_pattern)),
            ships=None if is_shared else lambda: self._link.connected,
        )
        if not is_shared:
            agent.worker.zygotes.ready = self._send_imports
        self._metrics = of_agent(
            settings,
            given.job,
            agent.worker,
            self._link_now,
            lambda: self._faults,
            self._clock,
            tell,
            self._env,
        )
        return agent

    def _link_now(self) -> tuple[bool, int, int, int, int]:
        spool = self._spool
        return self._link.connected, *spool.held, spool.dropped, spool.lost

    def _once(self, woken: int) -> None:
        agent = self._agent
        channels = agent.channels() if agent else []
        own = [*self._calls.channels(), *self._metrics.channels(), *self._life.channels()]
        self._watch([self._link.fileno(), *channels, *own])
        self._selector.select(LOOK_S)
        _drain(woken)
        self._fenced(self._take_signals)
        self._fenced(self._hear_controller)
        self._fenced(self._calls.turn)
        self._fenced(self._metrics.turn)
        self._fenced(self._life.turn)
        if agent is not None:
            self._fenced(agent.hear)
        at_s = self._clock()
        if at_s - self._looked_s < LOOK_S:
            return
        self._looked_s = at_s
        if agent is not None:
            self._fenced(agent.look)
        self._fenced(self._show_unreached)
        self._fenced(self._see_whether_over)

    # The controller -----------------------------------------------------------------------------------------

    def _hello(self) -> bytes:
        attempt, worker = self._agent.runs if self._agent else (0, None)
        copy_of, copy_seq = self._copy.state
        hello = AgentHello(
            node=self._place.node,
            address=self._place.address or self._link.local_address,
            instance=self._instance,
            version=__version__,
            attempt=attempt,
            worker=worker,
            token=self._place.token(),
            copy_of=copy_of,
            copy_seq=copy_seq,
        )
        return msgspec.msgpack.encode(hello)

    def _send(self, report: AnyReport, drop: bool = False) -> None:
        self._link.send(msgspec.msgpack.encode(report), drop=drop)

    def _hear_controller(self) -> None:
        for heard in self._link.turn():
            match heard:
                case Ordered():
                    self._fenced(lambda one=heard: self._obey(one.body, one.id))  # type: ignore[misc]
                case Said():
                    self._fenced(lambda one=heard: self._hear_said(one.body))  # type: ignore[misc]
                case Connected():
                    self._refused_s = None
                    self._reasons.clear()
                    if self._agent is not None:
                        self._agent.connected()
                        self._agent.worker.zygotes.tell()  # the controller may be another process
                    tell(f"connected to the controller at {heard.address}")
                case Lost():
                    self._fenced(self._calls.lost)
                    self._unreached_s = self._clock()
                    tell(f"the controller is unreachable ({heard.why}): workers on this node continue")
                case Refused():
                    self._refused_s = self._refused_s or self._clock()
                    self._reasons.add(heard.why)
                    tell(f"refused: {heard.why}")
                case Noted():
                    tell(heard.text)

    def _show_unreached(self) -> None:
        """Prints why the controller cannot be reached, each reason once; the agent retries forever."""
        why = self._link.trouble
        if self._link.connected or not why or self._clock() - self._unreached_s < UNREACHED_S:
            return
        if why not in self._reasons and len(self._reasons) < REASONS_SHOWN_MAX:
            self._reasons.add(why)
            tell(f"the controller cannot be reached ({why}); retrying")

    def _hear_said(self, body: bytes) -> None:
        if not self._calls.hear(body):
            self._obey(body, "")

    def _scene(self) -> CallScene:
        """Returns folder and environment for commands that users run on this node."""
        agent = self._agent
        folder, cwd = (agent.folder, agent.cwd) if agent else (None, str(self._place.job_folder))
        return CallScene(self._place.node, folder, self._env, cwd)

    def _obey(self, body: bytes, order: str) -> None:
        try:
            command = _COMMANDS.decode(body)
        except UNREADABLE as error:
            tell(f"a command that is unknown to this version was ignored: {error}")
            if order:
                self._link.done(order)
            return
        if isinstance(command, KeepRows):
            self._send(self._copy.keep(command), drop=True)
            return
        if isinstance(command, SendRows):
            for piece in self._copy.pieces():
                self._send(piece)
            return
        if isinstance(command, TakeImports):
            if self._agent is not None:
                self._agent.worker.zygotes.take(command.content)
            return
        if isinstance(command, SetUp):
            self._set_up(command)
        if self._agent is not None:
            self._agent.carry_out(command, order)
        elif isinstance(command, Leave):
            self._link.done(order)
            self._code = command.code

    def _send_imports(self, content: bytes) -> None:
        """Has nodes without a worker prepare the same zygote; worker 0 reports for all."""
        if self._agent is not None and self._agent.runs[1] == 0:
            self._send(ImportsReport(content=content), drop=True)

    def _set_up(self, given: SetUp) -> None:
        if self._agent is None:
            self._agent = self._made(given)
            self._agent.take_up()
        elif self._agent.job != given.job:
            tell(f"this is an agent of job {self._agent.job}: messages about job {given.job} are ignored")
            return
        self._home.keep_set_up(given)

    # The end ------------------------------------------------------------------------------------------------

    def _see_whether_over(self) -> None:
        agent, at_s = self._agent, self._clock()
        if agent is not None and agent.leaving is not None:
            self._leaving_s = self._leaving_s or at_s
            if agent.is_gone or at_s - self._leaving_s > agent.leave_s + UNKILLABLE_S:
                self._code = agent.leaving.code
        idle = agent is None or agent.runs == (0, None)
        if idle and self._refused_s is not None and at_s - self._refused_s > REFUSED_S:
            tell(
                f"rejected by the controller for {REFUSED_S:.0f} s, and no worker is running here: the "
                "agent ends"
            )
            self._code = NOT_TAKEN

    def _finish(self, code: int) -> int:
        self._fenced(self._calls.close)
        self._fenced(self._metrics.close)
        self._fenced(self._life.close)
        if self._agent is not None:
            self._fenced(self._agent.close)
        self._link.close(GOODBYE_S)
        return code

    # Signals and faults -------------------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def _take_signals(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            agent = self._agent
            if number in PASSED_ON:
                if agent is not None:
                    agent.pass_signal(number)
            elif agent is None:
                self._code = 128 + number
            else:
                tell(f"{signal.Signals(number).name}: this agent's worker ends")
                agent.end(number)

    def _fenced(self, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:  # noqa: BLE001 - a fault of ours must not cost the training its life
            self._faults += 1
            if self._faults <= FAULTS_SHOWN_MAX:
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(where.filename).name}, line {where.lineno}"
                text = (
                    f"an internal error of Holdfast, which continues: {error!r} ({place}); please report it"
                )
                tell(text)
                fault = FindingNoted(at_s=self._clock(), finding="fault", text=f"{self._place.node}: {text}")
                self._send(EventReport(event=fault))
            time.sleep(LOOK_S)  # not a loop that turns on the spot

    def _watch(self, channels: list[int]) -> None:
        wanted = {fd for fd in channels if fd >= 0}
        for fd in self._watched - wanted:
            self._selector.unregister(fd)
        for fd in wanted - self._watched:
            self._selector.register(fd, selectors.EVENT_READ)
        self._watched = wanted


def _drain(woken: int) -> None:
    try:
        while os.read(woken, 512):
            pass
    except BlockingIOError:
        pass
