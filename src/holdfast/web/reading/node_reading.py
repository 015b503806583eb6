"""Reads one node or one device: its row from the index, its history from the node book."""

from pathlib import Path

from holdfast.archive.index.database import Database
from holdfast.archive.index.node_queries import node_incidents, node_jobs, node_row
from holdfast.journal.nodes.book import NodeBook
from holdfast.journal.nodes.file import NodeBookUnusable
from holdfast.model.documents.incidents import IncidentLink
from holdfast.model.documents.nodes import DeviceRow, NodeDocument, NodeRow
from holdfast.model.nodes.book import AnyLine, DeviceLine, Isolation
from holdfast.views.jobs.nodes import check_rows, device_row, node_lines, with_isolation
from holdfast.web.refusals import not_there, unavailable

LINES_MAX = 500


def read_node(folder: Path, database: Database, node: str) -> NodeDocument:
    """Returns the document of a node. Raises Refusal and IndexUnusable."""
    book = NodeBook(folder, read_only=True)
    try:
        lines, isolated, known = book.lines(node), book.isolated().get(node), node in book.nodes()
        devices = [one for one in book.devices().values() if one.node == node]
        moves = book.lines(kinds=("device",)) if devices else []
    except NodeBookUnusable as error:
        raise unavailable(str(error)) from error
    finally:
        book.close()
    row, jobs = node_row(database, node), node_jobs(database, node)
    incidents = node_incidents(database, node)
    if row is None and not (lines or isolated or known or jobs):
        raise not_there(f"there is no node {node[:100]}")
    return _document(node, row, jobs, incidents, isolated, lines, devices, moves)


def read_device(folder: Path, serial: str) -> DeviceRow:
    """Returns the row of a device. Raises Refusal."""
    book = NodeBook(folder, read_only=True)
    try:
        lines = [one for one in book.lines(serial, kinds=("device",)) if isinstance(one, DeviceLine)]
    except NodeBookUnusable as error:
        raise unavailable(str(error)) from error
    finally:
        book.close()
    if not lines:
        raise not_there(f"there is no device with the serial number {serial[:100]}")
    return device_row(serial, lines)


def _document(
    node: str,
    row: NodeRow | None,
    jobs: tuple[str, ...],
    incidents: tuple[IncidentLink, ...],
    isolation: Isolation | None,
    lines: list[AnyLine],
    devices: list[DeviceLine],
    moves: list[AnyLine],
) -> NodeDocument:
    by_serial = [one for one in moves if isinstance(one, DeviceLine)]
    return NodeDocument(
        row=with_isolation(row or NodeRow(node=node), isolation),
        jobs=jobs,
        incidents=incidents,
        lines=node_lines(lines[-LINES_MAX:]),
        devices=tuple(
            device_row(one.serial, [move for move in by_serial if move.serial == one.serial])
            for one in devices
        ),
        checks=check_rows(lines),
    )
