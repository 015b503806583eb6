"""Parses which switch each node is connected to: Slurm's topology.conf, or lines of NODE SWITCH. Pure.

SwitchName=leaf1 Nodes=n[001-016]          Slurm, topology/tree
BlockName=b1 Nodes=n[001-018]              Slurm, topology/block
n001 leaf1                                 own lists
"""

from holdfast.late_pattern import late
from holdfast.slurm_names import BadNodeList, expanded

NODES_MAX = 1 << 17
ASSIGNED = late(r"(?i)^(?:switchname|blockname)=(\S+)\s(?:.*\s)?nodes=(\S+)")
PAIR = late(r"^([A-Za-z0-9][\w.-]*)[\s,]+([\w.:/-]+)$")


def switches_of(text: str) -> tuple[dict[str, str], list[str]]:
    """Parses the lowest switch of each node; also returns the lines that could not be parsed."""
    found: dict[str, str] = {}
    unread: list[str] = []
    for line in text.splitlines():
        words = line.partition("#")[0].strip()
        if not words:
            continue
        if match := ASSIGNED.match(words):
            try:
                nodes = expanded(match[2])
            except BadNodeList:
                unread.append(words[:80])
                continue
            found |= dict.fromkeys(nodes[: NODES_MAX - len(found)], match[1])
        elif match := PAIR.match(words):
            found[match[1]] = match[2]
        elif (
            "=" not in words
        ):  # other settings, and switches that have only switches below them, name no node
            unread.append(words[:80])
    return found, unread
