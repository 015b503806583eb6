"""Implements the controller's side of the link: serves all agents and clients of a job without blocking."""

import errno
import math
import os
import secrets
import select
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from holdfast.link import messages
from holdfast.link.arrived import Arrived, Entry, Joined, Left, Refusals, Said, Silent
from holdfast.link.beats import Beats
from holdfast.link.channel import Channel, ChannelEnded
from holdfast.link.frames import (
    ACK,
    BEAT,
    BODY_BYTES_MAX,
    DONE,
    ENTRY,
    GOODBYE,
    JOIN,
    ORDER,
    REFUSE,
    SAY,
    WELCOME,
    BadFrame,
    Frame,
)
from holdfast.link.handshake import NONCE_BYTES, ControllerSide
from holdfast.link.listening import accepted, listeners
from holdfast.link.order_books import OrderBook
from holdfast.link.peers import AGENT, LIMITS, Connection, Limits, Peer, Stream, used_twice
from holdfast.link.resolve import Address
from holdfast.link.tls import ServerTls, server_wires
from holdfast.model.nodes.workers import PROTOCOL

ACCEPTED_A_TURN, EVENTS_A_POLL = 128, 512
TIMES_LOOKED_AT_S = 0.1
EVENT_BYTES = 1000  # the fixed cost of an event, in bytes of `turn_bytes`


