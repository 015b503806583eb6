"""Implements the listening socket of a single-node job, through which user commands reach the job.

Both ends of the calls, agent and controller, are in this process.
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from holdfast.agent.calls.on_node import Calls, CallScene
from holdfast.agent.worker import WorkerAgent
from holdfast.controller.alert_notes import AlertNotes
from holdfast.controller.calls import CallRelay, JobNow
from holdfast.controller.loop import Controller
from holdfast.controller.requests import Requests
from holdfast.jobs.agent_place import CONTROLLER, SECRET
from holdfast.jobs.line import written_secret
from holdfast.journal.jobdir import JobDir
from holdfast.link.arrived import Joined, Left, Said
from holdfast.link.hub import Hub
from holdfast.model.events import FindingNoted
from holdfast.model.nodes.workers import PROTOCOL
from holdfast.model.state import Ended
from holdfast.observe.clock import JobClock

LOOPBACK = "127.0.0.1"
RELAY_S = 1.0


class LocalLine:
    """The listening socket of a single-node job. Raises OSError if it cannot listen.

    `env`, `cwd`: for commands while no training runs.
    """

    def __init__(
        self,
        job: JobDir,
        controller: Controller,
        agent: WorkerAgent,
        clock: JobClock,
        env: Mapping[str, str],
        cwd: str,
        grace_s: float,
        notes: AlertNotes,
    ) -> None:
        self._job, self._controller, self._agent = job, controller, agent
        self._clock = clock
        self._env, self._cwd = env, cwd
        self._node = socket.gethostname()
        self._turned_s = 0.0
        self._hub = Hub(secret=written_secret(job.path), listen=[(LOOPBACK, 0)], clock=clock)
        requests = Requests(controller, clock, grace_s, agent.signal, notes)
        self._relay = CallRelay(self._say, self._now, self._note, clock, carry_out=requests.carry_out)
        self._calls = Calls(self._scene, lambda body: self._relay.hear(self._node, body))
        self._write_where()

    def channels(self) -> list[int]:
        return [self._hub.fileno(), *self._calls.channels()]

    def turn(self) -> None:
        for one in self._hub.turn():
            match one:
                case Said():
                    self._relay.hear(one.peer, one.body)
                case Left() | Joined():
                    self._relay.left(one.peer)
        self._calls.turn()
        if self._clock() - self._turned_s >= RELAY_S:
            self._turned_s = self._clock()
            self._relay.turn()

    def close(self, why: str) -> None:
        """Tells connected clients why the job ends, and closes the socket."""
        self._relay.close(why)
        self._calls.close()
        self._hub.close()
        for name in (CONTROLLER, SECRET):
            with suppress(OSError):
                (self._job.path / name).unlink()

    def _say(self, peer: str, body: bytes) -> bool:
        return self._calls.hear(body) if peer == self._node else self._hub.say(peer, body)

    def _now(self) -> JobNow:
        state = self._controller.state
        ended = state.phase.outcome if isinstance(state.phase, Ended) else ""
        return JobNow(self._job.name, state.job.attempt, ended, {0: self._node}, (self._node,))

    def _note(self, finding: str, text: str) -> None:
        attempt = self._controller.state.job.attempt or None
        event = FindingNoted(at_s=self._clock(), finding=finding, text=text, attempt=attempt)
        self._controller.handle(event)

    def _scene(self) -> CallScene:
        attempt = self._agent.attempt
        return CallScene(self._node, attempt.folder if attempt else None, self._env, self._cwd)

    def _write_where(self) -> None:
        addresses = [f"{host}:{port}" for host, port in self._hub.addresses]
        where = {"addresses": addresses, "instance": str(os.getpid()), "protocol": PROTOCOL}
        part = self._job.path / f"{CONTROLLER}.part"
        part.write_bytes(msgspec.json.encode(where))
        part.rename(self._job.path / CONTROLLER)
