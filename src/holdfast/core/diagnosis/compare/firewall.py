"""Relates packets that a node's firewall rejected to the connections that failed because of it. Pure."""

from collections.abc import Sequence
from ipaddress import ip_address

from holdfast.core.diagnosis.candidates import class_of
from holdfast.core.diagnosis.compare.comparison import Comparison, host_of, place
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit


def refused_by_firewall(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding if a rejected packet belongs to a failed connection; otherwise None.

    Firewalls reject many unrelated packets.
    """
    for refused in sorted((one for one in matches if known.has("packet-refused", one)), key=place):
        failed = sorted((one for one in matches if _failed_for(one, refused, known)), key=place)
        if failed:
            return _refused(refused, failed, host_of(refused, sources), known)
    return None


def _failed_for(one: Match, refused: Match, known: KnowledgeBase) -> bool:
    """Returns whether a failed connection and a rejected packet have the same address and port.

    If the failed line names no port, the address suffices. A scheduler's lines name nodes instead of
    addresses: there the port decides, and the source must be in the cluster.
    """
    if known.has("packet-refused", one):
        return False
    port = refused.captures["port"]
    if known.says("port-of-scheduler", port) and known.has("node-lost-to-scheduler", one):
        return _is_of_cluster(refused.captures["source"])
    if class_of(one.category) != "communication":
        return False
    return any(
        address == refused.captures["peer"] and (named or one.captures.get("port", port)) == port
        for address, named in _peers(one)
    )


def _is_of_cluster(address: str) -> bool:
    try:
        return ip_address(address).is_private
    except ValueError:  # "1.2.3"
        return False


def _peers(one: Match) -> list[tuple[str, str]]:
    """Returns the address and port, if any, of each peer that a line names.

    `ip-10-0-0-12/10.0.0.12:51234` gives 10.0.0.12 and 51234.
    """
    words = one.captures.get("peer", "").replace("/", " ").replace("[", " ").replace("]", " ").split()
    parts = [(word, *word.rpartition(":")) for word in words]
    return [(word, "") for word, *_ in parts] + [(address, port) for _, address, _, port in parts]


def _refused(refused: Match, failed: Sequence[Match], host: str | None, known: KnowledgeBase) -> Comparison:
    source, peer, port = (refused.captures[name] for name in ("source", "peer", "port"))
    where = host or peer
    return Comparison(
        category="node_down" if known.says("port-of-scheduler", port) else failed[0].category,
        first=refused,
        role="cause",
        severity="error",
        weight=0.9,
        action="fix_network",
        culprits=(Culprit(host=host),) if host else (),
        title=Words(
            en=f"the firewall of {where} rejects packets from {source} to port {port}",
            zh=f"{where} 的防火墙拒绝了 {source} 对端口 {port} 的访问",
        ),
        explanation=Words(
            en=f"The kernel logged a dropped packet of the connection to {peer} that failed.",
            zh=f"内核记录了被丢弃的数据包；到 {peer} 的失败连接正是它。",
        ),
        advice=known.text("firewall-advice", source=source),
        seen=(refused,),
        explained=tuple(failed),
    )
