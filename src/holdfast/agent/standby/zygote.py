"""Controls the zygote process for the agent: starts it, receives its reports, and has it fork the fork server
of an attempt.

For what a zygote does, see `shim/holdfast_shim_zygote.py`. Never waits for it.
"""

import array
import json
import os
import secrets
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.agent.standby.imports_known import Known

SOCKET = "zygote.sock"  # in a worker's folder: where stubs ask
MEMORY_KIB_MAX = 4 << 20
NICE = 19
MESSAGE_BYTES = 1 << 20
BACKLOG = 512
MARKS = "HOLDFAST_JOB", "HOLDFAST_STATE_DIR", "HOLDFAST_NODE"  # variables by which its process is found


class Report(Struct, frozen=True, kw_only=True):
    """A message of a zygote. `kind`: ready; broken (importing a module did what a zygote must not do); lost
    (an internal error). `memory_kib`: what it takes when it is ready, or took when that was too much. `not_set`: variables that its imports were to add to the environment, and did not.
    """

    kind: str = msgspec.field(name="is")
    name: str = ""
    why: str = ""
    version: str = ""
    cost: dict[str, float] = {}
    modules: int = 0
    memory_kib: int = 0
    stopped_at: str = ""
    not_set: tuple[str, ...] = ()


class Zygote:
    """A running zygote process. `argv`, `env`, `cwd`: those with which a rank is started. `folder`: for
    orders to the zygote. `memory_kib_max`: what it may take.

    raises: OSError, if the zygote cannot be started
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        known: Known,
        folder: Path,
        memory_kib_max: int = MEMORY_KIB_MAX,
    ) -> None:
        self.program = ""
        self.is_ready = False
        self.over = False
        orders = (
            folder / f".zygote-{secrets.token_hex(8)}.json"
        )  # agents of other nodes may have the same pid
        content = {
            "lines": known.lines,
            "launcher": known.launcher,
            "to_set": sorted({*known.by_import} - {*known.not_by_import}),
            "left_out": {name: one.version for name, one in known.left_out.items()},
            "memory_kib_max": memory_kib_max,
            "marks": {key: value for key, value in env.items() if key in MARKS},
        }
        orders.write_bytes(msgspec.json.encode(content))
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours = {key: value for key, value in env.items() if not key.startswith("HOLDFAST_")}
        try:
            self._process = subprocess.Popen(
                list(argv),
                env={**ours, "HOLDFAST_ZYGOTE_FD": str(theirs.fileno())},
                cwd=cwd,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            self._control.close()
            raise
        finally:
            theirs.close()
        self._share_cpu(NICE)
        self._control.setblocking(False)
        self._control.send(os.fsencode(orders))
        self._orders = orders

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self) -> list[Report]:
        """Returns the zygote's messages since the last call."""
        found: list[Report] = []
        while not self.over:
            try:
                data = self._control.recv(MESSAGE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.end()
                break
            with suppress(msgspec.MsgspecError):
                found.append(msgspec.json.decode(data, type=Report))
        if not self.is_ready and any(report.kind == "ready" for report in found):
            self.is_ready = True
            self._share_cpu(0)  # from here on it only forks
        return found

    def serve(self, worker: Path, marks: Mapping[str, str]) -> int:
        """Has the zygote fork the fork server of an attempt. Returns the reaper's end of the connection to
        it, a file descriptor.

        `worker`: the worker's folder, in which stubs connect. `marks`: environment variables by which the
        fork server's process is found.

        raises: OSError
        """
        if not self.is_ready:
            self._hurry()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _bind(listener, worker)
            order = json.dumps({"name": f"{worker.parent.name}/{worker.name}", "marks": dict(marks)}).encode()
            rights = array.array("i", [listener.fileno(), theirs.fileno()]).tobytes()
            self._control.sendmsg([order], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError:
            ours.close()
            raise
        finally:
            listener.close()
            theirs.close()
        return ours.detach()

    def _hurry(self) -> None:
        """Raises its imports to the usual priority, if this process may: nothing trains while an attempt waits for it."""
        self._share_cpu(0)
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{self.pid}/task"):
                os.setpriority(os.PRIO_PROCESS, int(thread), os.getpriority(os.PRIO_PROCESS, 0))

    def _share_cpu(self, nice: int) -> None:
        """Sets the priority of its autogroup: with autogroups the kernel shares CPU time between sessions, and the priority
        of a thread counts only within its own. Its fork servers have sessions of their own.
        """
        with suppress(OSError):
            Path(f"/proc/{self.pid}/autogroup").write_text(str(nice), encoding="ascii")

    def end(self) -> None:
        """Ends the zygote; fork servers and their ranks keep running."""
        if not self.over:
            self.over = True
            self._control.close()
            self._share_cpu(0)  # else its end, which is waited for, would take long on a busy machine
            self._process.kill()
            self._process.wait()
            self._orders.unlink(missing_ok=True)


def _bind(listener: socket.socket, folder: Path) -> None:
    """By the folder's descriptor: its path may be too long for a socket's name."""
    (folder / SOCKET).unlink(missing_ok=True)
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{directory}/{SOCKET}")
    finally:
        os.close(directory)
    listener.listen(BACKLOG)
