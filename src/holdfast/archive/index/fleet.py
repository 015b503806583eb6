"""Queries the server's index for data about all jobs: for the server's metrics, and for alerts about
nodes.
"""

import msgspec
from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.sql.functions import count

from holdfast.archive.index.database import Database
from holdfast.archive.index.tables import INCIDENTS, JOB_DOCUMENTS, JOB_NODES, JOBS, NODES
from holdfast.core.metrics.fleet_samples import FleetFacts
from holdfast.model.documents.jobs import JobRow
from holdfast.model.documents.parts import LIVE_STATES

_JOB = msgspec.json.Decoder(JobRow)


class _Node(Struct):
    """The counted fields of a node's row."""

    lemon: bool = False


_NODE = msgspec.json.Decoder(_Node)


def fleet_facts(database: Database, jobs_max: int) -> FleetFacts:
    """Returns the data for the server's metrics. Raises IndexUnusable.

    `jobs_max`: maximum number of running jobs to describe; the newest ones are kept.
    """
    with database.reading() as connection:
        states = connection.execute(select(JOBS.c.state, count()).group_by(JOBS.c.state)).all()
        running = connection.execute(
            select(JOB_DOCUMENTS.c.row)
            .join(JOBS, JOBS.c.id == JOB_DOCUMENTS.c.id)
            .where(JOBS.c.state.in_(sorted(LIVE_STATES)))
            .order_by(JOBS.c.sort_s.desc(), JOBS.c.id.desc())
            .limit(jobs_max)
        ).scalars()
        rows = tuple(_JOB.decode(one) for one in running)
        found = frozenset(
            connection.execute(
                select(INCIDENTS.c.job)
                .join(JOBS, JOBS.c.id == INCIDENTS.c.job)
                .where(INCIDENTS.c.over.is_(False), JOBS.c.state.in_(sorted(LIVE_STATES)))
            ).scalars()
        )
        categories = connection.execute(
            select(INCIDENTS.c.category, count()).group_by(INCIDENTS.c.category)
        ).all()
        nodes = connection.execute(select(NODES.c.isolated, NODES.c.row)).all()
    return FleetFacts(
        states={state: number for state, number in states},
        running=rows,
        open=found,
        incidents={category: number for category, number in categories},
        nodes={
            "known": len(nodes),
            "isolated": sum(one.isolated for one in nodes),
            "lemon": sum(_NODE.decode(one.row).lemon for one in nodes),
        },
    )


def nodes_of_running_jobs(database: Database) -> dict[str, tuple[str, ...]]:
    """Returns the nodes of the current attempt of each running job, by job. Raises IndexUnusable."""
    found: dict[str, list[str]] = {}
    with database.reading() as connection:
        for job, node in connection.execute(
            select(JOB_NODES.c.job, JOB_NODES.c.node)
            .join(JOBS, JOBS.c.id == JOB_NODES.c.job)
            .where(JOBS.c.state.in_(sorted(LIVE_STATES)), JOB_NODES.c.is_now.is_(True))
            .order_by(JOB_NODES.c.job, JOB_NODES.c.node)
        ):
            found.setdefault(job, []).append(node)
    return {job: tuple(nodes) for job, nodes in found.items()}
