"""Server-sent events: what changes reaches viewers, resumes where it was, and holds up nobody."""

import socket
import threading
import time

import httpx
import pytest

from cli.journals import POLICY, START_S, Kept, Nobody, failure, started, steps, submitted
from holdfast.client import NotReached
from holdfast.controller.loop import Controller, replay
from holdfast.journal.store import Store
from holdfast.model.documents.jobs import LogLine
from holdfast.model.documents.live import IncidentChanged, JobChanged, StreamEnded, StreamReset
from holdfast.model.documents.output import OutputLine
from holdfast.model.events import FindingNoted
from web.servers import Server, until

EVENT_S = 100.0


class Writer:
    """A journal that grows, as a controller would write it."""

    def __init__(self, place, name):
        self.job = place.job(name, [submitted(), *started(START_S + 1, 1), *steps(START_S + 10, 1, 1, 3)])
        self._store = Store.open(self.job.journal_path)
        state = replay(list(self._store.read_raw()), POLICY)
        self._controller = Controller(POLICY, Kept(self._store), Nobody(), state=state)

    def write(self, events):
        for event in events:
            self._controller.handle(event)

    def close(self):
        self._store.close()


class Viewer(threading.Thread):
    """Reads events until it has what it wants, or the stream ends."""

    def __init__(self, client, *args, **more):
        super().__init__(daemon=True)
        self.seen, self.error = [], None
        self._events = client.events(*args, **more)
        self.start()

    def run(self):
        try:
            for event in self._events:
                self.seen.append(event)
        except (NotReached, httpx.HTTPError, RuntimeError) as error:  # the test has closed the client
            self.error = error

    def sees(self, is_it):
        return until(lambda: next((one for one in self.seen if is_it(one)), None), EVENT_S)


@pytest.fixture(scope="module")
def server(place):
    place.job("other")
    running = Server(place.root)
    with running.client() as client:
        until(lambda: client.jobs().total)
    yield running
    running.stop()


def test_changes_reach_viewers_of_all_jobs_and_of_one(server, place):
    writer = Writer(place, "grows")
    with server.client() as one, server.client() as two, server.client() as three:
        until(lambda: any(row.id == "grows" for row in one.jobs().jobs))
        everything, grows, other = Viewer(one), Viewer(two, "grows"), Viewer(three, "other")
        until(lambda: three.health().viewers == 3)
        writer.write([*steps(START_S + 20, 1, 4, 9), *failure(START_S + 40, 1, 1)])
        for viewer in (everything, grows):
            viewer.sees(lambda e: isinstance(e, JobChanged) and e.id == "grows" and e.row.incidents == 1)
            incident = viewer.sees(lambda e: isinstance(e, IncidentChanged) and e.job == "grows")
            assert incident.row.category == "gpu_oom"
        grows.sees(lambda e: isinstance(e, LogLine) and e.kind == "verdict")
        assert not any(isinstance(event, LogLine) for event in everything.seen)
        assert {event.id for event in other.seen if isinstance(event, JobChanged)} <= {"other"}
    writer.close()


class Stream:
    """The raw text of a stream, as it comes."""

    def __init__(self, server, last=""):
        self._http = server.http()
        headers = {"Last-Event-ID": last} if last else {}
        request = self._http.build_request("GET", "api/v1/events", headers=headers, timeout=EVENT_S)
        self._answer = self._http.send(request, stream=True)
        self._chunks = self._answer.iter_text()

    def until(self, what):
        found = ""
        for chunk in self._chunks:
            found += chunk
            if what in found:
                return found
        raise AssertionError(f"{what!r} did not come: {found!r}")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._answer.close()
        self._http.close()


def ids(text):
    return [line[4:] for line in text.splitlines() if line.startswith("id: ")]


def test_a_stream_goes_on_where_it_was(server, place):
    writer = Writer(place, "resumes")
    with Stream(server) as stream:
        first = ids(stream.until("id: "))[-1]
        writer.write(failure(START_S + 40, 1, 1))
        told = stream.until("gpu_oom")
    with Stream(server, first) as stream:
        again = stream.until("gpu_oom")
    assert ids(again)[0] == ids(told)[0] and "event: reset" not in again
    for unknown in ("0000-1", "x", "-", f"{first.partition('-')[0]}-99999999"):
        with Stream(server, unknown) as stream:
            assert "event: reset" in stream.until("read the documents again"), unknown
    writer.close()


def test_new_lines_of_output_reach_who_follows_it(server, place):
    folder = place.state.job("other").worker(2, 0)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "rank-3.log"
    log.write_text("old line\n")
    with server.client() as client:
        viewer = Viewer(client, "other", rank=3)
        lines = iter(range(10_000))

        def written():
            with log.open("a") as file:
                file.write(f"new line {next(lines)}\n")
            return [event for event in viewer.seen if isinstance(event, OutputLine)]

        found = until(written)
        assert found[0].text.startswith("new line") and found[0].place.rank == 3


@pytest.mark.parametrize("wanted", [{"rank": [4, 5]}, {"output": True}, {"worker": [0]}])
def test_new_lines_of_several_ranks_come_on_one_time_axis(server, place, wanted):
    folder = place.state.job("other").worker(3, 0)
    folder.mkdir(parents=True, exist_ok=True)
    logs = [folder / f"rank-{rank}.log" for rank in (4, 5)]
    for log in logs:
        log.write_text("old line\n")
    with server.client() as client:
        viewer = Viewer(client, "other", **wanted)
        lines = iter(range(10_000))

        def both():
            for log in logs:
                with log.open("a") as file:
                    file.write(f"line {next(lines)} {len(wanted)}\n")
            seen = [event for event in viewer.seen if isinstance(event, OutputLine)]
            return seen if {one.place.rank for one in seen} == {4, 5} else None

        found = until(both)
        times = [one.at_s for one in found]
        assert all(one.text.startswith("line") for one in found) and times == sorted(times)


def test_a_viewer_that_stops_reading_is_cut_off_and_holds_up_nobody(place, tmp_path):
    running = Server(place.root, "--rate", "1000")
    writer = Writer(place, "loud")
    deaf = socket.create_connection(running.address)
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host = f"{running.address[0]}:{running.address[1]}"
    deaf.sendall(f"GET /api/v1/events?job=loud HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    try:
        with running.client() as client:
            until(lambda: client.health().viewers == 1)
            viewer = Viewer(client, "loud")
            at_s = [START_S + 100]

            def is_cut_off():
                """Long lines in the log, until the deaf one's connection is full. The next when the other has some."""
                at_s[0] += 1000
                before = len(viewer.seen)
                writer.write([*failure_with(at_s[0])])
                until(lambda: len(viewer.seen) > before)
                return client.health().viewers == 1

            until(lambda: client.health().viewers == 2)
            until(is_cut_off, 100.0)
            assert viewer.seen and not any(isinstance(event, StreamEnded) for event in viewer.seen)
    finally:
        deaf.close()
        writer.close()
        running.stop()


def failure_with(at_s):
    return [FindingNoted(at_s=at_s + n, finding="slowdown", text="x" * 20_000, attempt=1) for n in range(20)]


def test_viewers_are_notified_when_the_server_ends(place):
    running = Server(place.root)
    with running.client() as client:
        viewer = Viewer(client, reconnect=False)
        until(lambda: client.health().viewers == 1)
        began_s = time.monotonic()
        assert running.stop() == 0
        assert "server ends" in viewer.sees(lambda e: isinstance(e, StreamEnded)).why
        assert time.monotonic() - began_s < 100
    assert not any(isinstance(event, StreamReset) for event in viewer.seen)
