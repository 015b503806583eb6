"""The exporter: what a scraper gets from a main loop that turns, one that is held up, and one with a fault; and textfiles."""

import contextlib
import os
import socket
import threading

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open

from holdfast.metrics.exporter import Exported, Exporter, Own
from holdfast.metrics.http_endpoint import REQUEST_BYTES_MAX, parsed
from holdfast.model.monitoring.metrics import Sample
from metrics.servers import free_port, get, node_exporter
from run.place import wait_for

VERSIONS = ("1.0", "3.11")
OPEN = "application/openmetrics-text;version=1.0.0"


class Loop:
    """A main loop with one exporter, in a thread that turns it. `samples`: what it knows."""

    def __init__(self, collect=None, **exported):
        self.told = []
        self.step = 0.0
        self.exporter = Exporter(
            Exported(**exported),
            "controller",
            VERSIONS,
            collect or self.collect,
            lambda: Own(faults=2),
            self.told.append,
        )
        self._is_turning = threading.Event()
        self._is_ending = threading.Event()
        self._turns = threading.Lock()
        self._thread = threading.Thread(target=self._turn)
        self._thread.start()
        self.go()

    def collect(self):
        step = self.step
        return lambda: [Sample("holdfast_job_step", ("pretrain",), step)]

    def go(self):
        self._is_turning.set()

    def hold(self):
        """No turn begins after it, and none is under way."""
        with self._turns:
            self._is_turning.clear()

    def _turn(self):
        while not self._is_ending.is_set():
            if self._is_turning.wait(0.05):
                with self._turns:
                    if self._is_turning.is_set():
                        self.exporter.turn()
                self._is_ending.wait(0.005)

    @property
    def port(self):
        return int(self.exporter.address.rpartition(":")[2])

    def end(self):
        self._is_ending.set()
        self._thread.join()
        self.exporter.close()


@pytest.fixture
def loop():
    with contextlib.ExitStack() as stack:

        def begin(collect=None, **exported):
            one = Loop(collect, **exported)
            stack.callback(one.end)
            return one

        yield begin


def served(loop, **more):
    return loop(address=f"127.0.0.1:{free_port()}", **more)


def test_both_forms_are_served(loop):
    one = served(loop)
    one.step = 7.0
    status, text, headers = get(one.port, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'holdfast_job_step{job_name="pretrain"} 7.0\n' in text
    status, text, headers = get(one.port, "/metrics?x=1", OPEN)
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in read_open(text)}
    assert {
        "holdfast_job_step",
        "holdfast_build",
        "holdfast_faults",
        "holdfast_snapshot_age_seconds",
    } <= names
    assert one.told == [f"metrics: http://127.0.0.1:{one.port}/metrics"]


def test_each_scrape_has_the_newest_values(loop):
    one = served(loop)
    for step in range(1, 20):
        one.step = float(step)
        assert f'{{job_name="pretrain"}} {step}.0\n' in get(one.port, "/metrics")[1]


def test_while_the_main_loop_is_held_up_older_values_are_served_with_their_age(loop):
    one = served(loop)
    one.step = 1.0
    get(one.port, "/metrics")
    one.hold()
    one.step = 2.0
    status, text, _ = get(one.port, "/metrics")
    assert status == 200
    assert 'holdfast_job_step{job_name="pretrain"} 1.0\n' in text
    age_s = float(
        next(line for line in text.splitlines() if line.startswith("holdfast_snapshot_age")).split()[-1]
    )
    assert age_s > 0.9


def test_a_loop_that_never_turned_has_no_values_yet(loop):
    one = served(loop)
    one.hold()
    assert get(one.port, "/metrics")[0] == 503


def test_other_questions(loop):
    one = served(loop)
    assert get(one.port, "/")[:2] == (200, "Holdfast: its metrics for Prometheus are at /metrics\n")
    assert get(one.port, "/favicon.ico")[0] == 404
    for request, first in (
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405"),
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400"),
    ):
        with socket.create_connection(("127.0.0.1", one.port), timeout=60) as client:
            client.sendall(request)
            assert client.recv(100).startswith(first)


