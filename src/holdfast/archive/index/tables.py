"""Defines the tables of the index. Everything in them comes from journals and node books.

Documents are JSON as bytes; the columns beside them are what lists filter and sort by. Text is compared byte by byte
(collation "C"), so that both databases sort and search alike.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import DOUBLE_PRECISION, TEXT

# The newest migration in migrations/versions. A database that has it needs no migration.
SCHEMA = "0001"
# What the rows say. Raised whenever the same journal gives other rows: all of them are then made anew.
CONTENT = 1

METADATA = MetaData()
_TEXT = Text().with_variant(TEXT(collation="C"), "postgresql")
_SECONDS = Float().with_variant(DOUBLE_PRECISION(), "postgresql")


def _text(name: str, *, key: bool = False) -> Column[str]:
    return Column(name, _TEXT, primary_key=key, nullable=False)


def _seconds(name: str, *, nullable: bool = True) -> Column[float]:
    return Column(name, _SECONDS, nullable=nullable)


# One value for each key: the version of the contents, the folders that are indexed.
FACTS = Table("facts", METADATA, _text("key", key=True), _text("value"))

# `sort_s`: what the list is sorted by, the time of the submission. `live`: its state may change without a new entry.
# `search`: as `searchable` makes it. `revision`: rises with each change of any row.
JOBS = Table(
    "jobs",
    METADATA,
    _text("id", key=True),
    _seconds("sort_s", nullable=False),
    _text("state"),
    _text("category"),
    _text("cause"),
    Column("live", Boolean, nullable=False),
    _seconds("submitted_at_s"),
    _seconds("ended_at_s"),
    _seconds("seen_at_s"),
    Column("revision", BigInteger, nullable=False),
    _text("search"),
    Index("jobs_newest", "sort_s", "id"),
    Index("jobs_revision", "revision"),
    Index("jobs_cause", "cause", "sort_s"),
)

# Apart from JOBS: filters read that one from end to end.
JOB_DOCUMENTS = Table(
    "job_documents",
    METADATA,
    _text("id", key=True),
    Column("row", LargeBinary, nullable=False),
)

JOB_LABELS = Table(
    "job_labels",
    METADATA,
    _text("job", key=True),
    _text("key", key=True),
    _text("value"),
    Index("job_labels_value", "key", "value"),
)

# Nodes that any attempt of the job was placed on. `is_now`: its last attempt.
JOB_NODES = Table(
    "job_nodes",
    METADATA,
    _text("job", key=True),
    _text("node", key=True),
    Column("is_now", Boolean, nullable=False),
    Index("job_nodes_node", "node"),
)

INCIDENTS = Table(
    "incidents",
    METADATA,
    _text("job", key=True),
    Column("number", Integer, primary_key=True),
    _seconds("found_at_s", nullable=False),
    _text("category"),
    _text("cause"),
    Column("over", Boolean, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("row", LargeBinary, nullable=False),
    Index("incidents_cause", "cause", "found_at_s"),
    Index("incidents_revision", "revision"),
)

# Nodes that the verdict of an incident names.
INCIDENT_NODES = Table(
    "incident_nodes",
    METADATA,
    _text("job", key=True),
    Column("number", Integer, primary_key=True),
    _text("node", key=True),
    Index("incident_nodes_node", "node"),
)

# What is known of each node over all jobs: the node book's lines, judged.
NODES = Table(
    "nodes",
    METADATA,
    _text("node", key=True),
    Column("rank", Integer, nullable=False),
    Column("isolated", Boolean, nullable=False),
    _text("search"),
    Column("row", LargeBinary, nullable=False),
    Index("nodes_rank", "rank", "node"),
)

# How far each journal is in the index. `device`, `inode`: of the file, to recognise another one under the same name.
# `seq`, `chain`: of the last entry. `kept`: the replay's state after entry `kept_seq`, of long journals only.
# `trouble`: why the journal could not be read to its end; empty: it was.
SOURCES = Table(
    "sources",
    METADATA,
    _text("job", key=True),
    Column("device", BigInteger, nullable=False),
    Column("inode", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("chain", BigInteger, nullable=False),
    _text("stamp"),
    _text("trouble"),
    Column("kept_seq", BigInteger, nullable=False),
    Column("kept_chain", BigInteger, nullable=False),
    Column("kept", LargeBinary, nullable=False),
)

# Jobs whose folders were removed, for those who follow changes by revision.
REMOVED = Table(
    "removed",
    METADATA,
    _text("job", key=True),
    Column("revision", BigInteger, nullable=False),
    Index("removed_revision", "revision"),
)

OF_A_JOB = (JOB_LABELS, JOB_NODES, INCIDENTS, INCIDENT_NODES, SOURCES)  # by their column `job`
