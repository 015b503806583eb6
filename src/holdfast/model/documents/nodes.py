"""Documents about nodes and their devices."""

from msgspec import Struct

from holdfast.model.documents.incidents import CheckRow


class NodeRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`lemon_score`: 0..1; `numbers`: that made it. `isolated_for`: why and by whom; empty: not isolated."""

    node: str
    isolated: bool = False
    isolated_for: str = ""
    isolated_at_s: float | None = None
    lemon: bool = False
    lemon_score: float | None = None
    numbers: dict[str, float] = {}
    incidents: int = 0
    last_at_s: float | None = None
    last: str = ""
    jobs: tuple[str, ...] = ()


class DeviceRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device by its serial number. `nodes`: where it has been, the newest first, with the times since when."""

    serial: str
    model: str = ""
    device: str = ""
    node: str = ""
    nodes: tuple[tuple[str, float], ...] = ()


class NodeLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the node book. `job`, `incident`: where it came from."""

    at_s: float
    kind: str
    text: str
    device: str = ""
    serial: str = ""
    job: str = ""
    incident: int | None = None
    by: str = ""


class NodeDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    row: NodeRow
    lines: tuple[NodeLine, ...] = ()
    devices: tuple[DeviceRow, ...] = ()
    checks: tuple[CheckRow, ...] = ()
    etag: str = ""


class NodesPage(Struct, frozen=True, kw_only=True):
    nodes: tuple[NodeRow, ...]
    next: str = ""
    total: int = 0
