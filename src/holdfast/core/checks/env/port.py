"""Judges whether the workers can meet at the rendezvous address of the command. Pure.

source: torch/distributed/run.py and elastic/rendezvous of PyTorch 2.13: a static rendezvous listens on the
port on the node of rank 0; c10d listens if the host of the endpoint is this node; etcd is a separate server.
"""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.checks.asked import Meeting
from holdfast.model.checks import ASKED, ENVIRONMENT_FAULT, FAIL, PASS, SKIP, WARN, Finding
from holdfast.model.signatures import Words

LAUNCHERS = ("torchrun", "torch.distributed", "torchelastic")


class Holder(Struct, frozen=True, kw_only=True):
    """The process that listens on a port. `pid` 0: unknown. `is_ours`: it belongs to the checked run."""

    pid: int = 0
    command: str = ""
    is_ours: bool = False


def not_here(meeting: Meeting | None, nodes: int, is_host: bool | None) -> str:
    """Returns why this node does not listen on a fixed rendezvous port; empty if it does.

    `is_host`: this node is the host of the rendezvous; None: unknown.
    """
    if meeting is None:
        return "the command names no rendezvous address"
    if meeting.port == 0:
        return "the port is chosen at run time"
    if meeting.backend.startswith("etcd"):
        return f"the rendezvous uses {meeting.backend}, a separate server"
    if meeting.rank:
        return f"only node 0 listens on the rendezvous port, and this is node {meeting.rank}"
    if meeting.rank is None and not is_host:
        return (
            f"{meeting.host} listens on the rendezvous port, not this node"
            if is_host is False
            else f"it is unknown whether {meeting.host} is this node"
        )
    return ""


def of_port(meeting: Meeting, nodes: int, error: str, holders: Sequence[Holder]) -> Finding:
    """Returns the finding about the rendezvous port. `error`: why the port cannot be bound; empty if it can."""
    place = f"port {meeting.port}"
    if not error:
        return Finding(status=PASS, measured=f"{place} is free", expected=f"{place} is free", whence=ASKED)
    if any(holder.is_ours for holder in holders):
        return Finding(
            status=PASS, measured=f"{place} is held by this run", expected=f"{place} is free", whence=ASKED
        )
    other = next((holder for holder in holders if holder.pid), None)
    if nodes > 1 and other is not None and any(name in other.command for name in LAUNCHERS):
        # A second agent of the same job on one machine joins the first, which is no conflict.
        return Finding(
            status=SKIP, why=f"{place} is held by another launcher, process {other.pid}, perhaps of this job"
        )
    who = f" by process {other.pid} ({other.command})" if other else ""
    is_taken = "in use" in error
    return Finding(
        status=WARN if meeting.usual else FAIL,
        device=place,
        measured=f"{place}: {error}{who}",
        expected=f"{place} is free",
        whence=ASKED,
        why=f"the rendezvous port is in use{who}" if is_taken else error,
        advice=Words(
            en=f"End the process that holds the port (ss -ltnp 'sport = :{meeting.port}'), or choose another: --master-port 0 or"
            " --standalone on one node, another --rdzv-endpoint on several.",
            zh=f"请结束占用进程（ss -ltnp 'sport = :{meeting.port}'），或更换端口：单机用 --standalone，"
            "多机更换 --rdzv-endpoint/--master-port。",
        ),
        fault="" if meeting.usual else ENVIRONMENT_FAULT,
        category="port_in_use" if is_taken else "rendezvous_timeout",
    )


def of_address(meeting: Meeting, nodes: int) -> Finding | None:
    """Returns a finding if a run on several nodes uses an address that only its own node can reach; else
    None.
    """
    is_loopback = meeting.host in ("localhost", "::1") or meeting.host.startswith("127.")
    is_first = (
        meeting.rank == 0 and meeting.backend != "c10d"
    )  # it may name itself; the others name it otherwise
    if nodes < 2 or not is_loopback or is_first or meeting.backend == "env":
        return None
    return Finding(
        status=WARN,
        device=meeting.host,
        measured=meeting.host,
        expected="an address that all nodes reach",
        whence=ASKED,
        why=f"the rendezvous of {nodes} nodes is at {meeting.host}, which each node resolves to itself",
        advice=Words(
            en="Name the first node by its host name or address (--rdzv-endpoint, --master-addr, MASTER_ADDR).",
            zh="请用首节点的主机名或 IP 作为地址（--rdzv-endpoint、--master-addr、MASTER_ADDR）。",
        ),
        category="rendezvous_timeout",
    )
