"""A job on several nodes without its training: a real hub, real agents' ends of the link, all in a thread."""

import os
import select
import subprocess
import sys
import threading
import time

import msgspec

from cli.journals import COMMAND, START_S, started, submitted, write_job
from holdfast.agent.calls.on_node import Calls, CallScene
from holdfast.controller.calls import CallRelay, JobNow
from holdfast.jobs.line import written_secret
from holdfast.journal.store import Store
from holdfast.link.agent_link import AgentLink
from holdfast.link.arrived import Joined, Left, Said
from holdfast.link.heard import Lost
from holdfast.link.heard import Said as Heard
from holdfast.link.hub import Hub
from holdfast.model.settings import RunSettings

WAIT_S = 60.0


class Node:
    """One agent's end: its link and its calls. `names`: what its commands find in $NODE."""

    def __init__(self, name, folder, secret, where):
        self.name, self.folder = name, folder
        self.link = AgentLink(
            name=name,
            role="agent",
            secret=secret,
            where=where,
            hello=lambda: b"",
            spool=None,
            clock=time.time,
        )
        self.calls = Calls(self._scene, self.link.say)

    def _scene(self):
        env = {"PATH": os.environ["PATH"], "NODE": self.name, "HOME": "/", "PS1": "$ "}
        return CallScene(self.name, self.folder, env, "/")

    def turn(self):
        for heard in self.link.turn():
            if isinstance(heard, Heard):
                self.calls.hear(heard.body)
            elif isinstance(heard, Lost):
                self.calls.lost()
        self.calls.turn()


class Nodes:
    """Job `llama` of `count` workers, and spares, under a controller's hub. `stop` ends it all."""

    def __init__(self, state, count, spares=0):
        events = [submitted(count), *started(START_S + 1, 1, workers=count)[:2]]
        self.job = write_job(state, "llama", events)
        self._write_facts(
            RunSettings(command=COMMAND, state_dir=str(state.root), nnodes=count, spares=spares)
        )
        self.notes, self.now_ended = [], ""
        secret = written_secret(self.job.path)
        self.hub = Hub(secret=secret, listen=[("127.0.0.1", 0)], clock=time.time)
        addresses = [f"{host}:{port}" for host, port in self.hub.addresses]
        (self.job.path / "controller.json").write_bytes(
            msgspec.json.encode({"addresses": addresses, "instance": "x", "protocol": 1})
        )
        self.connected = set()
        self.relay = CallRelay(self.hub.say, self._now, lambda *note: self.notes.append(note), time.time)
        self.nodes = [self._node(number, number < count) for number in range(count + spares)]
        self.workers = {number: f"node-{number}" for number in range(count)}
        self._is_over = False
        self._over_why = ""
        self._wake = os.eventfd(0)
        self._thread = threading.Thread(target=self._turn)
        self._thread.start()
        until_s = time.monotonic() + WAIT_S
        while len(self.connected) < count + spares and time.monotonic() < until_s:
            time.sleep(0.01)

    def _write_facts(self, settings):
        """A job of one worker is on a node of its own, too."""
        if settings.is_one_machine:
            settings = msgspec.structs.replace(settings, spares=1)
        store = Store.open(self.job.journal_path)
        facts = {"name": "llama", "command": COMMAND, "host": "login-1", "settings": settings}
        store.set_meta("job", msgspec.json.encode(facts))
        store.close()

    def _node(self, number, has_worker):
        folder = self.job.worker(1, number)
        folder.mkdir(parents=True)
        return Node(
            f"node-{number}", folder if has_worker else None, written_secret(self.job.path), self._where
        )

    def _where(self):
        return self.hub.addresses

    def _now(self):
        nodes = {name for name in self.connected if name.startswith("node-")}
        return JobNow("llama", 1, self.now_ended, self.workers, nodes)

    def _turn(self):
        while not self._is_over:
            fds = [self._wake, self.hub.fileno()]
            for node in self.nodes:
                fds += [node.link.fileno(), *node.calls.channels()]
            select.select(fds, (), (), 0.05)
            self._turn_once()

    def _turn_once(self):
        for one in self.hub.turn():
            match one:
                case Said():
                    self.relay.hear(one.peer, one.body)
                case Joined():
                    self.relay.left(one.peer)
                    self.connected.add(one.peer)
                case Left():
                    self.connected.discard(one.peer)
                    self.relay.left(one.peer)
        if self._over_why:
            why, self._over_why = self._over_why, ""
            self.relay.close(why)
        self.relay.turn()
        for node in self.nodes:
            node.turn()

    def clients(self):
        return {name for name in self.connected if name.startswith("client-")}

    def ends(self, why):
        """The job does, for whoever asks for something: told by the thread that the hub belongs to."""
        self._over_why = why

    def stop(self):
        self._is_over = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        for node in self.nodes:
            node.calls.close()
        until_s = time.monotonic() + WAIT_S
        while not all(node.calls.is_idle for node in self.nodes) and time.monotonic() < until_s:
            for node in self.nodes:
                node.calls.turn()
            time.sleep(0.01)
        for node in self.nodes:
            node.link.close(0.0)
        self.hub.close()


def rank(folder, number, script):
    """A process that is rank `number` of the worker of this folder; it has printed a line."""
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    fact = {"kind": "rank-started", "t": time.time(), "pid": process.pid, "rank": number}
    with (folder / "reaper.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(fact) + b"\n")
    return process
