"""The fork server of an attempt, as its reaper sees it: a second root of the process tree.

Ranks that are forked from a zygote (`shim/holdfast_shim_zygote.py`) are no children of this process. Their parent, the
fork server, reports its pid first, and later faults of its own; it ends when this end of the connection closes.
"""

from __future__ import annotations

import os
import socket

from . import proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select

STUB = b"holdfast-stub"
READ_BYTES = 4096


class Forks:
    """`pid`: of the fork server; 0: there is none, or it has not reported yet."""

    def __init__(self, fd: int | None, poll: select.poll) -> None:
        self.pid = 0
        self.fd = -1
        self._poll = poll
        self._channel: socket.socket | None = None
        self._unread = b""
        if fd is not None:
            self._channel = socket.socket(fileno=fd)
            self._channel.setblocking(False)
            self.fd = fd
            poll.register(fd, 1)  # POLLIN

    def read(self) -> list[str]:
        """Faults that it reports."""
        if self._channel is None:
            return []
        try:
            data = self._channel.recv(READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return self._lost()
        *lines, self._unread = (self._unread + data).split(b"\n")
        faults = []
        for line in lines:
            if line.isdigit():
                self.pid = int(line)
            else:
                faults.append(line.decode("utf-8", "replace"))
        return faults

    def _lost(self) -> list[str]:
        assert self._channel is not None
        self._poll.unregister(self.fd)
        self._channel.close()
        self._channel, self.fd = None, -1
        was, self.pid = self.pid, 0
        return ["the fork server was killed, and the kernel has ended its ranks"] if was else []

    def children(self, pid: int) -> list[int]:
        """Children of a process; those of the fork server count as children of this one."""
        found = proc.children(pid)
        return [*found, *proc.children(self.pid)] if self.pid and pid == os.getpid() else found

    def by_parent(self) -> dict[int, list[int]]:
        """{ppid: [pid, ...]} of the whole machine, exact; those of the fork server are among those of this process."""
        below = proc.children_by_parent()
        if self.pid:
            below[os.getpid()] = [*below.get(os.getpid(), ()), *below.pop(self.pid, ())]
        return below

    def without_stubs(self, below: dict[int, list[int]]) -> dict[int, list[int]]:
        """The same for the tree below this process alone, for a look at what its processes do."""
        if not self.pid:
            return below
        tree = {pid for pid in proc.descendants(os.getpid(), below) if not is_stub(pid)}
        return {pid: [child for child in found if child in tree] for pid, found in below.items()}

    @property
    def is_busy(self) -> bool:
        """True while it has living children."""
        return bool(self.pid) and any(
            proc.state(pid) not in (b"", b"Z", b"X") for pid in proc.children(self.pid)
        )


def is_stub(pid: int) -> bool:
    """True for a process that only stands for one that is forked from a zygote."""
    return proc.read(f"/proc/{pid}/comm", 64).strip() == STUB