class Hub:
    """The server for all agents and clients of a job, for a single thread.

    Call `turn` when `fileno` is readable, and at least five times a second. `listen`: addresses to listen at; port 0 takes a
    free port; see `addresses`. `clock`: seconds since the epoch that never jump. `seen`: by stream, the last entry that an
    earlier controller recorded. raises: ListenFailed and TlsUnavailable, from the constructor only
    """

    def __init__(
        self,
        *,
        secret: bytes,
        listen: Sequence[Address],
        clock: Callable[[], float],
        seen: Mapping[str, int] = {},
        tls: ServerTls | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self._secret, self._clock, self._limits = secret, clock, limits
        self._wires = server_wires(tls)
        self._streams = {stream: Stream(seq, seq) for stream, seq in seen.items()}
        self._peers: dict[str, Peer] = {}
        self._connections: dict[int, Connection] = {}
        self._strangers: dict[int, Connection] = {}  # the oldest first
        self._unfinished: dict[int, Connection] = {}  # to be read from, longest waiting first
        self._acks: deque[Connection] = deque()  # in the order in which they are due
        self._joined: list[Peer] = []  # since the last turn
        self._arrived: list[Arrived] = []
        self._times_s = -math.inf
        self._accepts = True
        self._refusals = Refusals(limits.refusals_a_minute)
        self._is_closed = False
        self._listeners = listeners(listen)
        self.addresses: tuple[Address, ...] = tuple(
            listener.getsockname()[:2] for listener in self._listeners.values()
        )
        self._epoll = select.epoll()
        self._kick = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_kicked = False
        self._epoll.register(self._kick, select.EPOLLIN)
        for listener in self._listeners.values():
            self._epoll.register(listener, select.EPOLLIN)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def turn(self) -> list[Arrived]:
        """Does all work that is due, and returns what arrived since the last call, in order per peer."""
        if not self._is_closed:
            self._one_turn(self._clock())
        arrived, self._arrived = self._arrived, []
        return arrived

    def recorded(self, stream: str, seq: int) -> None:
        """Confirms that the journal contains a stream up to number `seq`, so that the agent may delete those entries."""
        known = self._streams.get(stream)
        if known is None or seq <= known.recorded:
            return  # a client that has left, or nothing new
        news = known.recorded < known.kept  # for entries that may be dropped the next beat is soon enough
        known.recorded = seq
        peer = self._peers.get(stream.rpartition("/")[0])
        if news and peer is not None and peer.stream == stream and peer.connection is not None:
            self._ack_soon(peer.connection)

    def order(self, peer: str, order_id: str, body: bytes) -> None:
        """Sends an order to a peer at each of its connections, until the peer reports it done. Ignores a repeated id.

        A peer that has just connected gets its orders in the next turn, after the reply to its Joined.
        """
        if len(body) + len(order_id) + 64 > BODY_BYTES_MAX:
            raise ValueError(f"order {order_id} is too large for the link: {len(body)} bytes")
        known = self._known(peer)
        known.orders.add(order_id, body)
        if known.connection is not None:
            self._send_orders(known)

    def forget_orders(self, peer: str, prefix: str = "") -> None:
        """Stops sending orders whose ids begin with `prefix`."""
        if peer in self._peers:
            self._peers[peer].orders.forget(prefix)

    def say(self, peer: str, body: bytes) -> bool:
        """Sends a message if the peer is connected; does not store it. Returns whether it was sent."""
        known = self._peers.get(peer)
        connection = known.connection if known else None
        if connection is None or len(body) > BODY_BYTES_MAX:
            return False
        if connection.channel.wire.waiting_bytes > self._limits.out_bytes:
            return False
        return self._send(connection, SAY, body)

    def offset_s(self, peer: str) -> float | None:
        """Returns the peer's clock minus ours in seconds; None if unknown."""
        known = self._peers.get(peer)
        return known.beats.offset_s if known else None

    def silent_s(self, peer: str) -> float:
        """Returns the seconds since the peer's last message; infinite if there was none."""
        known = self._peers.get(peer)
        return self._clock() - known.beats.heard_s if known and known.has_joined else math.inf

    def drop(self, peer: str, why: str) -> None:
        """Closes a peer's connection, with the reason sent to it. The peer may connect again."""
        known = self._peers.get(peer)
        if known is not None and known.connection is not None:
            self._send(known.connection, REFUSE, why.encode())
            self._leave(known.connection, why)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._send_acks(math.inf)
        for connection in self._connections.values():
            if connection.peer is not None:
                self._send(connection, GOODBYE, b"the controller has ended, or is being restarted")
            connection.channel.wire.close()
        for listener in self._listeners.values():
            listener.close()
        self._epoll.close()
        os.close(self._kick)

    # A turn -----------------------------------------------------------------------------------------------

    def _one_turn(self, now_s: float) -> None:
        if self._is_kicked:
            self._is_kicked = False
            os.eventfd_read(self._kick)
        self._send_acks(now_s)
        joined, self._joined = self._joined, []
        for peer in joined:
            peer.orders_wait = False
            self._send_orders(peer)
        is_all_read = self._read_all(now_s)
        if now_s - self._times_s >= TIMES_LOOKED_AT_S:
            self._times_s = now_s
            self._listen(True)
            self._send_beats(now_s)
            if is_all_read:  # else this process is slow, and not the silent peers
                self._judge_strangers(now_s)
                self._judge_silence(now_s)

    def _read_all(self, now_s: float) -> bool:
        """Reads what has arrived, up to a limit of bytes. Returns whether that was all."""
        left_bytes = self._limits.turn_bytes
        is_last = False
        while left_bytes > 0 and not is_last:
            events = self._epoll.poll(0, EVENTS_A_POLL)
            is_last = len(events) < EVENTS_A_POLL
            for descriptor, _ in events:
                if descriptor in self._listeners:
                    self._accept(self._listeners[descriptor], now_s)
                    left_bytes -= EVENT_BYTES
                elif descriptor in self._connections:
                    self._unfinished.setdefault(descriptor, self._connections[descriptor])
            while self._unfinished and left_bytes > 0:
                connection = self._unfinished.pop(next(iter(self._unfinished)))
                left_bytes -= EVENT_BYTES + self._serve(connection, now_s)
        if self._unfinished:
            self._wake()
        return left_bytes > 0

    def _serve(self, connection: Connection, now_s: float) -> int:
        """Reads and sends what one connection allows now. Returns the number of bytes received."""
        count = 0
        channel = connection.channel
        try:
            for frame in channel.read(self._limits.read_bytes):
                count += len(frame.body)
                self._took(connection, frame, now_s)
                if not connection.is_open:
                    return count
                if count > self._limits.serve_bytes:
                    break  # expanded, it may be far more than was read
            channel.flush()
        except ChannelEnded as ended:
            if ended.refused:
                self._refuse(connection, str(ended))
            else:
                self._end(connection, str(ended))
            return count
        except BadFrame as error:
            self._refuse(connection, str(error))
            return count
        if channel.has_more:
            self._unfinished[channel.wire.fileno] = connection
        if connection.peer is not None:
            self._send_orders(connection.peer)
        self._watch(connection)
        return count

    def _took(self, connection: Connection, frame: Frame, now_s: float) -> None:
        peer = connection.peer
        kind, body = frame
        if peer is None:
            if kind != JOIN:
                raise BadFrame(f"the first frame of the peer was of kind {kind} instead of a join")
            self._join(connection, messages.as_join(body), now_s)
            return
        peer.beats.heard(now_s)
        peer.silence_reported = False
        if kind == ENTRY:
            self._took_entry(connection, peer, body)
        elif kind == BEAT:
            peer.beats.took(messages.as_beat(body)[0], now_s)
        elif kind == DONE:
            peer.orders.done(body.decode("utf-8", "replace"))
        elif kind == SAY:
            self._arrived.append(Said(peer.name, body))
        elif kind == GOODBYE:
            peer.said_goodbye = True
            self._end(connection, "it said goodbye")
        elif kind == REFUSE:
            self._end(connection, f"it says: {messages.as_text(body)}")

    def _took_entry(self, connection: Connection, peer: Peer, body: bytes) -> None:
        seq, may_drop, body = messages.as_entry(body)
        stream = self._streams[peer.stream]
        if not may_drop:
            self._ack_soon(connection)
        connection.unacknowledged_bytes += len(body)
        if connection.unacknowledged_bytes > self._limits.ack_bytes:
            self._ack_soon(connection)
        if seq <= stream.received:
            return  # received before
        stream.received = seq
        if not may_drop:
            stream.kept = seq
        self._arrived.append(Entry(peer.name, peer.stream, seq, body, may_drop))

    # Connections ------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket, now_s: float) -> None:
        for _ in range(ACCEPTED_A_TURN):
            if not self._has_room_for_a_stranger(now_s):
                self._listen(False)
                return
            try:
                sock, place = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    self._note_refusal("", f"no more connections can be accepted: {error.strerror}", now_s)
                    self._listen(False)  # until times are looked at
                    return
                continue  # the peer has gone again
            self._begin(sock, f"{place[0]}:{place[1]}", now_s)

    def _has_room_for_a_stranger(self, now_s: float) -> bool:
        """Returns whether another unauthenticated connection fits; may close the oldest one for it."""
        if len(self._strangers) < self._limits.strangers:
            return True
        oldest = next(iter(self._strangers.values()))
        if now_s - oldest.channel.since_s < self._limits.patience_s:
            return False
        self._refuse(oldest, "too many connections are not yet authenticated: the oldest one is closed")
        return True

    def _begin(self, sock: socket.socket, address: str, now_s: float) -> None:
        wire = accepted(sock, self._wires)
        if wire is None:
            return
        side = ControllerSide(self._secret, secrets.token_bytes(NONCE_BYTES), PROTOCOL)
        connection = Connection(Channel(wire, side, address, now_s), select.EPOLLIN)
        try:
            self._epoll.register(wire.fileno, select.EPOLLIN)
        except OSError as error:  # the kernel's limits
            wire.close()
            self._note_refusal(address, f"the socket cannot be polled: {error.strerror}", now_s)
            return
        self._connections[wire.fileno] = self._strangers[wire.fileno] = connection

    def _join(self, connection: Connection, join: messages.Join, now_s: float) -> None:
        channel = connection.channel
        peer = self._known(join.name)
        why_not = self._why_not(peer, join, channel.address, now_s)
        if why_not:
            self._refuse(connection, why_not)
            return
        if peer.connection is not None:
            self._replace(peer.connection)
        del self._strangers[channel.wire.fileno]
        connection.peer, peer.connection = peer, connection
        peer.role, peer.stream, peer.instance = join.role, join.stream, join.instance
        peer.beats = Beats(now_s, peer.beats.offset_s)
        peer.has_joined, peer.said_goodbye, peer.silence_reported = True, False, False
        stream = self._streams.setdefault(join.stream, Stream())
        peer.orders.again()
        host = channel.address.rpartition(":")[0]
        self._arrived.append(Joined(peer.name, join.role, join.hello, host, join.stream))
        self._send(connection, WELCOME, messages.pack(messages.Welcome(stream.received, stream.recorded)))
        peer.orders_wait = True  # what the controller says on Joined goes first
        self._joined.append(peer)
        self._wake()

    def _why_not(self, peer: Peer, join: messages.Join, address: str, now_s: float) -> str:
        """Returns why the peer cannot join; empty if it can."""
        if peer.connection is None:
            joined = len(self._connections) - len(self._strangers)
            return "" if joined < self._limits.peers else f"{joined} peers are connected, the maximum"
        is_same = join.stream == peer.stream or join.instance == peer.instance
        if is_same or now_s - peer.beats.heard_s > self._limits.silent_s:
            return ""
        there, here = (one.rpartition(":")[0] for one in (peer.connection.channel.address, address))
        return used_twice(peer.name, there, here)

    def _replace(self, connection: Connection) -> None:
        """Closes a connection because the same peer made a newer one; the peer has not left."""
        self._send(connection, GOODBYE, b"a newer connection of the same name has taken over")
        connection.peer = None
        self._forget(connection)

    def _refuse(self, connection: Connection, why: str) -> None:
        if connection.channel.is_proven:
            self._send(connection, REFUSE, why.encode())
        self._end(connection, why)

    def _end(self, connection: Connection, why: str) -> None:
        if not connection.is_open:
            return
        if connection.peer is not None:
            self._leave(connection, why)
            return
        self._forget(connection)
        self._note_refusal(connection.channel.address, why, self._clock())

    def _leave(self, connection: Connection, why: str) -> None:
        peer = connection.peer
        assert peer is not None
        self._forget(connection)
        peer.connection = None
        self._arrived.append(Left(peer.name, why, peer.said_goodbye))
        if peer.role != AGENT:
            self._streams.pop(peer.stream, None)
            del self._peers[peer.name]

    def _forget(self, connection: Connection) -> None:
        descriptor = connection.channel.wire.fileno
        connection.is_open = False
        with suppress(OSError):
            self._epoll.unregister(descriptor)
        connection.channel.wire.close()
        for held in (self._connections, self._strangers, self._unfinished):
            held.pop(descriptor, None)

    def _note_refusal(self, address: str, why: str, now_s: float) -> None:
        if refused := self._refusals.noted(address, why, now_s):
            self._arrived.append(refused)

    # Time -------------------------------------------------------------------------------------------------

    def _send_beats(self, now_s: float) -> None:
        for connection in list(self._connections.values()):
            peer = connection.peer
            if peer is not None and now_s - peer.beats.sent_s >= self._limits.beat_s:
                connection.unacknowledged_bytes = 0
                connection.ack_due = False  # a beat carries one
                self._send(connection, BEAT, messages.beat(peer.beats.next(now_s)) + self._ack(connection))

    def _judge_strangers(self, now_s: float) -> None:
        limit_s = self._limits.handshake_s
        for stranger in list(self._strangers.values()):
            if now_s - stranger.channel.since_s <= limit_s:
                break  # the others are younger
            self._refuse(stranger, f"the peer did not finish the handshake in {limit_s:g} s")

    def _judge_silence(self, now_s: float) -> None:
        limits = self._limits
        for peer in list(self._peers.values()):
            silent_s = now_s - peer.beats.heard_s
            if silent_s <= limits.silent_s or not peer.has_joined or peer.said_goodbye:
                continue
            if not peer.silence_reported and peer.role == AGENT:
                peer.silence_reported = True
                self._arrived.append(Silent(peer.name, silent_s))
            if peer.connection is not None and silent_s > limits.lost_s:
                self._end(peer.connection, f"no message from the peer for {limits.lost_s:g} s")

    def _listen(self, accepts: bool) -> None:
        if accepts != self._accepts:
            self._accepts = accepts
            for descriptor in self._listeners:
                self._epoll.modify(descriptor, select.EPOLLIN if accepts else 0)

    # Sending ----------------------------------------------------------------------------------------------

    def _known(self, name: str) -> Peer:
        peer = self._peers.get(name)
        if peer is None:
            peer = self._peers[name] = Peer(name, AGENT, Beats(self._clock()), OrderBook())
        return peer

    def _ack_soon(self, connection: Connection) -> None:
        """Schedules an acknowledgement for the next turn; with many connections, at a limited rate."""
        if connection.ack_due:
            return
        many, limits = len(self._connections), self._limits
        connection.ack_due, connection.ack_due_s = True, 0.0
        if many > limits.prompt_acks:
            connection.ack_due_s = self._clock() + many / limits.acks_a_second
        else:
            self._wake()
        self._acks.append(connection)

    def _send_acks(self, now_s: float) -> None:
        """Sends the due acknowledgements: numbers of the last received and the last recorded entry."""
        while self._acks and self._acks[0].ack_due_s <= now_s:
            connection = self._acks.popleft()
            is_due = connection.ack_due and connection.ack_due_s <= now_s  # no beat has carried it since
            if is_due and connection.is_open and connection.peer is not None:
                connection.ack_due = False
                connection.unacknowledged_bytes = 0
                self._send(connection, ACK, self._ack(connection))

    def _ack(self, connection: Connection) -> bytes:
        assert connection.peer is not None
        stream = self._streams[connection.peer.stream]
        return messages.ack(stream.received, stream.recorded)

    def _send_orders(self, peer: Peer) -> None:
        connection = peer.connection
        if connection is None or peer.orders_wait:
            return
        if connection.channel.wire.waiting_bytes > self._limits.out_bytes:
            return  # the peer has not yet read what was sent; the rest follows later
        for order_id, body in peer.orders.to_send():
            sent = self._send(connection, ORDER, messages.pack(messages.OrderBody(order_id, body)))
            if not sent or connection.channel.wire.waiting_bytes > self._limits.out_bytes:
                return

    def _send(self, connection: Connection, kind: int, body: bytes) -> bool:
        """Sends a frame. Returns False if that failed; the next turn then reads the peer's last data."""
        try:
            connection.channel.send(kind, body)
        except ChannelEnded:
            self._unfinished[connection.channel.wire.fileno] = connection
            self._wake()
            return False
        self._watch(connection)
        return True

    def _wake(self) -> None:
        """Makes the descriptor readable until the next turn."""
        if not self._is_kicked:
            self._is_kicked = True
            os.eventfd_write(self._kick, 1)

    def _watch(self, connection: Connection) -> None:
        mask = connection.channel.wire.mask
        if mask != connection.mask and connection.is_open:
            connection.mask = mask
            self._epoll.modify(connection.channel.wire.fileno, mask)
