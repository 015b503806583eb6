"""Builds the history and the check results in a node's document from the node book. Pure."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from holdfast.model.documents.incidents import CheckRow
from holdfast.model.documents.nodes import DeviceRow, NodeLine, NodeRow
from holdfast.model.nodes.book import (
    AnyLine,
    CheckLine,
    DeviceLine,
    ExonerationLine,
    IncidentLine,
    Isolation,
    IsolationLine,
    ReleaseLine,
    RepairLine,
)
from holdfast.views.nodes import kind, words

CHECKS_MAX = 100


def node_lines(lines: Iterable[AnyLine]) -> tuple[NodeLine, ...]:
    """Returns the history of a node, newest first."""
    return tuple(sorted(map(_line, lines), key=lambda line: line.at_s, reverse=True))


def check_rows(lines: Iterable[AnyLine]) -> tuple[CheckRow, ...]:
    """Returns the results of the node's latest checks, newest first."""
    checks = sorted(
        (one for one in lines if isinstance(one, CheckLine)), key=lambda one: one.at_s, reverse=True
    )
    return tuple(
        CheckRow(
            node=one.node, check=one.check or one.context, status=one.status, text=one.text, device=one.device
        )
        for one in checks[:CHECKS_MAX]
    )


def device_row(serial: str, lines: Sequence[DeviceLine]) -> DeviceRow:
    """Returns the row of one device.

    `lines`: all entries of the node book about this device, in any order.
    """
    found = sorted(lines, key=lambda line: line.at_s, reverse=True)
    newest = found[0]
    return DeviceRow(
        serial=serial,
        model=newest.model,
        device=newest.device,
        node=newest.node,
        nodes=tuple((one.node, one.since_s or one.at_s) for one in found),
    )


def with_isolation(row: NodeRow, isolation: Isolation | None) -> NodeRow:
    """Returns the node's row with its isolation taken from the node book, because the server's index may be older."""
    return replace(
        row,
        isolated=isolation is not None,
        isolated_for=isolated_for(isolation),
        isolated_at_s=isolation.since_s if isolation is not None else None,
    )


def isolated_for(isolation: Isolation | None) -> str:
    """Returns why a node is isolated and by whom, as text; empty if the node is not isolated."""
    return f"{isolation.reason} (by {isolation.by})" if isolation is not None else ""


def _line(line: AnyLine) -> NodeLine:
    run = getattr(line, "run", "")
    incident = line.incident if isinstance(line, IncidentLine | ExonerationLine) else None
    by = line.by if isinstance(line, IsolationLine | ReleaseLine | RepairLine) else ""
    return NodeLine(
        at_s=line.at_s,
        kind=kind(line),
        text=words(line),
        device=line.device,
        serial=line.serial,
        job=run.partition("@")[0],
        incident=incident,
        by=by,
    )
