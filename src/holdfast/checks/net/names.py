"""Checks names and ports that a training needs: this host name, the first node's name, the rendezvous
port.
"""

import errno
import socket
from collections.abc import Iterator

from holdfast.checks.readers.listeners import Listener, listeners
from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.asked import asked_of
from holdfast.core.checks.net import Resolved, judge_hostname, judge_meeting_host
from holdfast.core.checks.node_findings import failed, passed, skipped
from holdfast.model.checks import (
    ASKED,
    BOOT,
    LIGHT,
    MANUAL,
    ON_FAILURE,
    PROLOG,
    Finding,
    Scene,
    Spec,
)
from holdfast.model.signatures import Words

LOOPBACK = ("localhost", "127.0.0.1", "::1")  # env-port looks at those
PORT_MAX = 65535


def look_at_names(scene: Scene) -> Iterator[Seen]:
    yield judge_hostname(resolved(scene.host or socket.gethostname()), scene.nodes, scene.env)
    meeting = asked_of(scene.command, scene.env).meeting
    host = meeting.host if meeting is not None else scene.env.get("MASTER_ADDR", "")
    if host and host not in LOOPBACK:
        yield judge_meeting_host(resolved(host))


def resolved(name: str) -> Resolved:
    """Resolves a host name with the system's resolver, and returns its addresses or the error.

    It may wait for DNS servers.
    """
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Resolved(name=name, error=getattr(error, "strerror", None) or str(error))
    addresses = tuple(dict.fromkeys(str(one[4][0]) for one in found))
    return Resolved(name=name, addresses=addresses, ours=tuple(filter(is_ours, addresses)))


def is_ours(address: str) -> bool:
    """Returns whether an IP address belongs to this node, that is, whether a socket can be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def look_at_port(scene: Scene) -> Iterator[Seen]:
    """Checks that the port in MASTER_PORT is free.

    A port that the command itself names is tested by the check `env-port` instead.
    """
    text = scene.env.get("MASTER_PORT", "")
    port = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    if scene.training:
        yield skipped("a training runs on this node and uses its port")
    elif scene.command:
        yield skipped("a command is given: the check env-port tests the port that it uses")
    elif not 0 < port <= PORT_MAX:
        yield skipped("MASTER_PORT is not set or not a port number")
    elif not _is_first(scene):
        yield skipped("the rendezvous is on another node")
    else:
        yield _port(port, scene)


def _is_first(scene: Scene) -> bool:
    rank = scene.env.get("NODE_RANK", "")
    if scene.nodes < 2 or rank == "0":
        return True
    address = scene.env.get("MASTER_ADDR", "")
    return not rank and bool(address) and bool(resolved(address).ours)


def _port(port: int, scene: Scene) -> Finding:
    number = _bind(port)
    if number == 0:
        return passed(f"port {port} is free")
    if number == errno.EACCES:
        return skipped(f"port {port} may only be opened by root")
    if number != errno.EADDRINUSE:
        return skipped(f"port {port} could not be tested: {errno.errorcode.get(number, number)}")
    holder = next(iter(listeners(NodeFiles(scene), port)), Listener())
    if holder.pid in scene.own_pids and holder.pid:
        return passed(f"port {port} is used by this training itself")
    who = f"pid {holder.pid} ({holder.name})" if holder.pid else "a process that is not visible here"
    return failed(
        who,
        "free",
        ASKED,
        device=f"port {port}",
        why=f"the rendezvous port {port} is in use by {who}",
        en="End that process, or choose another port (MASTER_PORT).",
        zh="结束该进程，或更换端口（MASTER_PORT）。",
        category="port_in_use",
    )


def _bind(port: int) -> int:
    """Binds a TCP port as the TCPStore of torch does, and returns the error number; 0 if the port is free."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
                probe.listen(1)
        except OSError as error:
            if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                continue
            return error.errno or -1
    return 0


CHECKS = (
    Check(
        Spec(
            name="net-name",
            area="net",
            what=Words(
                en="host names of this node and of the first node can be resolved",
                zh="本节点与首节点的名称能否解析",
            ),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            timeout_s=4.0,
            quick=True,
            hang_advice=Words(
                en="The DNS servers do not respond: check /etc/resolv.conf, or add the nodes to /etc/hosts.",
                zh="DNS 服务器无响应：请检查 /etc/resolv.conf，或将各节点写入 /etc/hosts。",
            ),
        ),
        look_at_names,
    ),
    Check(
        Spec(
            name="net-port",
            area="net",
            what=Words(en="the port in MASTER_PORT is free", zh="汇合端口（MASTER_PORT）是否空闲"),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            cost=LIGHT,
            quick=True,
        ),
        look_at_port,
    ),
)
