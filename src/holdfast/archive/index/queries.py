"""Queries the index: lists of jobs, groups of jobs with equal causes, similar incidents, changes.

Both databases run the same statements. Searches match substrings of case-folded text, compared byte by byte.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    exists,
    func,
    or_,
    select,
)

from holdfast.archive.index.database import Database
from holdfast.archive.index.entry import cursor_of, place_of, search_terms, storable
from holdfast.archive.index.tables import (
    INCIDENTS,
    JOB_DOCUMENTS,
    JOB_LABELS,
    JOBS,
    REMOVED,
)
from holdfast.model.documents.incidents import IncidentLink
from holdfast.model.documents.jobs import CauseGroup, IncidentRow, JobRow, JobsPage
from holdfast.model.documents.live import Change, IncidentChanged, JobChanged

LIMIT_MAX = 500
GROUPS_MAX = 100
JOBS_IN_GROUP_MAX = 100
SIMILAR_MAX = 50
CHANGES_MAX = 1_000
_JOB = msgspec.json.Decoder(JobRow)
_INCIDENT = msgspec.json.Decoder(IncidentRow)


class JobsWanted(Struct, frozen=True, kw_only=True):
    """Filters of a list of jobs; a job must match all of them.

    `since_s`: only jobs with a sign of life at this time or later. `grouped`: also return groups of jobs with equal
    causes.
    """

    states: tuple[str, ...] = ()
    category: str = ""
    cause: str = ""
    search: str = ""
    labels: Mapping[str, str] = {}
    since_s: float | None = None
    cursor: str = ""
    limit: int = 50
    grouped: bool = False


def jobs_page(database: Database, wanted: JobsWanted, now_s: float) -> JobsPage:
    """Returns a page of jobs, newest first. Raises BadCursor and IndexUnusable.

    The result's `states` counts, for each state, the jobs that match all other filters.
    """
    limit = min(max(1, wanted.limit), LIMIT_MAX)
    with database.reading() as connection:
        others = _filters(connection, wanted)
        of_state = [JOBS.c.state.in_(wanted.states)] if wanted.states else []
        after = _after(wanted.cursor)
        keys = connection.execute(
            select(JOBS.c.sort_s, JOBS.c.id)
            .where(*others, *of_state, *after)
            .order_by(JOBS.c.sort_s.desc(), JOBS.c.id.desc())
            .limit(limit + 1)
        ).all()
        counted = _counted(connection, others)
        kept = [one for one in counted if not wanted.states or one.state in wanted.states]
        groups = _groups(connection, kept, [*others, *of_state]) if wanted.grouped else ()
        rows = _documents(connection, [key.id for key in keys[:limit]])
    states = dict[str, int]()
    for one in counted:
        states[one.state] = states.get(one.state, 0) + one.jobs
    return JobsPage(
        jobs=tuple(rows[key.id] for key in keys[:limit] if key.id in rows),
        groups=groups,
        next=cursor_of(keys[limit - 1].sort_s, keys[limit - 1].id) if len(keys) > limit else "",
        total=sum(one.jobs for one in kept),
        states=states,
        as_of_s=now_s,
    )


def job_row(database: Database, name: str) -> JobRow | None:
    """Returns the row of a job; None if it is not indexed. Raises IndexUnusable."""
    with database.reading() as connection:
        return _documents(connection, [storable(name)]).get(name)


def similar_incidents(
    database: Database, cause: str, job: str, number: int, limit: int = 10
) -> tuple[IncidentLink, ...]:
    """Returns incidents with the same cause in other jobs and earlier in this job, newest first.

    Raises IndexUnusable.
    """
    if not cause:
        return ()
    with database.reading() as connection:
        found = connection.execute(
            select(INCIDENTS.c.job, INCIDENTS.c.row)
            .where(
                INCIDENTS.c.cause == storable(cause),
                or_(INCIDENTS.c.job != storable(job), INCIDENTS.c.number < number),
            )
            .order_by(INCIDENTS.c.found_at_s.desc(), INCIDENTS.c.job, INCIDENTS.c.number.desc())
            .limit(min(max(1, limit), SIMILAR_MAX))
        ).all()
    rows = [(name, _INCIDENT.decode(row)) for name, row in found]
    return tuple(
        IncidentLink(job=name, incident=row.number, at_s=row.found_at_s, sentence=row.sentence)
        for name, row in rows
    )


def last_revision(database: Database) -> int:
    """Returns the revision number of the last change in the index. Raises IndexUnusable."""
    with database.reading() as connection:
        found = [
            connection.execute(select(func.max(table.c.revision))).scalar() or 0
            for table in (JOBS, INCIDENTS, REMOVED)
        ]
    return max(found)


def changes_after(database: Database, revision: int, limit: int = CHANGES_MAX) -> list[tuple[int, Change]]:
    """Returns the changes after a revision, oldest first. Raises IndexUnusable.

    Each job and incident occurs once, in its current state.
    """
    found = list[tuple[int, Change]]()
    with database.reading() as connection:
        for at, body in connection.execute(
            select(JOBS.c.revision, JOB_DOCUMENTS.c.row)
            .join(JOB_DOCUMENTS, JOB_DOCUMENTS.c.id == JOBS.c.id)
            .where(JOBS.c.revision > revision)
            .order_by(JOBS.c.revision)
            .limit(limit)
        ):
            row = _JOB.decode(body)
            found.append(
                (at, Change(kind="job", job=row.id, data=JobChanged(id=row.id, etag=str(at), row=row)))
            )
        for at, job, body in connection.execute(
            select(INCIDENTS.c.revision, INCIDENTS.c.job, INCIDENTS.c.row)
            .where(INCIDENTS.c.revision > revision)
            .order_by(INCIDENTS.c.revision)
            .limit(limit)
        ):
            changed = IncidentChanged(job=job, row=_INCIDENT.decode(body))
            found.append((at, Change(kind="incident", job=job, data=changed)))
        for at, job in connection.execute(
            select(REMOVED.c.revision, REMOVED.c.job)
            .where(REMOVED.c.revision > revision)
            .order_by(REMOVED.c.revision)
            .limit(limit)
        ):
            found.append((at, Change(kind="job", job=job, data=JobChanged(id=job))))
    # The oldest rows of each kind were read. If a kind reached the limit, rows after its last one may be
    # missing.
    return sorted(found, key=lambda one: one[0])[:limit]


# Inside -------------------------------------------------------------------------------------------------------


def contains(connection: Connection, column: ColumnElement[str], text: str) -> ColumnElement[bool]:
    """Returns the SQL condition that a column contains a text, byte by byte; LIKE would ignore case in
    SQLite only.
    """
    position = func.strpos if connection.dialect.name == "postgresql" else func.instr
    return position(column, text) > 0


def _filters(connection: Connection, wanted: JobsWanted) -> list[ColumnElement[bool]]:
    """Returns the SQL conditions of all filters except states and cursor."""
    found: list[ColumnElement[bool]] = []
    if wanted.category:
        found.append(JOBS.c.category == storable(wanted.category))
    if wanted.cause:
        found.append(JOBS.c.cause == storable(wanted.cause))
    if wanted.since_s is not None:
        found.append(JOBS.c.seen_at_s >= wanted.since_s)
    for key, value in wanted.labels.items():
        label = and_(
            JOB_LABELS.c.job == JOBS.c.id,
            JOB_LABELS.c.key == storable(key),
            JOB_LABELS.c.value == storable(value),
        )
        found.append(exists().where(label))
    found += [contains(connection, JOBS.c.search, term) for term in search_terms(wanted.search)]
    return found


def _after(cursor: str) -> list[ColumnElement[bool]]:
    if not cursor:
        return []
    at_s, name = place_of(cursor, float)
    return [or_(JOBS.c.sort_s < at_s, and_(JOBS.c.sort_s == at_s, JOBS.c.id < name))]


def _counted(connection: Connection, filters: Sequence[ColumnElement[bool]]) -> Sequence[Row[Any]]:
    """Returns for each state and cause the number of jobs, and the times of the oldest and the newest."""
    at_s = func.coalesce(JOBS.c.ended_at_s, JOBS.c.seen_at_s, JOBS.c.sort_s)
    return connection.execute(
        select(
            JOBS.c.state,
            JOBS.c.cause,
            func.count().label("jobs"),
            func.min(at_s).label("since_s"),
            func.max(at_s).label("until_s"),
        )
        .where(*filters)
        .group_by(JOBS.c.state, JOBS.c.cause)
    ).all()


def _groups(
    connection: Connection, counted: Sequence[Row[Any]], filters: Sequence[ColumnElement[bool]]
) -> tuple[CauseGroup, ...]:
    """Returns causes that several jobs share, most recent first."""
    sums = dict[str, tuple[int, float, float]]()
    for one in counted:
        if one.cause:
            count, since_s, until_s = sums.get(one.cause, (0, one.since_s, one.until_s))
            sums[one.cause] = count + one.jobs, min(since_s, one.since_s), max(until_s, one.until_s)
    several = [cause for cause in sums if sums[cause][0] > 1]
    chosen = sorted(several, key=lambda cause: (-sums[cause][2], cause))[:GROUPS_MAX]
    if not chosen:
        return ()
    numbered = (
        select(
            JOBS.c.cause,
            JOBS.c.id,
            func.row_number()
            .over(partition_by=JOBS.c.cause, order_by=(JOBS.c.sort_s.desc(), JOBS.c.id.desc()))
            .label("place"),
        )
        .where(*filters, JOBS.c.cause.in_(chosen))
        .subquery()
    )
    members = dict[str, list[str]]()
    for cause, name in connection.execute(
        select(numbered.c.cause, numbered.c.id)
        .where(numbered.c.place <= JOBS_IN_GROUP_MAX)
        .order_by(numbered.c.cause, numbered.c.place)
    ):
        members.setdefault(cause, []).append(name)
    newest = _documents(connection, [members[cause][0] for cause in chosen if cause in members])
    return tuple(
        CauseGroup(
            cause=cause,
            category=newest[members[cause][0]].category,
            count=sums[cause][0],
            sentence=newest[members[cause][0]].sentence,
            jobs=tuple(members[cause]),
            since_s=sums[cause][1],
            until_s=sums[cause][2],
        )
        for cause in chosen
        if cause in members and members[cause][0] in newest
    )


def _documents(connection: Connection, names: Sequence[str]) -> dict[str, JobRow]:
    if not names:
        return {}
    found = connection.execute(
        select(JOB_DOCUMENTS.c.id, JOB_DOCUMENTS.c.row).where(JOB_DOCUMENTS.c.id.in_(names))
    )
    return {name: _JOB.decode(row) for name, row in found}
