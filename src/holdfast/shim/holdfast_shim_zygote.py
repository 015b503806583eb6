"""Part of the shim: the zygote of a worker, a Python process from which its ranks are forked. Loaded by `sitecustomize`.

Started by the agent with the command line and the environment of a rank, it stops before the script's first line, makes the
listed imports (`holdfast_shim_preload.py`), and reports. For each attempt it forks a fork server
(`holdfast_shim_server.py`), the parent of that attempt's processes.

The imports run in a thread of the lowest priority; the main thread keeps its own, for a fork could not raise it again.
It runs under the training's Python: standard library only, nothing of holdfast, Python 3.8 and later.
"""

import _thread
import gc
import json
import os
import select
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

FD = "HOLDFAST_ZYGOTE_FD"
NAME = b"holdfast-zygote"
COMMAND = [
    "holdfast",
    "zygote",
]  # in /proc/PID/cmdline: by that name, checks know that its forks belong to a running job
MESSAGE_BYTES = 1 << 20
# The zygote is the first to be killed where memory is short: the training goes on without it, and without a rank it does not.
OOM = "/proc/self/oom_score_adj"


def _set_oom(value: bytes) -> None:
    """Sets how soon the kernel kills this process where memory is short, 1000 first. Where it may not, its turn is the usual one."""
    try:
        with open(OOM, "wb", buffering=0) as file:
            file.write(value)
    except OSError:
        pass


def serve(beside: "Callable[[str], ModuleType]") -> "Callable[[], None] | None":
    """Runs the zygote. Returns only in forks, each of which is the process that a stub stands for. `beside`: loads
    another file of the shim.

    The returned function has Python's start run another program than the zygote's; None: the fork runs the zygote's
    own program.
    """
    number = int(os.environ.pop(FD))
    control = socket.socket(fileno=number)
    os.set_inheritable(number, False)
    names = ("stub", "fork", "server", "preload")
    zygote = Zygote(control, *(beside("holdfast_shim_" + name) for name in names))
    try:
        zygote.run()
    except zygote.server.Forked as fork:
        return _instead(zygote, fork.program)
    except BaseException as error:
        if os.getpid() == zygote.pid:
            zygote.tell({"is": "lost", "why": repr(error)})
    os._exit(1)


def _instead(zygote: "Zygote", program: "tuple[str, str] | None") -> "Callable[[], None] | None":
    if program is None:
        return None
    sys.modules[zygote.fork.__name__] = zygote.fork  # `inspect` finds its frames at once
    return lambda: zygote.fork.run_instead(*program, zygote.program[:2], zygote.cwd)


class Zygote:
    def __init__(
        self, control: "socket.socket", stub: "Any", fork: "Any", server: "Any", preload: "Any"
    ) -> None:
        self.pid = os.getpid()
        self.command = COMMAND
        self.control = control
        self.stub, self.fork, self.server, self.preload = stub, fork, server, preload
        words = stub.command_line()
        self.program = stub.program_of(words)
        self.cwd = os.getcwd()
        self.interpreter, self.spaces = stub.interpreter(), stub.spaces()
        self.ids = (os.getresuid(), os.getresgid(), sorted(os.getgroups()))
        self.env = dict(os.environ._data)  # type: ignore[attr-defined]
        self.added = {}  # type: dict[bytes, bytes]
        self.added_by_launcher = {}  # type: dict[bytes, bytes]
        self.path = list(sys.path)

    def tell(self, what: "dict[str, Any]") -> None:
        try:
            self.control.send(json.dumps(what).encode())
        except OSError:
            os._exit(0)  # the agent is gone

    def run(self) -> None:
        """Processes orders until the zygote ends. Never returns; raises Forked in a fork."""
        with open(OOM, "rb") as file:
            self.oom = file.read()
        _set_oom(b"1000")
        with open(os.fsdecode(self.control.recv(MESSAGE_BYTES)), "rb") as file:
            orders = json.load(file)
        self.fork.show(
            COMMAND, {os.fsencode(key): os.fsencode(value) for key, value in orders["marks"].items()}
        )
        self.stub.name_process(NAME)
        imports = self.preload.Imports(orders, self.env, self.fork.set_environ)
        done, over = os.pipe2(os.O_CLOEXEC)
        imports.baseline()
        _thread.start_new_thread(imports.run, (over,))
        poll = select.poll()
        poll.register(
            self.control.fileno(), 0
        )  # its end alone: descriptors that arrive would be taken for a module's
        poll.register(done, select.POLLIN)
        if any(fd != done for fd, _ in poll.poll()):
            os._exit(0)
        os.close(done)
        self.imported(imports)
        while True:
            self.hear()

    def imported(self, imports: "Any") -> None:
        why = imports.finish()
        self.fork.set_environ(dict(dict.items(os.environ._data)))  # type: ignore[attr-defined]
        if why:
            self.tell(dict(why, **{"is": "broken"}))
            os._exit(0)
        self.added, self.added_by_launcher = imports.added, imports.added_by_launcher()
        self.reads = {os.fsdecode(key): by for key, by in self.preload.Watched.reads.items()}
        sys.path[:] = self.path
        gc.collect()
        gc.freeze()
        self.tell(dict(imports.report(), **{"is": "ready"}))

    def hear(self) -> None:
        data, extra, _, _ = self.control.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(8), socket.MSG_CMSG_CLOEXEC)
        if not data:
            os._exit(0)
        fds = [int.from_bytes(one[2][at : at + 4], sys.byteorder) for one in extra for at in (0, 4)]
        self.begin(json.loads(data), fds)

    def begin(self, order: "dict[str, Any]", fds: "list[int]") -> None:
        """Forks the fork server of an attempt. `fds`: the socket at which stubs connect, and the connection to the
        attempt's reaper.
        """
        if os.fork() == 0:
            self.control.close()
            os.setsid()
            _set_oom(self.oom)
            if os.fork():  # an orphan at once, which init collects
                os._exit(0)
            self.server.Server(self, order, *fds).run()
        os.waitpid(-1, 0)
        for fd in fds:
            os.close(fd)
