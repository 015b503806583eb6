"""Readers against sockets that answer well, oddly, late and never."""

import socket
import time

import pytest

from holdfast.model.flight.records import Group, GroupStatus
from holdfast.observe.processes.worker_server import (
    MPI_CALLS,
    GroupStatusReader,
    flight_records,
    group_status,
    parse_groups,
    parse_ranges,
    parse_status,
    read_groups,
)

ANSWER = (
    b'{"at": 812.25, "fr": {"comm_lib_version":"","pg_config":{"":{"desc":"","name":"","ranks":"[]"}},"pg_status":'
    b'{"0":{"last_completed_collective":"6","last_enqueued_collective":"7","last_started_collective":"-1"}},'
    b'"version":"2.10"}}'
)
STATUS = (GroupStatus(0, 7, -1, 6),)


def framed(body):
    return len(body).to_bytes(4) + body


class Rank:
    """The other end, played by hand."""

    def __init__(self, path):
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1)
        self.accepted = []

    def accept(self):
        self.accepted.append(self.listener.accept()[0])
        return self.accepted[-1]

    def close(self):
        for one in (self.listener, *self.accepted):
            one.close()


@pytest.fixture
def rank(tmp_path):
    made = Rank(tmp_path / "rank-0.sock")
    yield made
    made.close()


@pytest.fixture
def reader(rank):
    times = iter(range(100))
    made = GroupStatusReader(rank.path, lambda: float(next(times)))
    yield made
    made.close()


def test_what_is_asked_in_one_round_is_read_in_the_next(rank, reader):
    assert reader.read() is None
    for _ in range(3):
        assert reader.ask()
        peer = rank.accepted[0] if rank.accepted else rank.accept()
        assert (reader.read(), peer.recv(9)) == (None, b"s")
        peer.sendall(framed(ANSWER)[:30])
        assert reader.read() is None
        peer.sendall(framed(ANSWER)[30:])
        assert reader.read() == STATUS
        assert reader.unanswered_since_s is None


def test_one_question_is_open_at_a_time_and_the_reader_knows_since_when(rank, reader):
    assert [reader.ask() for _ in range(3)] == [True, True, True]
    assert (rank.accept().recv(9), reader.unanswered_since_s) == (b"s", 0.0)


def test_nobody_there_is_no_question_unanswered(rank, reader):
    rank.close()
    rank.path.unlink()
    assert (reader.ask(), reader.unanswered_since_s, reader.fileno()) == (False, None, -1)


def test_a_rank_that_went_is_found_again(rank, reader):
    reader.ask()
    rank.accept().close()
    assert (reader.read(), reader.fileno(), reader.unanswered_since_s) == (None, -1, None)
    assert reader.ask()
    rank.accept().sendall(framed(ANSWER))
    assert reader.read() == STATUS


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xff\xff\xff",
        framed(b""),
        framed(b"{"),
        framed(b"[]"),
        framed(b'{"at": 1, "fr": {"pg_status": 5}}'),
    ],
)
def test_odd_answers_are_none_and_the_connection_is_dropped(rank, reader, answer):
    reader.ask()
    rank.accept().sendall(answer)
    assert (reader.read(), reader.fileno()) == (None, -1)


def test_a_socket_that_never_answers(rank):
    assert group_status(rank.path, time.monotonic() + 0.05, time.monotonic) is None
    assert flight_records(rank.path, 0.0, time.monotonic) is None


def test_a_backlog_that_is_full(rank, reader):
    others = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for other in others:
        other.connect(str(rank.path))
    assert not reader.ask()
    for other in others:
        other.close()


def test_no_socket_at_all(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    for path in (tmp_path / "none", plain, tmp_path / ("x" * 200), tmp_path / "no" / ("x" * 200)):
        assert group_status(path, time.monotonic() + 1, time.monotonic) is None


def test_statuses_of_two_recorders_do_not_mix():
    counts = b'{"pg_status": {"1": {"last_enqueued_collective": "5"}, "0": {}}}'
    assert parse_status(b'{"at": 1, "nccl": %s, "fr": %s}' % (counts, counts)) == (
        GroupStatus(0, -1, -1, -1),
        GroupStatus(1, 5, -1, -1),
        GroupStatus(1_000_000, -1, -1, -1),
        GroupStatus(1_000_001, 5, -1, -1),
    )
    assert parse_status(b'{"at": 1, "mpi": %s}' % counts)[1] == GroupStatus(MPI_CALLS + 1, 5, -1, -1)
    assert parse_status(b'{"at": 1, "sequences": [4, 2]}') == (
        GroupStatus(0, 4, -1, -1),
        GroupStatus(1, 2, -1, -1),
    )


def test_groups_with_ranges(tmp_path):
    text = b'{"0": {"desc": "default_pg", "backend": "gloo", "ranges": "0-2,8-16:4"}, "1": {"ranks": [0, 2]}}'
    assert parse_groups(text) == {
        "0": Group(name="0", about="default_pg", ranks=(0, 1, 2, 8, 12, 16), backend="gloo"),
        "1": Group(name="1", ranks=(0, 2)),
    }
    assert read_groups(tmp_path / "none") == {}
    (tmp_path / "odd").write_bytes(b'{"0": 5}')
    assert read_groups(tmp_path / "odd") == {}


@pytest.mark.parametrize("text", ["x", "0-99999999", "0-9:0", "3-1:-1", "0-9:-1"])
def test_odd_ranges_are_refused(text):
    with pytest.raises(ValueError, match=r"."):
        parse_ranges(text)
