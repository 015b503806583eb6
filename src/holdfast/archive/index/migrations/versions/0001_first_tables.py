"""Creates the tables of the first version."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, LargeBinary, Text
from sqlalchemy.dialects.postgresql import DOUBLE_PRECISION, TEXT

revision = "0001"
down_revision = None

_TEXT = Text().with_variant(TEXT(collation="C"), "postgresql")
_SECONDS = Float().with_variant(DOUBLE_PRECISION(), "postgresql")


def _text(name: str, *, key: bool = False) -> Column[str]:
    return Column(name, _TEXT, primary_key=key, nullable=False)


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _bytes(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


def upgrade() -> None:
    op.create_table("facts", _text("key", key=True), _text("value"))
    op.create_table(
        "jobs",
        _text("id", key=True),
        Column("sort_s", _SECONDS, nullable=False),
        _text("state"),
        _text("category"),
        _text("cause"),
        Column("live", Boolean, nullable=False),
        Column("submitted_at_s", _SECONDS),
        Column("ended_at_s", _SECONDS),
        Column("seen_at_s", _SECONDS),
        _number("revision"),
        _text("search"),
    )
    op.create_table("job_documents", _text("id", key=True), _bytes("row"))
    op.create_table("job_labels", _text("job", key=True), _text("key", key=True), _text("value"))
    op.create_table(
        "job_nodes",
        _text("job", key=True),
        _text("node", key=True),
        Column("is_now", Boolean, nullable=False),
    )
    op.create_table(
        "incidents",
        _text("job", key=True),
        Column("number", Integer, primary_key=True),
        Column("found_at_s", _SECONDS, nullable=False),
        _text("category"),
        _text("cause"),
        Column("over", Boolean, nullable=False),
        _number("revision"),
        _bytes("row"),
    )
    op.create_table(
        "incident_nodes",
        _text("job", key=True),
        Column("number", Integer, primary_key=True),
        _text("node", key=True),
    )
    op.create_table(
        "nodes",
        _text("node", key=True),
        Column("rank", Integer, nullable=False),
        Column("isolated", Boolean, nullable=False),
        _text("search"),
        _bytes("row"),
    )
    op.create_table(
        "sources",
        _text("job", key=True),
        *(_number(name) for name in ("device", "inode", "seq", "chain")),
        _text("stamp"),
        _text("trouble"),
        *(_number(name) for name in ("kept_seq", "kept_chain")),
        _bytes("kept"),
    )
    op.create_table("removed", _text("job", key=True), _number("revision"))
    for name, table, columns in (
        ("jobs_newest", "jobs", ["sort_s", "id"]),
        ("jobs_revision", "jobs", ["revision"]),
        ("jobs_cause", "jobs", ["cause", "sort_s"]),
        ("job_labels_value", "job_labels", ["key", "value"]),
        ("job_nodes_node", "job_nodes", ["node"]),
        ("incidents_cause", "incidents", ["cause", "found_at_s"]),
        ("incidents_revision", "incidents", ["revision"]),
        ("incident_nodes_node", "incident_nodes", ["node"]),
        ("nodes_rank", "nodes", ["rank", "node"]),
        ("removed_revision", "removed", ["revision"]),
    ):
        op.create_index(name, table, columns)
