"""Where the ranks of a command meet: address, port, and which node opens it. Pure.

source: torchrun, torch.distributed.run (--master-addr, --master-port, --rdzv-endpoint, PET_*)
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

PORT_MAX = 65535
OWN_SERVERS = ("etcd", "etcd-v2")  # a server of its own is to be there already


class Meeting(Struct, frozen=True, kw_only=True):
    """`port`: 0: none is named. `from_command`: not only of the environment. `is_store`: torchrun's c10d store.

    `node_rank`: of this node; None: not told.
    """

    address: str = ""
    port: int = 0
    from_command: bool = False
    is_store: bool = False
    node_rank: int | None = None


def meeting_of(command: Sequence[str], env: Mapping[str, str]) -> Meeting:
    """What the command says; where it says nothing, the environment."""
    said = _said(command)
    backend = said.get("rdzv-backend") or env.get("PET_RDZV_BACKEND", "")
    endpoint = said.get("rdzv-endpoint") or env.get("PET_RDZV_ENDPOINT", "")
    rank = _whole(said.get("node-rank") or env.get("PET_NODE_RANK") or env.get("NODE_RANK", ""))
    if "standalone" in said or backend in OWN_SERVERS:
        return Meeting(node_rank=rank)
    if endpoint:
        address, _, port = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "")
        return Meeting(
            address=address.strip("[]"),
            port=_port(port),
            from_command="rdzv-endpoint" in said,
            is_store=True,
            node_rank=rank,
        )
    return Meeting(
        address=said.get("master-addr") or env.get("PET_MASTER_ADDR") or env.get("MASTER_ADDR", ""),
        port=_port(said.get("master-port") or env.get("PET_MASTER_PORT") or env.get("MASTER_PORT", "")),
        from_command="master-port" in said,
        node_rank=rank,
    )


def _said(command: Sequence[str]) -> dict[str, str]:
    """The options of the launcher: those before the script."""
    found: dict[str, str] = {}
    for place, word in enumerate(command):
        if word.endswith(".py") and place:
            break
        if not word.startswith("--"):
            continue
        name, has_value, value = word[2:].partition("=")
        after = command[place + 1] if place + 1 < len(command) else ""
        found.setdefault(
            name.replace("_", "-"), value if has_value else "" if after.startswith("--") else after
        )
    return found


def _port(text: str) -> int:
    port = _whole(text)
    return port if port is not None and port <= PORT_MAX else 0


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
