"""Names and ports that a run needs: its own host's, the first node's, the port at which the ranks meet."""

import errno
import socket
from collections.abc import Iterator

from holdfast.checks.listeners import Listener, listeners
from holdfast.checks.node_files import NodeFiles
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.meeting import Meeting, meeting_of
from holdfast.core.checks.network import Resolved, judge_hostname, judge_meeting_host
from holdfast.core.checks.node_findings import failed, passed, skipped, warned
from holdfast.model.checks import (
    ASKED,
    BOOT,
    ENVIRONMENT_FAULT,
    LIGHT,
    MANUAL,
    ON_FAILURE,
    PROLOG,
    Finding,
    Scene,
    Spec,
)
from holdfast.model.signatures import Words


def look_at_names(scene: Scene) -> Iterator[Seen]:
    yield judge_hostname(resolved(scene.host or socket.gethostname()), scene.nodes, scene.env)
    meeting = meeting_of(scene.command, scene.env)
    if meeting.address:
        yield judge_meeting_host(resolved(meeting.address), scene.nodes)


def resolved(name: str) -> Resolved:
    """Asks the system's resolver, which may wait for servers: the check has a deadline for that."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Resolved(name=name, error=getattr(error, "strerror", None) or str(error))
    addresses = tuple(dict.fromkeys(str(one[4][0]) for one in found))
    return Resolved(name=name, addresses=addresses, ours=tuple(filter(is_ours, addresses)))


def is_ours(address: str) -> bool:
    """An address can be bound to only where it is one of the node's own."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def look_at_port(scene: Scene) -> Iterator[Seen]:
    meeting = meeting_of(scene.command, scene.env)
    if scene.training:
        yield skipped("a job trains here, and holds its port")
    elif not meeting.port:
        yield skipped("the run names no port")
    elif not _is_first(meeting, scene):
        yield skipped("the ranks do not meet on this node")
    else:
        yield _port(meeting, scene)


def _is_first(meeting: Meeting, scene: Scene) -> bool:
    if scene.nodes < 2 or meeting.node_rank == 0:
        return True
    if meeting.node_rank is not None and not meeting.is_store:
        return False
    return any(address for address in resolved(meeting.address).ours) if meeting.address else False


def _port(meeting: Meeting, scene: Scene) -> Finding:
    number = _bind(meeting.port)
    if number == 0:
        return passed(f"port {meeting.port} is free")
    if number == errno.EACCES:
        return skipped(f"port {meeting.port} may only be opened by root")
    if number != errno.EADDRINUSE:
        return skipped(f"port {meeting.port} could not be tried: {errno.errorcode.get(number, number)}")
    holder = next(iter(listeners(NodeFiles(scene), meeting.port)), Listener())
    if holder.pid in scene.own_pids and holder.pid:
        return passed(f"port {meeting.port} is held by this run itself")
    return _taken(meeting, holder)


def _taken(meeting: Meeting, holder: Listener) -> Finding:
    who = f"pid {holder.pid} ({holder.name})" if holder.pid else "a process that cannot be seen from here"
    why = f"port {meeting.port}, at which the ranks are to meet, is held by {who}"
    end = f"End pid {holder.pid}, or choose" if holder.pid else "Choose"
    zh_end = f"结束进程 {holder.pid},或" if holder.pid else ""
    en, zh = (
        f"{end} another port (MASTER_PORT, --master-port).",
        f"{zh_end}改用其他端口(MASTER_PORT、--master-port)。",
    )
    if meeting.is_store:  # torchrun meets there as a client, where a store of its own is running already
        return warned(
            who, "free", ASKED, device=f"port {meeting.port}", why=why, en=en, zh=zh, category="port_in_use"
        )
    return failed(
        who,
        "free",
        ASKED,
        device=f"port {meeting.port}",
        why=why,
        en=en,
        zh=zh,
        category="port_in_use",
        fault=ENVIRONMENT_FAULT if meeting.from_command else "",
    )


def _bind(port: int) -> int:
    """As the store of PyTorch binds: the error's number, 0 where the port can be had."""
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
                en="names of this node and of the first one resolve", zh="本节点与首节点的名称能否解析"
            ),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            timeout_s=4.0,
            quick=True,
            hang_advice=Words(
                en="The name servers do not answer: check /etc/resolv.conf, or add the nodes to /etc/hosts.",
                zh="域名服务器无应答:检查 /etc/resolv.conf,或将各节点写入 /etc/hosts。",
            ),
        ),
        look_at_names,
    ),
    Check(
        Spec(
            name="net-port",
            area="net",
            what=Words(en="the port at which the ranks meet is free", zh="各 rank 会合的端口是否空闲"),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            cost=LIGHT,
            quick=True,
        ),
        look_at_port,
    ),
)
