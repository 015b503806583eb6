"""A zygote, a fork server and stubs, as the agent and a launcher start them."""

import array
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

ORDINARY = "not-forked"


class Nursery:
    """`ranks`: starts programs. One zygote for `program`, and one fork server."""

    def __init__(self, ranks, program):
        self.ranks = ranks
        self.script = ranks.module("train.py", program)
        self.socket = ranks.folder / "zygote.sock"
        self.channel = None
        self.server = 0

    def begin(
        self,
        *lines,
        launcher=(),
        to_set=(),
        python=(),
        executable=sys.executable,
        own=(),
        left_out=None,
        memory_kib_max=4 << 20,
        **env,
    ):
        orders = self.ranks.folder / "orders.json"
        given = {
            "lines": lines,
            "launcher": launcher,
            "to_set": to_set,
            "left_out": left_out or {},
            "memory_kib_max": memory_kib_max,
            "marks": {"OF": "zygote"},
        }
        orders.write_text(json.dumps(given))
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.zygote = subprocess.Popen(
                [executable, *python, *(own or [str(self.script)])],
                env=self.environment(HOLDFAST_ZYGOTE_FD=str(theirs.fileno()), **env),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.ranks.started.append(self.zygote)
        self.control.send(os.fsencode(orders))
        return json.loads(self.control.recv(1 << 20))

    def environment(self, rank=0, **more):
        fresh = {"PYTHONFAULTHANDLER": "1", "WORLD_SIZE": "2", **more}
        return self.ranks.environment(rank, **fresh)

    def serve(self):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.socket))
        listener.listen(64)
        self.channel, theirs = socket.socketpair()
        rights = array.array("i", [listener.fileno(), theirs.fileno()])
        order = json.dumps({"name": "attempt-002", "marks": {"OF": "server"}}).encode()
        self.control.sendmsg([order], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        listener.close()
        theirs.close()
        self.server = int(self.channel.recv(64))

    def fresh(self, *words, **how):
        return self._start(words, how, {})

    def forked(self, *words, **how):
        return self._start(
            words, how, {"HOLDFAST_FORK_SERVER": str(self.socket), "HOLDFAST_FORK_PROGRAM": str(self.script)}
        )

    def _start(self, words, how, more):
        env = self.environment(how.pop("rank", 0), **{**how.pop("env", {}), **more})
        words = words or [str(self.script)]
        process = subprocess.Popen(
            [how.pop("executable", sys.executable), *words],
            env=env,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how},
        )
        self.ranks.started.append(process)
        return process

    def refusals(self):
        path = self.ranks.folder / ORDINARY
        return [line.partition(" ")[2] for line in path.read_text().splitlines()] if path.exists() else []

    def forks(self):
        """Living children of the fork server."""
        found = Path(f"/proc/{self.server}/task/{self.server}/children").read_text().split()
        return [int(pid) for pid in found if state(int(pid)) not in ("", "Z")]

    def close(self):
        self.control.close()
        if self.channel is not None:
            self.channel.close()


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def ended(process):
    """Exit code and both outputs."""
    out, err = process.communicate()
    return process.returncode, out.decode(), err.decode()
