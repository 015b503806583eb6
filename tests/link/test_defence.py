"""What the hub and the link do about strangers, broken networks and broken streams, over real sockets."""

import os
import select
import socket
import struct
import tracemalloc

import pytest
from link_kit import SECRET, Ends, ends

from holdfast.link import messages
from holdfast.link.arrived import Entry, Joined, Left, Refused
from holdfast.link.frames import BODY_BYTES_MAX, ENTRY, HEADER, JOIN, Sealer
from holdfast.link.handshake import AgentSide
from holdfast.link.heard import Connected, Lost
from holdfast.link.heard import Refused as WasRefused
from holdfast.link.hub import Hub
from holdfast.link.listening import ListenFailed
from holdfast.link.peers import Limits
from holdfast.link.spool import Spool, SpoolLimits
from holdfast.link.tls import ClientTls, ServerTls, TlsUnavailable, make_certificate


@pytest.fixture
def both():
    with ends() as made:
        yield made


@pytest.fixture
def raw():
    """raw(hub): a plain connection to it."""
    opened: list[socket.socket] = []

    def connect(hub: Hub) -> socket.socket:
        sock = socket.create_connection(hub.addresses[0])
        sock.settimeout(60)
        opened.append(sock)
        return sock

    yield connect
    for sock in opened:
        sock.close()


def proven(both: Ends, sock: socket.socket, protocol: int = 1) -> Sealer:
    """Does an agent's part of the handshake by hand."""
    side = AgentSide(SECRET, os.urandom(32), protocol)
    sock.sendall(side.begin())
    both.until(lambda: bool(select.select([sock], [], [], 0)[0]))
    step = side.feed(sock.recv(4096))
    sock.sendall(step.send)
    assert step.keys
    return Sealer(step.keys.ours)


def whys(both: Ends) -> list[str]:
    return [refused.why for refused in both.of(Refused)]


def test_a_frame_that_is_too_large_closes_the_connection_and_takes_no_memory(both, raw):
    hub = both.hub()
    sock = raw(hub)
    proven(both, sock)
    tracemalloc.start()
    sock.sendall(HEADER.pack(BODY_BYTES_MAX + 1, JOIN))
    both.until(lambda: bool(both.of(Refused)))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert f"a frame of {BODY_BYTES_MAX + 1} bytes was announced" in whys(both)[0]
    assert b"was announced" in sock.recv(4096)  # the reason, before the end
    assert sock.recv(4096) == b""


def test_an_agent_of_another_protocol_is_refused_with_both_numbers(both, raw):
    hub = both.hub()
    sock = raw(hub)
    sock.sendall(AgentSide(SECRET, os.urandom(32), 9).begin())
    both.until(lambda: bool(both.of(Refused)))
    assert whys(both) == ["the peer speaks protocol 9 and this controller protocol 1"]
    assert sock.recv(4096).endswith(b"the peer speaks protocol 9 and this controller protocol 1")


@pytest.mark.parametrize(
    "body",
    [
        b"\xff" * 40,
        b"",
        struct.pack("!B", 0x95) + b"\xa0\xa0\xa0\xa0\xc4\x00",
        b"\x91\xa1x",
        b"\x95\xa4\x00\x00\x00\x80",  # no UTF-8
        b"\x96\xa1a\xa1a\xa3a/b\xa1a\xc4\x00" + b"\x91" * 5000,  # nested too deep
    ],
)
def test_an_introduction_that_is_none_is_refused(both, raw, body):
    hub = both.hub()
    sock = raw(hub)
    sock.sendall(proven(both, sock).seal(JOIN, body))
    both.until(lambda: bool(both.of(Refused)))
    assert not both.of(Joined)


def test_an_entry_that_an_agent_sends_twice_is_given_out_once(both, raw):
    hub = both.hub()
    sock = raw(hub)
    sealer = proven(both, sock)
    join = messages.Join("node1", "agent", "node1/1", "", b"")
    frames = [sealer.seal(JOIN, messages.pack(join))]
    for seq in (5, 6, 6, 5, 7):
        frames.append(sealer.seal(ENTRY, messages.entry(seq, b"%d" % seq, False)))
    sock.sendall(b"".join(frames))
    both.until(lambda: len(both.of(Entry)) >= 3)
    both.pass_s(0.5)
    assert [entry.body for entry in both.of(Entry)] == [b"5", b"6", b"7"]


def test_something_else_than_an_introduction_is_refused(both, raw):
    hub = both.hub()
    sock = raw(hub)
    sock.sendall(proven(both, sock).seal(48, b"\0" * 24))
    both.until(lambda: bool(both.of(Refused)))
    assert "instead of a join" in whys(both)[0]


def test_who_does_not_finish_the_handshake_is_dropped_after_five_seconds(both, raw):
    hub = both.hub()
    slow, silent = raw(hub), raw(hub)
    for byte in AgentSide(SECRET, os.urandom(32), 1).begin()[:38]:
        slow.sendall(bytes([byte]))
        both.pass_s(0.1)
    assert not both.of(Refused)
    both.pass_s(1.5)
    assert whys(both) == ["the peer did not finish the handshake in 5 s"] * 2
    assert slow.recv(100) == silent.recv(100) == b""


