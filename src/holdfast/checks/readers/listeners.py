"""Finds the process that listens on a TCP port, from /proc/net/tcp and the open sockets of processes.

source: proc_net_tcp(5): `0: 0100007F:7337 00000000:0000 0A ... 0 12345`, state 0A listens, field 10 is the
inode
"""

from collections.abc import Iterator

from msgspec import Struct

from holdfast.checks.readers.node_files import NodeFiles

LISTENS = "0A"
PROCESSES_MAX = 1 << 15


class Listener(Struct, frozen=True):
    """A process that listens on a TCP port.

    `pid` is 0 if the process is not visible, for instance to another user.
    """

    pid: int = 0
    name: str = ""


def listeners(files: NodeFiles, port: int) -> Iterator[Listener]:
    inodes = set(_inodes(files, port))
    if not inodes:
        return
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for pid in [name for name in files.entries("/proc") if name.isdigit()][:PROCESSES_MAX]:
        if any(files.link(f"/proc/{pid}/fd/{fd}") in wanted for fd in files.entries(f"/proc/{pid}/fd")):
            yield Listener(int(pid), files.word(f"/proc/{pid}/comm"))


def _inodes(files: NodeFiles, port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        for line in files.text(f"/proc/net/{table}").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == LISTENS and fields[1].rpartition(":")[2] == f"{port:04X}":
                yield fields[9]
