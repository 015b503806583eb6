"""Both databases for the tests of the index, a new one for each test that changes it, and state folders with real journals."""

import pytest

from archive.index.fleet import Fleet
from archive.index.postgres import Postgres, binaries


@pytest.fixture(scope="session")
def postgres_server():
    """None: it is not installed. Started before the first test that can use it, and not in the midst of one."""
    if binaries() is None:
        yield None
        return
    server = Postgres()
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres(postgres_server):
    if postgres_server is None:
        pytest.skip("no PostgreSQL here: make postgresql, as root, installs it")
    return postgres_server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path, postgres_server):
    """Of a database that does not exist yet, or is empty. An empty text is the file in the state folder."""
    if request.param == "sqlite":
        return ""
    return request.getfixturevalue("postgres").new_database()


@pytest.fixture
def fleet(tmp_path):
    with Fleet(tmp_path / "state") as made:
        yield made
