"""Represents the fork server of an attempt in its reaper: a second root of the process tree.

Ranks that are forked from a zygote (`shim/holdfast_shim_zygote.py`) are not children of the reaper. Their
parent, the fork server, reports its pid first and its own errors later; it ends when the reaper closes the
connection.
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
    """Connection of a reaper to the attempt's fork server. `pid`: of the fork server; 0: there is none, or it
    has not reported yet.
    """

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
        """Returns the errors that the fork server has reported since the last call."""
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
        """Returns the process ids of a process's children; those of the fork server count as children of the
        reaper.
        """
        found = proc.children(pid)
        return [*found, *proc.children(self.pid)] if self.pid and pid == os.getpid() else found

    def by_parent(self) -> dict[int, list[int]]:
        """Returns {ppid: [pid, ...]} for all processes of the machine; children of the fork server are listed
        under the reaper.
        """
        below = proc.children_by_parent()
        if self.pid:
            below[os.getpid()] = [*below.get(os.getpid(), ()), *below.pop(self.pid, ())]
        return below

    def without_stubs(self, below: dict[int, list[int]]) -> dict[int, list[int]]:
        """Returns {ppid: [pid, ...]} of the tree below the reaper, without stubs (see is_stub), to see what
        its processes do.
        """
        if not self.pid:
            return below
        tree = {pid for pid in proc.descendants(os.getpid(), below) if not is_stub(pid)}
        return {pid: [child for child in found if child in tree] for pid, found in below.items()}

    @property
    def is_busy(self) -> bool:
        """Returns whether the fork server has living children."""
        return bool(self.pid) and any(
            proc.state(pid) not in (b"", b"Z", b"X") for pid in proc.children(self.pid)
        )


def is_stub(pid: int) -> bool:
    """Returns whether a process is a stub: the launcher has started it in place of a rank that is forked from
    a zygote.
    """
    return proc.read(f"/proc/{pid}/comm", 64).strip() == STUB
