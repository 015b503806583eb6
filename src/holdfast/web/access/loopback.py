"""Finds which user of this machine has opened a loopback connection.

Every user of a machine can reach a loopback address. Without tokens, only the user who runs the server, and
root, may use it.

source: proc_net(5): local_address, rem_address, st, ..., uid of /proc/net/tcp and /proc/net/tcp6
"""

import ipaddress
import socket
import struct
import sys
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
TABLE_BYTES_MAX = 32 << 20


def peer_uid(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Returns the user id of the process that connected from `client` to `server`; None if unknown."""
    for path in TABLES:
        try:
            with path.open("rb") as file:
                table = file.read(TABLE_BYTES_MAX).decode("ascii", "replace")
        except OSError:
            continue
        uid = uid_in(table, client, server)
        if uid is not None:
            return uid
    return None


def uid_in(table: str, client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Returns the user id of the socket with these two ends, from the text of /proc/net/tcp or /proc/net/tcp6; None
    if it is not there.

        12: 0100007F:DBA2 0100007F:2116 01 00000000:00000000 00:00000000 00000000  1000        0 249761 ...
    """
    ends = {(mine, other) for mine in _spelled(client) for other in _spelled(server)}
    for line in table.splitlines()[1:]:
        words = line.split(None, 8)
        if len(words) > 7 and (words[1], words[2]) in ends:
            return int(words[7]) if words[7].isdigit() else None
    return None


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _spelled(end: tuple[str, int]) -> list[str]:
    """Formats an address as the kernel does: 0100007F:2116 for 127.0.0.1:8470; an IPv4 address also as
    IPv6.
    """
    host, port = end
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return []
    raws = [address.packed]
    if isinstance(address, ipaddress.IPv4Address):
        raws.append(socket.inet_pton(socket.AF_INET6, f"::ffff:{address}"))
    return [f"{_words(raw)}:{port:04X}" for raw in raws]


def _words(raw: bytes) -> str:
    order = "<" if sys.byteorder == "little" else ">"
    return "".join(f"{word:08X}" for (word,) in struct.iter_unpack(f"{order}I", raw))
