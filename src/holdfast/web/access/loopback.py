"""Finds which user of this machine has opened a loopback connection.

Every user of a machine can reach a loopback address. Without tokens, only the user who runs the server, and
root, may use it.

The kernel is asked for that one connection. Where it does not answer, its tables of all connections are read: that
takes several milliseconds for each request, as the kernel walks through all its buckets.

source: sock_diag(7): SOCK_DIAG_BY_FAMILY, inet_diag_req_v2, inet_diag_msg; netlink(7): nlmsghdr; proc_net(5):
local_address, rem_address, st, ..., uid, timeout, inode of /proc/net/tcp and /proc/net/tcp6
"""

import ipaddress
import socket
import struct
import sys
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
TABLE_BYTES_MAX = 32 << 20
End = tuple[str, int]  # host and port
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ALL_STATES, _NO_COOKIE = 4, 20, 1, 0xFFFFFFFF, 0xFFFFFFFF
_ANSWER_BYTES_MAX, _ANSWER_S = 8192, 1.0
_HEAD = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port id
_ASKED = struct.Struct("=BBBBI")  # inet_diag_req_v2: family, protocol, ext, padding, states
_ID = struct.Struct("!HH16s16s12s")  # inet_diag_sockid: ports, addresses; interface and cookie
_FOUND = struct.Struct("=4s48sIIIII")  # inet_diag_msg: state, sockid, expires, queues, uid, inode


def peer_uid(client: End, server: End) -> int | None:
    """Returns the user id of the process that connected from `client` to `server`; None if unknown.

    The kernel gives a socket that its process has closed to root: the user of such a socket is unknown.
    """
    try:
        return uid_answered(kernel_answer(request(client, server)), client, server)
    except (OSError, ValueError):
        return _uid_in_tables(client, server)


def request(client: End, server: End) -> bytes:
    """Returns the message that asks the kernel for the socket with these two ends. Raises ValueError: no address."""
    mine, other = (ipaddress.ip_address(host.partition("%")[0]) for host, _ in (client, server))
    family = socket.AF_INET if mine.version == 4 else socket.AF_INET6
    ends = _ID.pack(
        client[1], server[1], mine.packed, other.packed, struct.pack("=III", 0, *[_NO_COOKIE] * 2)
    )
    body = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + ends
    return _HEAD.pack(_HEAD.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body


def uid_answered(answer: bytes, client: End, server: End) -> int | None:
    """Returns the user id in the kernel's answer; None if the socket is closed. Raises ValueError: it has none."""
    if len(answer) < _HEAD.size + _FOUND.size or _HEAD.unpack_from(answer)[1] != _BY_FAMILY:
        raise ValueError("the kernel does not know this connection")
    uid: int
    _, ends, _, _, _, uid, inode = _FOUND.unpack_from(answer, _HEAD.size)
    if _ID.unpack(ends)[:2] != (client[1], server[1]):  # a socket that listens at the client's end
        raise ValueError("the kernel does not know this connection")
    return uid if inode else None


def kernel_answer(asked: bytes) -> bytes:
    """Sends a request to the kernel and returns its answer, which may be an error. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
        kernel.settimeout(_ANSWER_S)
        kernel.sendto(asked, (0, 0))
        return kernel.recv(_ANSWER_BYTES_MAX)


def _uid_in_tables(client: End, server: End) -> int | None:
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


def uid_in(table: str, client: End, server: End) -> int | None:
    """Returns the user id of the socket with these two ends, from the text of /proc/net/tcp or /proc/net/tcp6; None
    if it is not there, or closed.

        12: 0100007F:DBA2 0100007F:2116 01 00000000:00000000 00:00000000 00000000  1000        0 249761 ...
    """
    ends = {(mine, other) for mine in _spelled(client) for other in _spelled(server)}
    for line in table.splitlines()[1:]:
        words = line.split(None, 10)
        if len(words) > 9 and (words[1], words[2]) in ends:
            return int(words[7]) if words[7].isdigit() and words[9] != "0" else None
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


def _spelled(end: End) -> list[str]:
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