def test_strangers_are_bounded_and_agents_get_in_all_the_same(both, raw):
    hub = both.hub(limits=Limits(strangers=10))
    for _ in range(25):
        raw(hub)
    both.pass_s(0.3)
    assert len(hub._strangers) == 10
    link = both.link(hub)
    both.until(lambda: link.connected, step_s=0.1)
    assert len(hub._strangers) <= 10
    assert any("not yet authenticated" in why for why in whys(both))


def test_a_peer_that_connects_all_the_time_is_reported_now_and_then(both, raw):
    hub = both.hub(limits=Limits(refusals_a_minute=5))
    for _ in range(20):
        raw(hub).sendall(b"GET / HTTP/1.0\r\n\r\n")
    both.pass_s(0.5)
    assert len(both.of(Refused)) == 5
    assert "further ones are not reported" in whys(both)[-1]


def test_a_recorded_stream_played_again_is_refused(both, raw):
    hub = both.hub()
    relay = both.relay(hub)
    link = both.link(where=lambda: [relay.address])
    link.send(b"once")
    both.until(lambda: bool(both.of(Entry)))
    both.end([link])
    sock = raw(hub)
    sock.sendall(bytes(relay.up[0]))
    both.until(lambda: bool(both.of(Refused)))
    assert "does not have this job's secret" in whys(both)[0]  # for the proof is of another nonce
    assert len(both.of(Entry)) == 1


def test_bytes_that_are_repeated_on_the_way_end_the_connection_and_nothing_is_lost_or_twice(both):
    hub = both.hub()
    relay = both.relay(hub)
    link = both.link(where=lambda: [relay.address])
    both.until(lambda: link.connected)
    relay.change = lambda data: data + data
    link.send(b"a")
    both.until(lambda: bool(both.of(Left)))
    assert "forged, repeated or out of order" in both.of(Left)[0].why
    relay.change = bytes
    link.send(b"b")
    both.until(lambda: len(both.of(Entry)) == 2, step_s=0.1)
    assert [entry.body for entry in both.of(Entry)] == [b"a", b"b"]


def test_a_cut_without_notice_is_survived_by_both(both, tmp_path):
    hub = both.hub()
    relay = both.relay(hub)
    link = both.link(where=lambda: [relay.address], spool=Spool(tmp_path, both.clock))
    both.until(lambda: link.connected)
    relay.is_cut = True
    for number in range(10):
        link.send(b"%d" % number, drop=number % 2 == 0)
        both.pass_s(1)
    assert not link.connected
    assert len(both.told(link, Lost)) == 1
    assert not both.of(Entry)
    assert list(tmp_path.glob("loose-*.log"))  # samples, too, survive the process now
    relay.is_cut = False
    both.until(lambda: len(both.of(Entry)) == 10, step_s=0.1)
    assert [entry.body for entry in both.of(Entry)] == [b"%d" % number for number in range(10)]
    assert len(both.told(link, Connected)) == 2


def test_a_newer_connection_takes_the_place_of_one_that_only_seems_to_live(both, tmp_path):
    hub = both.hub()
    relay = both.relay(hub)
    old = both.link(where=lambda: [relay.address], spool=Spool(tmp_path, both.clock))
    both.until(lambda: old.connected)
    relay.is_cut = True  # its node has lost power: the hub's side stays open
    both.end([old])
    new = both.link(hub, spool=Spool(tmp_path, both.clock))
    both.until(lambda: new.connected)
    assert len(both.of(Joined)) == 2
    assert not both.of(Left)


def test_a_burst_is_bounded_in_memory_on_both_sides(both, tmp_path):
    hub = both.hub()
    limits = SpoolLimits(memory_bytes=2 << 20, disk_bytes=8 << 20)
    spool = Spool(tmp_path, both.clock, limits)
    link = both.link(hub, spool=spool)
    both.connect(link)
    line = b"step 100 loss 1.25 and so on, and on, and on\n"
    tracemalloc.start()
    for number in range(1600):  # 100 MB in pieces of 64 kB; the controller gets its turn now and then
        link.send(b"%08d" % number + line * 1400, drop=True)
        if number % 100 == 0:
            link.send(b"finding %d" % number)
            both.turn()
            both.arrived[:] = [entry for entry in both.of(Entry) if entry.body.startswith(b"finding")]
    sizes = sum(path.stat().st_size for path in tmp_path.iterdir())
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sizes < 9 << 20
    assert peak_bytes < 60 << 20  # what waits in the test itself is part of it
    both.until(lambda: len([one for one in both.of(Entry) if one.body.startswith(b"finding")]) == 16)
    assert spool.dropped
    assert spool.lost == 0


