"""What a run on one machine writes into the node book and says of its node; and that a sick book costs it nothing."""

import socket
import sqlite3
import time

import pytest

from holdfast.journal.nodes.book import NodeBook
from holdfast.journal.nodes.file import FILE
from holdfast.model.nodes.book import AttemptRan, IncidentLine, Isolation
from run.place import wait_for

NODE = socket.gethostname()
WAITS = "until [ -e $NOTES/go ]; do sleep 0.05; done"


@pytest.fixture
def book(place):
    return NodeBook(place.state / "fleet")


def test_a_run_writes_its_attempts_and_incidents(place, book):
    run = place.ranks(2, "--max-restarts", "1", "--unconditional-restart").prints("step 3 ")
    place.kill_rank(1)
    place.given(1, 2)
    place.go()
    assert run.code() == 0, run.err
    (line,) = book.lines(kinds=("incident",))
    assert (line.category, line.weighs, line.suspects) == ("process_killed", "shared", (NODE,))
    assert [(one.attempt, one.nodes) for one in book.attempts()] == [(1, (NODE,)), (2, (NODE,))]
    assert book.attempts()[0].hours > 0
    assert book.isolated() == {}


def test_a_controller_that_takes_the_job_up_writes_nothing_twice(place, book):
    run = place.ranks(1, "--detach", "--max-restarts", "3", "--unconditional-restart").prints("step 3 ")
    place.kill_rank(0)
    place.given(0, 2)
    wait_for("the incident in the book", lambda: book.lines(kinds=("incident",)))
    run.kill()
    again = place.start("attach", "t").says("reattached to t")
    place.kill_rank(0, 2)
    place.given(0, 3)
    place.go()
    assert again.code() == 0, again.err
    assert [line.incident for line in book.lines(kinds=("incident",))] == [1, 2]
    assert [one.attempt for one in book.attempts()] == [1, 2, 3]


def test_an_isolated_node_is_said_and_refuses_nothing(place, book):
    book.isolate(Isolation(node=NODE, since_s=time.time(), reason="its fan rattles", by="kim"))
    run = place.shell(WAITS)
    run.says(f"this node, {NODE}, is isolated in the node book: its fan rattles")
    place.go()
    assert run.code() == 0
    assert NODE in book.isolated()


def test_a_lemon_is_said(place, book):
    """Ten of its own failures in a fleet in which nothing else fails."""
    now_s = time.time()
    nodes = (NODE, *(f"n{number}" for number in range(60)))
    ran = AttemptRan(run="r@1", attempt=1, nodes=nodes, started_s=now_s - 20 * 86_400, hours=480.0)
    lines = [
        (
            f"i{number}",
            IncidentLine(
                at_s=now_s - number * 86_400,
                node=NODE,
                run="r@1",
                attempt=1,
                incident=number,
                category="xid_79",
                title="off the bus",
                weighs="node",
                confidence=0.95,
            ),
        )
        for number in range(1, 11)
    ]
    book.note(lines, [ran])
    run = place.shell(WAITS).says(f"this node, {NODE}, is probably a lemon")
    place.go()
    assert run.code() == 0


@pytest.mark.parametrize("trouble", ["a file in its place", "damaged", "locked"])
def test_a_sick_book_costs_the_run_nothing(place, book, trouble):
    fleet = place.state / "fleet"
    if trouble == "a file in its place":
        place.state.mkdir()
        fleet.write_text("not a folder")
    else:
        book.isolate(Isolation(node="other", since_s=1.0, reason="r", by="b"))
        book.close()
    holder = None
    if trouble == "damaged":
        (fleet / FILE).write_bytes(b"x" * 9000)
        for ending in ("-wal", "-shm"):
            (fleet / f"{FILE}{ending}").unlink(missing_ok=True)
    elif trouble == "locked":
        holder = sqlite3.connect(fleet / FILE, isolation_level=None)  # of a process that hangs
        holder.execute("BEGIN EXCLUSIVE")
    run = place.shell("exit 7")
    assert run.code() == 7
    words = {"damaged": "renamed to"}.get(trouble, "the run uses the last known isolated nodes")
    assert run.err.count(words) == 1
    if holder is not None:
        holder.execute("ROLLBACK")
    if trouble == "damaged":
        assert set(NodeBook(fleet).isolated()) == {"other"}
