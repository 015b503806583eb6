"""Defines the database tables of the index. All their data comes from journals and node books.

Documents are stored as JSON bytes; the other columns serve filters and sorting. Text compares byte by byte
(collation "C"), so that both databases sort and search alike.
"""

from sqlalchemy import (
    DOUBLE_PRECISION,
    TEXT,
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

# The newest migration in migrations/versions. A database of this version needs no migration.
SCHEMA = "0001"
# Version of the row contents. Raise it whenever the same journal yields different rows; all rows are then
# rebuilt.
CONTENT = 2

METADATA = MetaData()
_TEXT = Text().with_variant(TEXT(collation="C"), "postgresql")
_SECONDS = Float().with_variant(DOUBLE_PRECISION(), "postgresql")


def _text(name: str, *, key: bool = False) -> Column[str]:
    return Column(name, _TEXT, primary_key=key, nullable=False)


def _seconds(name: str, *, nullable: bool = True) -> Column[float]:
    return Column(name, _SECONDS, nullable=nullable)


# One value per key: the version of the contents, the indexed folders.
FACTS = Table("facts", METADATA, _text("key", key=True), _text("value"))

# `sort_s`: the sort key of the list, the submission time. `live`: the state can change without a new entry.
# `search`: the output of `searchable`. `revision`: increases with each change of any row.
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

# Separate from JOBS, because filters scan that table completely.
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

# Nodes of all attempts of the job. `is_now`: a node of the last attempt.
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

# The node book's data over all jobs, with scores.
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

# The position up to which each journal is indexed. `device`, `inode`: of the file, to detect a replaced file.
# `seq`, `chain`: of the last entry. `kept`: the replay state after entry `kept_seq`, of long journals only.
# `trouble`: why the journal could not be read to its end; empty if it was.
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

# Jobs whose folders were removed, for readers that follow changes by revision.
REMOVED = Table(
    "removed",
    METADATA,
    _text("job", key=True),
    Column("revision", BigInteger, nullable=False),
    Index("removed_revision", "revision"),
)

OF_A_JOB = (JOB_LABELS, JOB_NODES, INCIDENTS, INCIDENT_NODES, SOURCES)  # tables with a column `job`