def test_what_expands_a_thousandfold_is_given_out_in_pieces(both):
    hub = both.hub(limits=Limits(turn_bytes=1 << 20))
    link = both.link(hub)
    both.connect(link)
    for _ in range(20):
        link.send(b"\0" * 300_000)
    most = 0
    while len(both.of(Entry)) < 20:
        before = len(both.of(Entry))
        both.turn()
        most = max(most, len(both.of(Entry)) - before)
    assert most <= 8


def test_orders_to_a_peer_that_reads_nothing_wait_and_say_is_refused(both):
    hub = both.hub(limits=Limits(out_bytes=100_000))
    link = both.link(hub)
    both.connect(link)
    both.links.remove(link)
    for number in range(100):
        hub.order("node1", f"order {number}", os.urandom(100_000))
    assert not hub.say("node1", b"x")
    assert hub._peers["node1"].connection.channel.wire.waiting_bytes < 400_000
    both.links.append(link)
    both.until(lambda: len(both.heard[link]) == 101)
    assert [order.id for order in both.heard[link][1:]] == [f"order {number}" for number in range(100)]


def test_a_host_that_no_name_server_knows_is_no_end(both):
    hub = both.hub()
    place = [[("no-such-host.invalid", 1)]]
    link = both.link(where=lambda: place[0])
    # About the time that passes: a name server may need a while, and a connection ends after some seconds.
    both.until(lambda: "no-such-host.invalid" in link.trouble, step_s=0.001, turns=60_000)
    place[0] = [("localhost", hub.addresses[0][1])]
    both.until(lambda: link.connected, step_s=0.001, turns=60_000)


def test_the_second_address_is_tried_where_nobody_listens_at_the_first(both):
    hub = both.hub()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        unused = closed.getsockname()
    link = both.link(where=lambda: [unused, *hub.addresses])
    both.until(lambda: link.connected, turns=200)
    assert link.trouble == ""


def test_a_place_that_is_taken_is_reported(both):
    hub = both.hub()
    with pytest.raises(ListenFailed, match=f"cannot listen at 127.0.0.1:{hub.addresses[0][1]}"):
        both.hub(listen=hub.addresses)


def test_a_hundred_that_come_back_at_once_all_get_in(both):
    hub = both.hub(limits=Limits(strangers=16))
    places = list(hub.addresses)
    links = [both.link(name=f"node{number}", where=lambda: places) for number in range(100)]
    both.until(lambda: all(link.connected for link in links), step_s=0.05)
    both.end([hub])
    both.until(lambda: not any(link.connected for link in links), step_s=0.05)
    places[:] = both.hub(limits=Limits(strangers=16)).addresses
    came_s = both.clock.now_s
    both.until(lambda: all(link.connected for link in links), step_s=0.05)
    assert both.clock.now_s - came_s < 10


# TLS


@pytest.fixture(scope="module")
def tls(tmp_path_factory) -> ServerTls:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_with_tls_all_is_the_same(both, tls):
    hub = both.hub(tls=tls)
    link = both.link(hub, tls=ClientTls(tls.fingerprint))
    both.connect(link)
    bodies = [os.urandom(70_000) for _ in range(30)]
    for body in bodies:
        link.send(body)
    hub.order("node1", "a", b"o" * 200_000)
    both.until(lambda: len(both.of(Entry)) == 30 and len(both.heard[link]) == 2)
    assert [entry.body for entry in both.of(Entry)] == bodies
    both.pass_s(3)
    assert link.connected


def test_another_certificate_is_refused_before_anything_is_said(both, tls):
    hub = both.hub(tls=tls)
    link = both.link(hub, tls=ClientTls("00" * 32))
    both.until(lambda: "not the pinned one" in link.trouble)
    assert not both.of(Joined)


def test_tls_on_one_side_only_is_reported(both, tls):
    hub, plain = both.hub(tls=tls), both.hub()
    without = both.link(hub)
    with_tls = both.link(plain, name="node2", tls=ClientTls(tls.fingerprint))
    both.until(lambda: len(both.of(Refused)) == 2 and without.trouble != "" and with_tls.trouble != "")
    assert any("the peer uses TLS" in why for why in whys(both))
    assert not both.of(Joined)


def test_a_certificate_is_made_once_and_read_by_nobody_else(tls):
    assert make_certificate(tls.key.parent).fingerprint == tls.fingerprint
    assert tls.key.stat().st_mode & 0o077 == 0


def test_a_certificate_that_is_none_is_reported(tmp_path, both):
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_text("nothing")
    made = make_certificate(tmp_path)
    with pytest.raises(TlsUnavailable, match="cannot be read"):
        _ = made.fingerprint
    with pytest.raises(TlsUnavailable, match="cannot be used"):
        both.hub(tls=made)


def test_refusals_reach_the_agent(both):
    hub = both.hub(limits=Limits(peers=1))
    first = both.link(hub)
    both.connect(first)
    second = both.link(hub, name="node2")
    both.until(lambda: bool(both.told(second, WasRefused)))
    assert "the maximum" in both.told(second, WasRefused)[0].why
