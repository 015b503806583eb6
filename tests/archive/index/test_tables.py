"""The tables of a new database, and those that the migrations make, are those that the code uses, on both databases."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from archive.index.fleet import listed
from holdfast.archive.index.database import open_database
from holdfast.archive.index.migrate import migrate, scripts
from holdfast.archive.index.tables import CONTENT, FACTS, JOBS, METADATA, SCHEMA

WAIT_S = 60.0


@pytest.fixture
def database(url, tmp_path):
    opened = open_database(url or Path(tmp_path, "index.db"), may_change=True)
    yield opened
    opened.close()


def test_a_new_database_has_the_tables_of_the_code(database):
    with database.reading() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, METADATA) == []
        assert context.get_current_revision() == SCHEMA


def test_migrations_make_the_tables_of_a_new_database(database):
    """Columns with their types, keys and indexes, as the database itself describes them."""
    made = described(database)
    with database.writing() as connection:
        METADATA.drop_all(connection)
        connection.execute(text("DROP TABLE alembic_version"))
        migrate(connection)
    assert described(database) == made and set(METADATA.tables) < set(made)


def described(database):
    with database.reading() as connection:
        seen = inspect(connection)
        return {
            name: (
                [{key: str(value) for key, value in column.items()} for column in seen.get_columns(name)],
                seen.get_pk_constraint(name),
                sorted(map(str, seen.get_indexes(name))),
            )
            for name in seen.get_table_names()
        }


def test_the_newest_migration_is_the_one_that_the_code_knows():
    assert scripts().get_current_head() == SCHEMA


def test_opening_again_changes_nothing(database, url, tmp_path):
    database.set_facts({"a": "1"})
    again = open_database(url or Path(tmp_path, "index.db"), may_change=True)
    try:
        assert (again.facts(), again.notes) == ({"a": "1"}, [])
    finally:
        again.close()


def test_two_servers_may_make_the_tables_at_once(postgres):
    url = postgres.new_database()
    with ThreadPoolExecutor(4) as threads:
        opened = list(threads.map(lambda _: open_database(url, may_change=True), range(4)))
    for one in opened:
        assert one.facts() == {}
        one.close()


def test_an_index_of_other_contents_is_made_anew(fleet, url):
    """As after an update of Holdfast whose rows say something else."""
    fleet.job("llama").begins("n0").fails()
    first = fleet.served(url)
    assert first.wait(lambda service: service.is_current and listed(service).total == 1, WAIT_S)
    with first.database.writing() as connection:
        connection.execute(FACTS.update().where(FACTS.c.key == "content").values(value=str(CONTENT - 1)))
        connection.execute(JOBS.update().values(search="of an older version"))
    first.stop()
    second = fleet.served(url)
    assert second.wait(
        lambda service: service.is_current and listed(service, search="llama").total == 1, WAIT_S
    )
    assert second.database.facts()["content"] == str(CONTENT)
