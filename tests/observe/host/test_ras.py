"""The conversation with NCCL's RAS, with servers that speak it, stay silent, talk too much or are something else."""

import socket
import threading
from contextlib import suppress

import pytest

from holdfast.observe.host import ras
from holdfast.observe.host.ras import NoAnswer, RasWitness, ask_ras, split_address

REPORT = b"""NCCL version 2.27.3 compiled with CUDA 12.9

Communicators... (0.00s)
=============

    0         1         1         4         4         4   RUNNING      OK

Errors
======

Warnings
========

"""


def talk(connection, report=REPORT, greeting=b"SERVER PROTOCOL 2\n"):
    """What a RAS thread says to one client."""
    with connection, connection.makefile("rb") as said:
        assert said.readline().startswith(b"CLIENT PROTOCOL")
        connection.sendall(greeting)
        for line in said:
            if line.startswith(b"TIMEOUT"):
                connection.sendall(b"OK\n")
            elif line == b"VERBOSE STATUS\n":
                connection.sendall(report)
                return


@pytest.fixture
def server():
    """Starts servers: each serves clients one after the other with `do(connection)`; None: it accepts nobody."""
    opened, threads = [], []

    def start(do, clients=1):
        listener = socket.create_server(("127.0.0.1", 0))
        opened.append(listener)
        if do is not None:

            def serve():
                for _ in range(clients):
                    try:
                        do(listener.accept()[0])
                    except OSError:
                        return

            threads.append(threading.Thread(target=serve, daemon=True))
            threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in opened:
        try:
            listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        listener.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_report_is_asked_for_and_read(server):
    report = ask_ras(server(talk))
    assert report.nccl == "2.27.3" and report.is_whole
    assert report.groups[0].ranks == 4


def test_a_rank_that_does_not_answer_is_left_for_the_next(server):
    """All ranks of a node share the port: a stopped one takes the connection and says nothing."""
    calls, silent = [], []

    def first_silent(connection):
        calls.append(None)
        silent.append(connection) if len(calls) == 1 else talk(connection)

    report = ask_ras(server(first_silent, clients=4), deadline_s=100.0)
    assert report.is_whole and len(calls) >= 2
    silent[0].close()


def test_a_socket_that_never_answers_is_given_up(server):
    with pytest.raises(NoAnswer, match="timed out"):
        ask_ras(server(None), deadline_s=0.3)


def test_a_report_that_stops_in_the_middle_is_not_whole(server):
    kept = []  # the connection stays open: the end does not come

    def half(connection):
        kept.append(connection)
        with suppress(OSError), connection.makefile("rb") as said:  # the client may have ended it
            said.readline()
            connection.sendall(b"SERVER PROTOCOL 2\n")
            said.readline()
            connection.sendall(b"OK\n")
            said.readline()
            connection.sendall(REPORT[:-20])

    address, report, deadline_s = server(half, clients=100), None, 0.5
    while report is None and deadline_s < 100:  # a deadline that the half of it is in time for
        deadline_s *= 2
        with suppress(NoAnswer):
            report = ask_ras(address, deadline_s=deadline_s)
    for connection in kept:
        connection.close()
    assert report.groups and not report.is_whole


def test_a_report_without_end_is_cut(server):
    def endless(connection):
        with pytest.raises(OSError):
            while True:
                talk_on(connection)

    def talk_on(connection):
        with connection, connection.makefile("rb") as said:
            said.readline()
            connection.sendall(b"SERVER PROTOCOL 2\n")
            said.readline()
            connection.sendall(b"OK\n")
            said.readline()
            while True:
                connection.sendall(REPORT * 1000)

    report = ask_ras(server(endless))
    assert not report.is_whole


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\n", b"x" * 5000, b""])
def test_what_is_not_ras_is_reported(server, greeting):
    def other(connection):
        with connection:
            connection.recv(100)
            connection.sendall(greeting)

    with pytest.raises(NoAnswer, match="127.0.0.1"):
        ask_ras(server(other))


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NoAnswer, match="refused"):
        ask_ras(f"127.0.0.1:{port}")


def test_addresses():
    assert split_address("localhost:28028") == ("localhost", 28028)
    assert split_address("[::1]:5") == ("::1", 5)
    for wrong in ("", "28028", "host:", "host:0", "host:99999", "host:port"):
        with pytest.raises(NoAnswer, match=ras.ADDRESS_SETTING):
            split_address(wrong)


def test_it_is_never_asked_before_the_first_step(server):
    asked = threading.Event()

    def note(connection):
        asked.set()
        talk(connection)

    witness = RasWitness({"NCCL_RAS_ADDR": server(note)})
    try:
        assert not witness.ask() and not asked.is_set() and witness.last() is None
        witness.allow()
        assert witness.ask() and witness.wait(60)
        assert witness.last().value.is_whole and witness.why_not == ""
    finally:
        witness.close()


def test_where_it_is_switched_off_it_is_not_asked():
    witness = RasWitness({"NCCL_RAS_ENABLE": "0"})
    witness.allow()
    assert not witness.ask()
    witness.close()