def test_head_has_the_length_and_no_body(loop):
    one = served(loop)
    with socket.create_connection(("127.0.0.1", one.port), timeout=60) as client:
        client.sendall(b"HEAD /metrics HTTP/1.1\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "said", [b"", b"GET /metr", b"x" * (REQUEST_BYTES_MAX + 5000), b"GET / HTTP/1.1\r\nA: b\r\n"]
)
def test_clients_that_say_too_little_or_too_much_do_not_stay(loop, said):
    one = served(loop)
    with socket.create_connection(("127.0.0.1", one.port), timeout=60) as client:
        with contextlib.suppress(OSError):
            client.sendall(said)
        assert get(one.port, "/metrics")[0] == 200  # behind the one that does not go on


def test_a_client_that_goes_away_harms_nobody(loop):
    one = served(loop)
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", one.port), timeout=60) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert get(one.port, "/metrics")[0] == 200


def test_a_port_in_use_is_one_line(loop):
    first = served(loop)
    second = loop(address=first.exporter.address)
    assert second.exporter.address == ""
    assert second.told == [
        f"metrics are not served at {first.exporter.address}: [Errno 98] Address already in use; the job continues without metrics"
    ]


def test_agents_take_the_next_free_port(loop):
    first = served(loop)
    second = loop(address=first.exporter.address, exact=False)
    assert second.port > first.port
    assert get(second.port, "/metrics")[0] == 200


@pytest.mark.parametrize("address", ["nonsense", "host.invalid.:1", "127.0.0.1:99999", "1.2.3.4:9"])
def test_an_address_that_is_none_is_one_line(loop, address):
    one = loop(address=address)
    assert len(one.told) == 1
    assert one.told[0].startswith(f"metrics are not served at {address}: ")


def test_addresses():
    assert parsed(":9755") == ("0.0.0.0", 9755)
    assert parsed("[::1]:1") == ("::1", 1)
    with pytest.raises(ValueError, match="not HOST:PORT"):
        parsed("9755")


def test_a_fault_in_the_values_is_reported_once_and_does_not_end_the_exporter(loop):
    broken = threading.Event()

    def collect():
        def rest():
            if broken.is_set():
                raise ZeroDivisionError("a fault")
            return [Sample("holdfast_job_step", ("pretrain",), 1.0)]

        return rest

    one = served(loop, collect=collect)
    broken.set()
    assert [get(one.port, "/metrics")[0] for _ in range(3)] == [503, 503, 503]
    wait_for("it is told", lambda: len(one.told) > 1)
    broken.clear()
    assert get(one.port, "/metrics")[0] == 200
    assert [text for text in one.told if "fault" in text] == [
        "metrics cannot be computed: ZeroDivisionError('a fault'); please report it"
    ]


# Textfiles -----------------------------------------------------------------------------------------------


def test_a_textfile_is_whole_and_the_last_one_has_the_end(loop, tmp_path):
    file = tmp_path / "holdfast.prom"
    one = loop(textfile=str(file))
    one.step = 1.0
    wait_for("the first file", file.exists)
    one.step = 2.0
    one.end()
    assert 'holdfast_job_step{job_name="pretrain"} 2.0\n' in file.read_text()
    assert os.listdir(tmp_path) == ["holdfast.prom"]


def test_a_textfile_that_cannot_be_written_is_one_line(loop, tmp_path):
    one = loop(textfile=str(tmp_path / "not" / "there.prom"))
    wait_for("it is told", lambda: one.told)
    one.end()
    assert len(one.told) == 1
    assert one.told[0].startswith("metrics cannot be written to")


def test_a_name_that_node_exporter_does_not_read_is_refused(loop, tmp_path):
    one = loop(textfile=str(tmp_path / "metrics.txt"))
    assert one.told == [
        f"metrics are not written to {tmp_path / 'metrics.txt'}: node-exporter reads only files that end with .prom"
    ]


def test_a_real_node_exporter_reads_the_textfile(tools, loop, started, tmp_path):
    file = tmp_path / "holdfast.prom"
    one = loop(textfile=str(file))
    one.step = 5.0
    wait_for("the file", file.exists)
    one.end()
    status, text, _ = get(started(node_exporter(tmp_path)).port, "/metrics")
    assert status == 200
    assert 'holdfast_job_step{job_name="pretrain"} 5' in text
    assert "node_textfile_scrape_error 0" in text
