"""Queries the index for nodes: the list of nodes, and the jobs and incidents of one node."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, and_, func, or_, select

from holdfast.archive.index.database import Database
from holdfast.archive.index.entry import cursor_of, place_of, search_terms, storable
from holdfast.archive.index.queries import LIMIT_MAX, contains
from holdfast.archive.index.tables import INCIDENT_NODES, INCIDENTS, JOB_NODES, JOBS, NODES
from holdfast.model.documents.incidents import IncidentLink
from holdfast.model.documents.jobs import IncidentRow
from holdfast.model.documents.nodes import NodeRow, NodesPage

NODE_INCIDENTS_MAX = 200
NODE_JOBS_MAX = 100
_NODE = msgspec.json.Decoder(NodeRow)
_INCIDENT = msgspec.json.Decoder(IncidentRow)


def nodes_page(
    database: Database, search: str = "", cursor: str = "", limit: int = 100, isolated: bool | None = None
) -> NodesPage:
    """Returns a page of nodes: isolated nodes first, then by lemon score, then by last entry.

    `isolated`: None means all nodes. The `jobs` of a row run on the node now. Raises BadCursor and
    IndexUnusable.
    """
    limit = min(max(1, limit), LIMIT_MAX)
    with database.reading() as connection:
        filters = [contains(connection, NODES.c.search, term) for term in search_terms(search)]
        if isolated is not None:
            filters.append(NODES.c.isolated.is_(isolated))
        after = []
        if cursor:
            rank, name = place_of(cursor, int)
            after = [or_(NODES.c.rank > rank, and_(NODES.c.rank == rank, NODES.c.node > name))]
        found = connection.execute(
            select(NODES.c.rank, NODES.c.node, NODES.c.row)
            .where(*filters, *after)
            .order_by(NODES.c.rank, NODES.c.node)
            .limit(limit + 1)
        ).all()
        total = connection.execute(select(func.count()).select_from(NODES).where(*filters)).scalar_one()
        rows = _with_news(connection, [_NODE.decode(one.row) for one in found[:limit]])
    return NodesPage(
        nodes=rows,
        next=cursor_of(found[limit - 1].rank, found[limit - 1].node) if len(found) > limit else "",
        total=total,
    )


def node_row(database: Database, node: str) -> NodeRow | None:
    """Returns the row of a node; None if the index does not contain it. Raises IndexUnusable."""
    with database.reading() as connection:
        row = connection.execute(select(NODES.c.row).where(NODES.c.node == storable(node))).scalar()
        known = NodeRow(node=node) if row is None else _NODE.decode(row)
        (found,) = _with_news(connection, [known])
    return found if row is not None or found.incidents or found.jobs else None


def node_jobs(database: Database, node: str) -> tuple[str, ...]:
    """Returns the jobs that had an attempt on the node, newest first. Raises IndexUnusable."""
    with database.reading() as connection:
        found = connection.execute(
            select(JOBS.c.id)
            .join(JOB_NODES, JOB_NODES.c.job == JOBS.c.id)
            .where(JOB_NODES.c.node == storable(node))
            .order_by(JOBS.c.sort_s.desc(), JOBS.c.id.desc())
            .limit(NODE_JOBS_MAX)
        )
        return tuple(found.scalars())


def node_incidents(database: Database, node: str) -> tuple[IncidentLink, ...]:
    """Returns the incidents whose verdict names the node, newest first. Raises IndexUnusable."""
    with database.reading() as connection:
        found = connection.execute(
            select(INCIDENTS.c.job, INCIDENTS.c.row)
            .join(
                INCIDENT_NODES,
                and_(INCIDENT_NODES.c.job == INCIDENTS.c.job, INCIDENT_NODES.c.number == INCIDENTS.c.number),
            )
            .where(INCIDENT_NODES.c.node == storable(node))
            .order_by(INCIDENTS.c.found_at_s.desc(), INCIDENTS.c.job)
            .limit(NODE_INCIDENTS_MAX)
        ).all()
    rows = [(job, _INCIDENT.decode(row)) for job, row in found]
    return tuple(
        IncidentLink(job=job, incident=row.number, at_s=row.found_at_s, sentence=row.sentence)
        for job, row in rows
    )


def _with_news(connection: Connection, rows: Sequence[NodeRow]) -> tuple[NodeRow, ...]:
    """Adds data from journals to node rows: the number of incidents that name the node, and the live jobs
    on it.
    """
    names = [storable(row.node) for row in rows]
    counted = connection.execute(
        select(INCIDENT_NODES.c.node, func.count())
        .where(INCIDENT_NODES.c.node.in_(names))
        .group_by(INCIDENT_NODES.c.node)
    )
    incidents: dict[str, int] = {node: count for node, count in counted}
    jobs = dict[str, list[str]]()
    for node, job in connection.execute(
        select(JOB_NODES.c.node, JOB_NODES.c.job)
        .join(JOBS, JOBS.c.id == JOB_NODES.c.job)
        .where(JOB_NODES.c.node.in_(names), JOBS.c.live.is_(True), JOB_NODES.c.is_now.is_(True))
        .order_by(JOBS.c.sort_s.desc(), JOBS.c.id.desc())
    ):
        jobs.setdefault(node, []).append(job)
    return tuple(
        replace(
            row,
            incidents=incidents.get(storable(row.node), 0),
            jobs=tuple(jobs.get(storable(row.node), ())[:NODE_JOBS_MAX]),
        )
        for row in rows
    )
