"""Checks whether the rendezvous port is free on the node that will listen on it."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from holdfast.checks.registry import Check, Seen
from holdfast.checks.training_python.run import answer_of, run_of
from holdfast.core.checks.asked import Meeting
from holdfast.core.checks.env.port import Holder, not_here, of_address, of_port
from holdfast.core.checks.env.shell_text import is_known
from holdfast.model.checks import BOOT, LIGHT, MANUAL, ON_FAILURE, PROLOG, SKIP, Finding, Scene, Spec
from holdfast.model.signatures import Words
from holdfast.parsers.log_lines.secrets import masked

COMMAND_CHARS_MAX = 80
# Since it has this line, torchrun on one node takes a free port where none is named.
_TAKES_A_FREE_PORT = "and args.master_port is None"


def port(scene: Scene) -> Iterator[Seen]:
    asked = run_of(scene).asked
    meeting, nodes = asked.meeting, max(asked.nodes, scene.nodes)
    if not scene.command:
        yield Finding(status=SKIP, why="no command was given: holdfast check -- COMMAND")
        return
    if meeting is not None and (wrong := of_address(meeting, nodes)) is not None:
        yield wrong
    if meeting is not None and meeting.usual and nodes == 1 and _takes_a_free_port(scene):
        yield Finding(status=SKIP, why="the launcher chooses a free port itself")
        return
    why = not_here(meeting, nodes, _is_here(meeting.host, scene.host) if meeting is not None else None)
    if why or meeting is None:
        yield Finding(status=SKIP, why=why)
        return
    error = bind_error(meeting.port)
    yield of_port(meeting, nodes, error, list(_holders(meeting, scene)) if error else [])


def _takes_a_free_port(scene: Scene) -> bool:
    said = answer_of(scene).said
    folder = said["torch"].get("folder", "") if said is not None else ""
    try:
        return bool(folder) and _TAKES_A_FREE_PORT in (Path(folder) / "distributed/run.py").read_text()
    except (OSError, UnicodeDecodeError):
        return False


def _is_here(host: str, own: str) -> bool | None:
    """Returns whether a host name or address belongs to this node; None if it cannot be resolved."""
    if not host or host in ("localhost", "::1", own, own.partition(".")[0]) or host.startswith("127."):
        return True
    if not is_known(host):
        return None
    ours = {address.address.partition("%")[0] for one in psutil.net_if_addrs().values() for address in one}
    if host in ours:
        return True
    try:
        found = {str(one[4][0]) for one in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return None
    return bool(found & ours) or any(address.startswith("127.") for address in found)


def bind_error(port: int) -> str:
    """Returns why a TCP port cannot be bound, or an empty string if it can.

    Binds as the TCPStore of torch does: on all addresses of IPv4 and IPv6.
    """
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("::", port))
            return ""
    except OverflowError:
        return f"{port} is not a valid port number"
    except OSError as error:
        if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            return _said(error)
    try:
        with socket.socket(socket.AF_INET) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", port))
            return ""
    except OSError as error:
        return _said(error)


def _said(error: OSError) -> str:
    return (os.strerror(error.errno) if error.errno else str(error)).lower()


def _holders(meeting: Meeting, scene: Scene) -> Iterator[Holder]:
    try:
        found = {
            one.pid or 0
            for one in psutil.net_connections("tcp")
            if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == meeting.port
        }
    except (psutil.Error, OSError):
        return
    for pid in sorted(found - {0}):
        command, family = "", {pid}
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            words = masked(" ".join(process.cmdline())).split()
            command = " ".join(words)[:COMMAND_CHARS_MAX] or process.name()
            family |= {parent.pid for parent in process.parents()}
        yield Holder(pid=pid, command=command, is_ours=bool(family & set(scene.own_pids[2:])))


CHECKS = (
    Check(
        Spec(
            name="env-port",
            area="env",
            what=Words(en="the rendezvous port is free", zh="汇合端口空闲"),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            cost=LIGHT,
            timeout_s=18.0,
            quick=True,
            hang_advice=Words(
                en="The name of the first node cannot be resolved: check DNS or /etc/hosts.",
                zh="首节点名称无法解析，请检查 DNS 或 /etc/hosts。",
            ),
        ),
        port,
    ),
)
