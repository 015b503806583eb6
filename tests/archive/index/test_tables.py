"""The tables that the migrations make are those that the code uses, on both databases."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from archive.index.fleet import listed
from holdfast.archive.index.database import open_database
from holdfast.archive.index.migrate import scripts
from holdfast.archive.index.tables import CONTENT, FACTS, JOBS, METADATA, SCHEMA

WAIT_S = 60.0


@pytest.fixture
def database(url, tmp_path):
    opened = open_database(url or Path(tmp_path, "index.db"), may_change=True)
    yield opened
    opened.close()


def test_migrations_make_the_tables_of_the_code(database):
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


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
