"""Nodes that are isolated in the node book: no job is placed there, and what happens to a job's nodes is in the book."""

import time

import pytest

from holdfast.journal.nodes.book import NodeBook
from holdfast.model.nodes.book import IncidentLine, Isolation, ReleaseLine
from many.whole_job import LONG_S, WholeJob
from run.place import wait_for


@pytest.fixture
def job(tmp_path, cache_home):
    one = WholeJob(tmp_path, cache_home)
    one.env["HOLDFAST_FLEET_DIR"] = str(tmp_path / "fleet")
    yield one
    one.end()


@pytest.fixture
def book(tmp_path):
    return NodeBook(tmp_path / "fleet")


def _isolation(node):
    return Isolation(node=node, since_s=time.time(), reason="its fan rattles", by="kim")


def test_a_job_is_placed_around_an_isolated_node_and_goes_back_once_it_is_released(job, book):
    first, second, spare = names = [f"node-{number}" for number in range(3)]
    book.isolate(_isolation(first))
    run = job.train("--max-restarts", 9, "--unconditional-restart", workers=2)
    placed = job.placed()
    assert set(job.nodes.names) == set(names)
    assert set(placed) == {second, spare}
    assert f"{first} is isolated in the node book, and not used: its fan rattles" in run.err
    # Isolated while the job stands on it: the next attempt is elsewhere.
    book.isolate(_isolation(second))
    book.release(ReleaseLine(at_s=time.time(), node=first, reason="a new fan", by="kim"))
    job.trains().kill_rank(0)
    assert set(job.placed(2)) == {first, spare}
    job.trains(attempt=2).ends_well()
    assert set(book.isolated()) == {second}


def test_too_few_nodes_that_are_not_isolated_make_the_job_wait_for_a_release(job, book):
    book.isolate(_isolation("node-0"))
    run = job.train(workers=2, spares=0, HOLDFAST_PLACE_AGAIN="1s")
    wait_for(lambda: f"that it waits:\n{job.said()}", lambda: "no healthy node" in run.err, LONG_S)
    book.release(ReleaseLine(at_s=time.time(), node="node-0", reason="a new fan", by="kim"))
    assert set(job.placed()) == {"node-0", "node-1"}
    job.trains().ends_well()


def test_what_happens_to_a_jobs_nodes_is_in_the_book(job, book):
    job.train("--max-restarts", 9, "--unconditional-restart", workers=2, spares=0)
    job.trains().kill_rank(1)
    job.given_to(2)
    job.trains(attempt=2).ends_well()
    (line,) = book.lines(kinds=("incident",))
    assert isinstance(line, IncidentLine)
    assert (line.attempt, line.weighs, line.suspects) == (1, "shared", (job.placed()[1],))
    assert [(one.attempt, sorted(one.nodes)) for one in book.attempts()] == [
        (1, ["node-0", "node-1"]),
        (2, ["node-0", "node-1"]),
    ]
    assert book.isolated() == {}, "a killed rank is no reason to take a node away"
