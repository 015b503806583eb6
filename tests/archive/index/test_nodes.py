"""Nodes in the index: from the node book, with what the journals say of them."""

import pytest

from archive.index.fleet import BEGIN_S, verdict
from holdfast.archive.index.entry import BadCursor
from holdfast.archive.index.node_queries import node_incidents, node_jobs, node_row, nodes_page
from holdfast.journal.nodes.book import NodeBook
from holdfast.model.nodes.book import AttemptRan, Isolation, ReleaseLine

WAIT_S = 60.0


@pytest.fixture
def book(tmp_path):
    made = NodeBook(tmp_path / "fleet")
    names = tuple(f"n{number}" for number in range(6))
    made.note([], [AttemptRan(run="llama@1", attempt=1, nodes=names, started_s=BEGIN_S, hours=2.0)])
    made.isolate(Isolation(node="n4", since_s=BEGIN_S, reason="fan", by="ana"))
    yield made
    made.close()


@pytest.fixture
def service(fleet, url, book, tmp_path):
    fleet.job("over").begins("n0", "n1").fails(verdict())
    fleet.job("live", BEGIN_S + 60).begins("n1", "n2").steps(1, 3).hold()
    service = fleet.served(url, fleet=tmp_path / "fleet")
    assert service.wait(
        lambda service: service.is_current and len(nodes_page(service.database).nodes) == 6, WAIT_S
    )
    return service


def test_the_list(service):
    page = nodes_page(service.database)
    assert [row.node for row in page.nodes][:1] == ["n4"]
    assert sorted(row.node for row in page.nodes) == ["n0", "n1", "n2", "n3", "n4", "n5"]
    assert (page.total, page.next) == (6, "")
    isolated = page.nodes[0]
    assert (isolated.isolated, isolated.isolated_for, isolated.isolated_at_s) == (
        True,
        "fan (by ana)",
        BEGIN_S,
    )
    rows = {row.node: row for row in page.nodes}
    assert rows["n0"].incidents == 1
    assert {node: rows[node].jobs for node in ("n0", "n1", "n2")} == {
        "n0": (),
        "n1": ("live",),
        "n2": ("live",),
    }


def test_pages_search_and_filter(service):
    database = service.database
    found, cursor = [], ""
    while not found or cursor:
        page = nodes_page(database, limit=2, cursor=cursor)
        found, cursor = found + [row.node for row in page.nodes], page.next
    assert found == [row.node for row in nodes_page(database).nodes]
    assert [row.node for row in nodes_page(database, search="N3").nodes] == ["n3"]
    assert [row.node for row in nodes_page(database, search="FAN").nodes] == ["n4"]
    assert [row.node for row in nodes_page(database, isolated=True).nodes] == ["n4"]
    assert nodes_page(database, isolated=False).total == 5
    with pytest.raises(BadCursor):
        nodes_page(database, cursor="W1sxXV0")


def test_one_node(service):
    database = service.database
    assert node_row(database, "n4").isolated
    assert node_row(database, "elsewhere") is None
    assert node_jobs(database, "n1") == ("live", "over")
    [found] = node_incidents(database, "n0")
    assert (found.job, found.incident) == ("over", 1)
    assert found.sentence.text.en
    assert node_incidents(database, "n5") == ()
    listed = {row.node: row for row in nodes_page(database).nodes}
    assert all(node_row(database, node) == row for node, row in listed.items())


def test_a_change_of_the_book_is_seen(service, book):
    book.release(ReleaseLine(at_s=BEGIN_S + 9, node="n4", reason="fan replaced", by="ana"))
    assert service.wait(lambda service: nodes_page(service.database, isolated=True).total == 0, WAIT_S)
    row = node_row(service.database, "n4")
    assert (row.isolated, row.isolated_for, row.last) == (False, "", "released: fan replaced (ana)")


def test_a_book_that_cannot_be_read_is_reported(service, tmp_path):
    path = tmp_path / "fleet" / "nodes.db"
    for part in ("", "-wal", "-shm"):
        path.with_name(path.name + part).unlink(missing_ok=True)
    path.write_bytes(b"no database" * 1_000)
    assert service.wait(lambda service: "node book" in service.state.trouble, WAIT_S)
    assert nodes_page(service.database).total == 6
