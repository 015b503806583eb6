"""Defines the JSON documents of nodes and their devices in the HTTP API."""

from msgspec import Struct

from holdfast.model.documents.incidents import CheckRow, IncidentLink


class NodeRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node. `lemon_score`: 0..1. `numbers`: its inputs. `isolated_for`: reason and user; empty: not isolated.

    `incidents`: number of incidents, of the jobs of this server, whose verdict names the node. `jobs`: that run on it now.
    """

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
    """A device, identified by its serial number. `nodes`: nodes that had it and since when, the newest first."""

    serial: str
    model: str = ""
    device: str = ""
    node: str = ""
    nodes: tuple[tuple[str, float], ...] = ()


class NodeLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the node book. `job`, `incident`: what it was written for."""

    at_s: float
    kind: str
    text: str
    device: str = ""
    serial: str = ""
    job: str = ""
    incident: int | None = None
    by: str = ""


class NodeDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node with its history. `row`: as in the list of nodes. `jobs`: the jobs that had an attempt on it. `incidents`:
    those whose verdict names it. Both: the newest first.
    """

    row: NodeRow
    jobs: tuple[str, ...] = ()
    incidents: tuple[IncidentLink, ...] = ()
    lines: tuple[NodeLine, ...] = ()
    devices: tuple[DeviceRow, ...] = ()
    checks: tuple[CheckRow, ...] = ()
    etag: str = ""


class NodesPage(Struct, frozen=True, kw_only=True):
    """A page of the list of nodes. `next`: cursor of the next page; empty on the last."""

    nodes: tuple[NodeRow, ...]
    next: str = ""
    total: int = 0
