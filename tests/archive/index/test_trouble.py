"""A database that is damaged, locked, full, gone or of a later version: the server goes on, and says what is wrong."""

import sqlite3
from contextlib import closing

import psycopg
import pytest

from archive.index.fleet import BEGIN_S, listed, until
from holdfast.archive.index.database import IndexUnusable, NewerIndex, OlderIndex, open_database
from holdfast.archive.index.queries import job_row
from holdfast.archive.index.service import IndexService

WAIT_S = 60.0


@pytest.fixture
def job(fleet):
    return fleet.job("llama").begins("n0").fails()


def has(count):
    return lambda service: service.is_current and listed(service).total == count


def is_troubled(words):
    return lambda service: words in service.state.trouble


def is_well(service):
    """Set after the rows are there."""
    return service.state.trouble == ""


@pytest.fixture
def path(fleet):
    return fleet.root / "server" / "index.db"


def test_a_file_that_is_no_database_is_made_anew(fleet, job, path):
    path.parent.mkdir()
    path.write_bytes(b"something else" * 1_000)
    service = fleet.served("")
    assert service.wait(has(1), WAIT_S)
    assert service.state.name == str(path)
    assert service.state.trouble == ""


def test_a_damaged_index_is_made_anew(fleet, job, path):
    first = fleet.served("")
    assert first.wait(has(1), WAIT_S)
    first.stop()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    second = fleet.served("")
    assert second.wait(lambda service: service.has_database and has(1)(service), WAIT_S)
    assert second.state.name == str(path)


def test_an_index_of_a_later_version_is_left_as_it_is(fleet, job, path):
    first = fleet.served("")
    assert first.wait(has(1), WAIT_S)
    first.stop()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0999'")
    before = path.read_bytes()
    with pytest.raises(NewerIndex, match="version 0999.*use the newer Holdfast, or choose another database"):
        open_database(path, may_change=True)
    second = fleet.served("")
    assert second.wait(has(1), WAIT_S)
    assert "version 0999" in second.state.trouble
    assert second.state.name != str(path)
    second.stop()
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made(fleet, job, path):
    path.parent.write_text("a file stands where the folder should be")
    service = fleet.served("")
    assert service.wait(has(1), WAIT_S)
    assert f"the folder of the index, {path.parent}, cannot be written" in service.state.trouble


def test_an_index_that_is_removed_is_made_anew(fleet, job, path):
    service = fleet.served("")
    assert service.wait(has(1), WAIT_S)
    for part in ("", "-wal", "-shm"):
        path.with_name(path.name + part).unlink(missing_ok=True)
    fleet.job("second", BEGIN_S + 60).begins("n0").fails()
    assert service.wait(has(2), WAIT_S)
    assert service.wait(lambda service: path.exists(), WAIT_S)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (2,)


def test_a_locked_database_is_read_and_written_later(fleet, job, path):
    service = fleet.served("")
    assert service.wait(has(1), WAIT_S)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        fleet.job("second", BEGIN_S + 60).begins("n0").fails()
        assert service.wait(is_troubled("locked"), WAIT_S)
        assert listed(service).total == 1
        other.execute("ROLLBACK")
    assert service.wait(has(2), WAIT_S)
    assert service.wait(is_well, WAIT_S)


def test_a_full_database_goes_on_once_there_is_room(fleet, job, path):
    """SQLite is told to take no page more, on each connection: the same error as of a full disk."""
    service = fleet.served("")
    assert service.wait(has(1), WAIT_S)
    engine = service.database.engine
    limits = []

    def limited(pages):
        connections = [engine.raw_connection() for _ in range(4)]
        for connection in connections:
            limits.append(connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()[0])
            connection.close()

    limited(1)  # which means: no more than there are
    for number in range(60):
        fleet.job(f"job-{number:02}", BEGIN_S + number).begins("n0").fails().close()
    assert service.wait(is_troubled("full"), WAIT_S)
    assert job_row(service.database, "llama").state == "failed"
    limited(100_000)
    assert service.wait(has(61), WAIT_S)
    assert service.wait(is_well, WAIT_S)


def test_a_second_server_follows_and_takes_over(fleet, job, url):
    first = fleet.served(url)
    assert first.wait(has(1), WAIT_S)
    second = fleet.served(url)
    assert second.wait(has(1), WAIT_S)
    assert (first.state.is_writer, second.state.is_writer) == (True, False)
    second.changes()
    fleet.job("second", BEGIN_S + 60).begins("n0").fails()
    found = []
    assert second.wait(lambda service: found.extend(service.changes()) or len(found) > 1, WAIT_S)
    assert {change.job for change in found} == {"second"}
    first.stop()
    assert second.wait(lambda service: service.state.is_writer, WAIT_S)
    fleet.job("third", BEGIN_S + 120).begins("n0").fails()
    assert second.wait(has(3), WAIT_S)


def test_servers_of_other_folders_do_not_share_a_database(fleet, job, postgres, tmp_path):
    url = postgres.new_database()
    first = fleet.served(url)
    assert first.wait(has(1), WAIT_S)
    second = fleet.served(url, tmp_path / "elsewhere")
    assert second.wait(is_troubled("a server with other state folders"), WAIT_S)
    assert second.wait(has(1), WAIT_S)
    assert first.wait(has(1), WAIT_S)


def test_a_connection_that_is_ended_is_made_again(fleet, job, postgres):
    service = fleet.served(postgres.new_database())
    assert service.wait(has(1), WAIT_S)
    postgres.end_connections()
    fleet.job("second", BEGIN_S + 60).begins("n0").fails()

    def is_back(service: IndexService) -> bool:
        try:
            return has(2)(service)
        except IndexUnusable:
            return False

    assert service.wait(is_back, WAIT_S)
    assert service.wait(lambda service: service.state.name.startswith("postgresql"), WAIT_S)


def test_a_database_that_cannot_be_reached(fleet, job):
    service = fleet.served("postgresql://nobody:secret@127.0.0.1:1/none")
    assert service.wait(has(1), WAIT_S)
    assert "cannot be opened" in service.state.trouble
    assert "secret" not in service.state.trouble


@pytest.mark.parametrize("url", ["mysql://x/y", "nothing", "postgresql+nothing://x/y"])
def test_a_url_that_names_no_database(url):
    with pytest.raises(IndexUnusable):
        open_database(url, may_change=True)


def test_a_reader_waits_for_the_one_that_makes_the_tables(tmp_path):
    with pytest.raises(OlderIndex):
        open_database(tmp_path / "index.db", may_change=False)


def test_a_password_is_in_no_message(postgres):
    url = postgres.new_database().replace("@/", ":secret@/")
    database = open_database(url, may_change=True)
    try:
        assert "secret" not in database.name
        with psycopg.connect(postgres.new_database()) as connection:
            connection.execute("SELECT 1")
    finally:
        database.close()


def test_the_row_of_a_job_stands_alone(fleet, job, url):
    """What a request for one job asks of the index."""
    service = fleet.served(url)
    row = until(service, lambda service: job_row(service.database, "llama"))
    assert row.state == "failed"
    assert job_row(service.database, "nobody") is None
    assert job_row(service.database, "\x00") is None
