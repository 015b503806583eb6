"""Watches the TCP connections between srun and its slurmstepds, which close when slurmstepd or the node's kernel
ends them.

A node that loses its power or its network closes nothing, so silence proves nothing.

source: proc_net_tcp(5): `0: 0100007F:7337 0200007F:1F90 01 ... 0 12345`, state 01 is established, field 10 is
the inode
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

ESTABLISHED = "01"
NEW_AT_ONCE = 32  # steps whose connections are looked for in one turn
EVERY_S, SOON_S = 0.5, 0.2  # the latter while some are not connected yet


class Lines:
    """Finds the srun processes of this controller that have lost the connection to their job step."""

    def __init__(self) -> None:
        self._looked_s = float("-inf")
        self._is_new = False
        self._of: dict[int, frozenset[str]] = {}  # by pid of srun: its sockets that were once connected

    def due(self, now_s: float) -> bool:
        """Returns True if the next check is due."""
        if now_s - self._looked_s < (SOON_S if self._is_new else EVERY_S):
            return False
        self._looked_s = now_s
        return True

    def cut(self, pids: Mapping[str, int]) -> set[str]:
        """Returns the names of nodes whose srun had a connection and has none now."""
        self._is_new = False
        if not pids:
            return set()
        standing = _standing()
        lives = set(pids.values())
        self._of = {pid: sockets for pid, sockets in self._of.items() if pid in lives}
        new = [pid for pid in pids.values() if pid not in self._of][:NEW_AT_ONCE]
        for pid in new:
            if found := standing & _sockets(pid):
                self._of[pid] = frozenset(found)
        self._is_new = any(pid not in self._of for pid in pids.values())
        over = {name: pid for name, pid in pids.items() if pid in self._of and not self._of[pid] & standing}
        return {name for name, pid in over.items() if not standing & _sockets(pid)}

    def was_connected(self, pid: int) -> bool:
        """Returns True if this srun was ever seen connected."""
        return pid in self._of


def has_none(pid: int) -> bool:
    """Returns True if a running srun is not connected to its step now."""
    sockets = _sockets(pid)
    return bool(sockets) and not sockets & _standing()


def _standing() -> set[str]:
    """Returns the inodes of all established TCP connections."""
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if len(fields) > 9 and fields[3] == ESTABLISHED:
                    found.add(fields[9])
    return found


def _sockets(pid: int) -> set[str]:
    """Returns the inodes of the sockets of a process and its children."""
    found = set()
    for one in (pid, *_children(pid)):
        with suppress(OSError):
            for entry in os.scandir(f"/proc/{one}/fd"):
                with suppress(OSError):
                    kind, _, inode = os.readlink(entry.path).partition(":")
                    if kind == "socket":
                        found.add(inode.strip("[]"))
    return found


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        yield from map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
