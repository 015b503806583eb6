"""Implements an agent's or client's side of the link to the controller: connects, reconnects, and never blocks."""

import errno
import os
import random
import secrets
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast.link import messages
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
from holdfast.link.handshake import NONCE_BYTES, AgentSide
from holdfast.link.heard import Connected, Heard, Lost, Noted, Ordered, Refused, Said
from holdfast.link.order_books import OrdersTaken
from holdfast.link.resolve import Address, Lookup, SocketAddress
from holdfast.link.spool import Spool
from holdfast.link.tls import ClientTls, client_wires
from holdfast.model.nodes.workers import PROTOCOL

BEAT_S = 1.0
LOST_AFTER_S = 5.0  # of silence of the controller
CONNECT_S = 5.0  # until there is a connection
LOOK_AGAIN_S = 1.0  # interval of checks for a new controller address while it does not answer
QUIET_S = 2.0  # silence of the controller, whose beats are due each second
HANDSHAKE_S = 15.0  # longer than the controller's limit: an earlier retry would only lengthen its queue
PUT_AWAY_AFTER_S = 3.0  # without a connection, after which samples are written to disk too
READ_BYTES_MAX = 1 << 20  # in one turn
WINDOW_BYTES = 4 << 20  # sent, and not yet received by the controller
OUT_BYTES_MAX = 1 << 20  # queued for the socket
SAY_BYTES_MAX = 4 << 20  # queued for the socket, for messages that are not kept until acknowledged
CHUNK_BYTES = 1 << 18
CLOSE_POLL_S = 0.02
FIRST_PAUSE_S, PAUSE_S_MAX = 0.2, 2.0  # between two connection attempts; doubled each time
REFUSED_PAUSE_S = 3.0
CROWDED_PAUSE_S_MAX = 8.0  # if the controller accepts but does not answer, because it has many agents


class AgentLink:
    """The connection of an agent or client to its job's controller; it reconnects by itself.

    For a single thread. Raises nothing, and only `close` blocks. Call `turn` when `fileno` is readable, and
    at least five times a second, for heartbeats and time limits.

    `name`: unique; a client without one gets one. `where`: returns the controller's addresses; called before
    every connection and each second while there is none; new addresses are tried first. `hello`: returns the
    greeting; called at each connection. `spool`: stores the entries; None keeps them in memory. `clock`:
    seconds since the epoch that never jump. `dice`: returns a random number in 0..1, which spreads the
    reconnections of many agents.
    """

    def __init__(
        self,
        *,
        name: str,
        role: str,
        secret: bytes,
        where: Callable[[], Sequence[Address]],
        hello: Callable[[], bytes],
        spool: Spool | None,
        clock: Callable[[], float],
        tls: ClientTls | None = None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.name = name or f"client-{secrets.token_hex(6)}"
        self.connected = False
        self.local_address = ""
        self.trouble = "no connection was tried yet"  # why there is no connection; empty if there is one
        self._role, self._secret = role, secret
        self._where, self._hello, self._clock, self._dice = where, hello, clock, dice
        self._wires = client_wires(tls)
        self._spool = spool or Spool(None, clock)
        self._instance = secrets.token_hex(8)
        self._taken = OrdersTaken()
        self._heard: list[Heard] = []
        self._last_refusal = ""
        self._epoll = select.epoll()
        self._kick = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._kick, select.EPOLLIN)
        self._is_kicked = False
        self._wake()  # the first turn has something to do
        self._lookup: Lookup | None = None
        self._targets: deque[SocketAddress] = deque()
        self._connecting: socket.socket | None = None
        self._connecting_place: tuple[object, ...] = ()
        self._last_place: tuple[object, ...] = ()  # where the controller was last: tried first
        self._known: frozenset[Address] = frozenset()  # its addresses at the last lookup
        self._looked_s = clock()
        self._since_s = clock()  # of the present attempt to connect
        self._channel: Channel | None = None
        self._mask = 0
        self._joined = False
        self._beats = Beats(clock())
        self._failures = 0
        self._next_try_s = clock()
        self._lost_s = clock()
        self._put_away_s = clock()
        self._sent_seq = 0
        self._in_flight: deque[tuple[int, int]] = deque()
        self._in_flight_bytes = 0
        self._broken = ""  # an error while sending, for the next turn
        self._is_closed = False

    def fileno(self) -> int:
        return self._epoll.fileno()

    def send(self, body: bytes, *, drop: bool = False) -> None:
        """Sends an entry, and keeps it until the controller has recorded it.

        `drop`: True if the oldest such entries may be dropped when space runs out; these are sent with the
        next turn, all others at once.
        """
        if self._is_closed:
            return
        self._spool.append(body, drop=drop)
        if self.connected and not drop:
            self._guarded(self._push)

    def say(self, body: bytes) -> bool:
        """Sends a message once, if there is room for it on the connection now. The message is not stored or repeated.

        Returns whether it was sent.
        """
        channel = self._channel
        if channel is None or not self.connected or self._broken or len(body) > BODY_BYTES_MAX:
            return False
        if channel.wire.waiting_bytes > SAY_BYTES_MAX:
            return False
        return self._guarded(lambda: channel.send(SAY, body))

    def done(self, order_id: str) -> None:
        """Reports to the controller that an order is done, so that the controller stops sending it. Without a connection,
        the report is sent at the next one.
        """
        self._taken.done(order_id)
        if self.connected:
            self._guarded(lambda: self._say_done(order_id))

    def turn(self) -> list[Heard]:
        """Does all work that is due, without blocking, and returns what arrived since the last call, in order."""
        if not self._is_closed:
            self._one_turn()
        heard, self._heard = self._heard, []
        return heard

    def close(self, wait_s: float) -> None:
        """Sends the remaining entries for at most `wait_s` seconds, announces its end to the controller, and closes the
        connection and the spool.
        """
        if self._is_closed:
            return
        until_s = self._clock() + wait_s
        idle_s = self._turned(until_s, wait_s, self._is_all_sent)
        channel = self._channel
        if channel is not None and self.connected and self._guarded(lambda: channel.send(GOODBYE, b"")):
            self._turned(until_s, idle_s, lambda: self._channel is None)  # it closes once it has read all
        self._is_closed = True
        self._let_go()
        self._spool.close()
        self._epoll.close()
        os.close(self._kick)

    def _turned(self, until_s: float, idle_s: float, done: Callable[[], bool]) -> float:
        """Runs turns until `done` returns True, the time is `until_s`, or it has waited `idle_s` in total.

        Returns what is left of `idle_s`. Counting the waits bounds the loop even if the given clock stands
        still.
        """
        while self._clock() < until_s and idle_s > 0 and not done():
            self.turn()
            if not self._epoll.poll(CLOSE_POLL_S, 1):
                idle_s -= CLOSE_POLL_S
        return idle_s

    # A turn -----------------------------------------------------------------------------------------------

    def _one_turn(self) -> None:
        if self._is_kicked:
            self._is_kicked = False
            os.eventfd_read(self._kick)
        now_s = self._clock()
        try:
            if self._broken:
                raise ChannelEnded(self._broken)
            if self._channel is not None:
                self._serve(self._channel, now_s)
            elif self._connecting is not None:
                self._go_on(self._connecting, now_s)
            elif self._targets or self._lookup is not None or now_s >= self._next_try_s:
                self._begin(now_s)
            self._look_again(now_s)
        except ChannelEnded as ended:
            self._end(str(ended), now_s, refused=ended.refused)
        except BadFrame as error:
            self._end(str(error), now_s, refused=True)
        except OSError as error:  # no descriptors, or a socket that died between two calls
            self._end(error.strerror or str(error), now_s, refused=False)
        self._watch()
        if not self.connected and now_s - self._lost_s > PUT_AWAY_AFTER_S and now_s > self._put_away_s:
            self._spool.put_away()
            self._put_away_s = now_s + BEAT_S
        self._heard += [Noted(note) for note in self._spool.notes()]

    def _look_again(self, now_s: float) -> None:
        """Checks for a new address of a controller that does not answer.

        raises: ChannelEnded, if it has one
        """
        is_heard = self.connected and now_s - self._beats.heard_s < QUIET_S
        if is_heard or now_s - self._looked_s < LOOK_AGAIN_S:
            return
        self._looked_s = now_s
        if not self._known.issuperset(self._where()):
            self._targets.clear()
            self._failures = 0
            raise ChannelEnded("the controller has a new address")

    def _places(self) -> list[Address]:
        """Returns the controller's addresses to try in order: the last successful one first, unless it is
        outdated.
        """
        places = list(self._where())
        if not self._known.issuperset(places):
            self._last_place = ()
        self._known = frozenset(places)
        return places

    def _begin(self, now_s: float) -> None:
        """Connects to the next address; resolves the addresses again when all were tried."""
        if not self._targets:
            if self._lookup is None:
                self._since_s = self._looked_s = now_s
                self._lookup = Lookup(self._places())
            if not self._lookup.is_done:
                if now_s - self._since_s > CONNECT_S:
                    raise ChannelEnded("the name of the controller's host could not be looked up in time")
                return
            found, why = self._lookup.result()
            self._lookup = None
            if not found:
                raise ChannelEnded(f"the controller's address is unknown{why and ': ' + why}")
            self._targets.extend(sorted(found, key=lambda target: target[1] != self._last_place))
        family, self._connecting_place = self._targets.popleft()
        self._since_s = now_s
        self._connecting = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._connecting.setblocking(False)
        self._go_on(self._connecting, now_s)

    def _go_on(self, sock: socket.socket, now_s: float) -> None:
        """Continues a non-blocking connect. raises: ChannelEnded, if that fails"""
        code = sock.connect_ex(self._connecting_place)
        where = _shown(self._connecting_place)
        if code in (errno.EINPROGRESS, errno.EALREADY):
            if now_s - self._since_s > CONNECT_S:
                raise ChannelEnded(f"{where} did not accept the connection within {CONNECT_S:g} s")
            return
        if code not in (0, errno.EISCONN):
            raise ChannelEnded(f"{where}: {os.strerror(code)}")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unwatch(sock.fileno())
        wire = self._wires(sock)
        self._connecting = None
        side = AgentSide(self._secret, secrets.token_bytes(NONCE_BYTES), PROTOCOL)
        self._channel = Channel(wire, side, where, now_s)
        self._joined = False
        self._channel.begin()

    def _serve(self, channel: Channel, now_s: float) -> None:
        for frame in channel.read(READ_BYTES_MAX):
            self._beats.heard(now_s)
            self._took(frame, now_s)
        if channel.is_proven and not self._joined:
            self._joined = True
            self._beats = Beats(now_s)
            stream = f"{self.name}/{self._spool.stream_id}"
            join = messages.Join(self.name, self._role, stream, self._instance, self._hello())
            channel.put(JOIN, messages.pack(join))
        if not self.connected:
            channel.flush()
            if now_s - channel.since_s > HANDSHAKE_S:
                raise ChannelEnded(f"{channel.address} did not finish the handshake in {HANDSHAKE_S:g} s")
            return
        if now_s - self._beats.heard_s > LOST_AFTER_S:
            raise ChannelEnded(f"no message from {channel.address} for {LOST_AFTER_S:g} s")
        if now_s - self._beats.sent_s >= BEAT_S:
            channel.put(BEAT, messages.beat(self._beats.next(now_s)))
        self._push()

    def _took(self, frame: Frame, now_s: float) -> None:
        kind, body = frame
        if kind == BEAT:
            beat, rest = messages.as_beat(body)
            self._beats.took(beat, now_s)
            self._acknowledged(*messages.as_ack(rest))
        elif kind == ACK:
            self._acknowledged(*messages.as_ack(body))
        elif kind == ORDER:
            self._ordered(messages.as_order(body))
        elif kind == SAY:
            self._heard.append(Said(body))
        elif kind == WELCOME:
            self._welcomed(messages.as_welcome(body))
        elif kind == GOODBYE:
            raise ChannelEnded(messages.as_text(body) or "the controller has ended the connection")
        elif kind == REFUSE:
            raise ChannelEnded(messages.as_text(body), refused=True)

    def _welcomed(self, welcome: messages.Welcome) -> None:
        channel = self._channel
        assert channel is not None
        self._spool.count_from(welcome.received)
        self._spool.received(welcome.received)
        self._spool.recorded(welcome.recorded)
        self._sent_seq = welcome.received
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self._failures = 0
        self._last_refusal = self.trouble = ""
        self._targets.clear()
        self.connected = True
        self._last_place = self._connecting_place
        self.local_address = channel.wire.local_address
        self._heard.append(Connected(channel.address))

    def _acknowledged(self, received: int, recorded: int) -> None:
        self._spool.received(received)
        self._spool.recorded(recorded)
        while self._in_flight and self._in_flight[0][0] <= received:
            self._in_flight_bytes -= self._in_flight.popleft()[1]

    def _ordered(self, order: messages.OrderBody) -> None:
        if self._taken.is_done(order.id):
            self._say_done(order.id)
        elif self._taken.take(order.id):
            self._heard.append(Ordered(order.id, order.body))

    # Sending ----------------------------------------------------------------------------------------------

    def _push(self) -> None:
        """Sends as many entries of the spool as the window and the socket allow. raises: ChannelEnded"""
        channel = self._channel
        assert channel is not None
        while self._in_flight_bytes < WINDOW_BYTES and channel.wire.waiting_bytes < OUT_BYTES_MAX:
            entries = self._spool.read(self._sent_seq, CHUNK_BYTES)
            for entry in entries:
                self._sent_seq = entry.seq
                self._in_flight.append((entry.seq, len(entry.body)))
                self._in_flight_bytes += len(entry.body)
                channel.put(ENTRY, messages.entry(entry.seq, entry.body, entry.drop))
            channel.flush()
            if not entries:
                break
        channel.flush()

    def _say_done(self, order_id: str) -> None:
        assert self._channel is not None
        self._channel.send(DONE, order_id.encode())

    def _guarded(self, send: Callable[[], None]) -> bool:
        """Sends outside of a turn, and returns whether it was sent; the next turn reports a lost
        connection.
        """
        if self._broken:
            return False
        try:
            send()
        except ChannelEnded as ended:
            self._broken = str(ended)
            self._wake()
            return False
        self._watch()
        return True

    def _is_all_sent(self) -> bool:
        if self._channel is None or not self.connected:
            return not self._spool.read(self._sent_seq, 1)
        return not self._channel.wire.waiting_bytes and not self._spool.read(self._sent_seq, 1)

    # Ends -------------------------------------------------------------------------------------------------

    def _end(self, why: str, now_s: float, *, refused: bool) -> None:
        was_connected, was_answered = self.connected, self._channel is not None
        self._let_go()
        self.trouble = why
        if was_connected:
            self._lost_s = now_s
            self._heard.append(Lost(why))
        if refused and why != self._last_refusal:
            self._last_refusal = why
            self._heard.append(Refused(why))
        if self._targets and not was_connected:
            self._wake()  # the next address at once
            return
        self._targets.clear()
        most_s = CROWDED_PAUSE_S_MAX if was_answered else PAUSE_S_MAX
        pause_s = min(most_s, FIRST_PAUSE_S * 2 ** min(self._failures, 10))
        self._failures += 1
        if refused:
            pause_s = max(pause_s, REFUSED_PAUSE_S)
        self._next_try_s = now_s + pause_s * (0.5 + self._dice())

    def _let_go(self) -> None:
        self._lookup = None
        self._broken = ""
        self.connected = False
        if self._channel is not None:
            self._unwatch(self._channel.wire.fileno)
            self._channel.wire.close()
            self._channel = None
        if self._connecting is not None:
            self._unwatch(self._connecting.fileno())
            self._connecting.close()
            self._connecting = None

    def _wake(self) -> None:
        """Makes the descriptor readable until the next turn."""
        if not self._is_kicked:
            self._is_kicked = True
            os.eventfd_write(self._kick, 1)

    def _watch(self) -> None:
        """Registers with epoll the events that the next turn can handle."""
        if self._channel is not None:
            descriptor, mask = self._channel.wire.fileno, self._channel.wire.mask
            if self._channel.has_more:
                self._wake()
        elif self._connecting is not None:
            descriptor, mask = self._connecting.fileno(), select.EPOLLOUT
        else:
            return
        with suppress(OSError):  # out of kernel memory: turns happen anyway
            if not self._mask:
                self._epoll.register(descriptor, mask)
            elif self._mask != mask:
                self._epoll.modify(descriptor, mask)
            self._mask = mask

    def _unwatch(self, descriptor: int) -> None:
        if self._mask:
            self._mask = 0
            with suppress(OSError):
                self._epoll.unregister(descriptor)


def _shown(place: tuple[object, ...]) -> str:
    host = str(place[0])
    return f"[{host}]:{place[1]}" if ":" in host else f"{host}:{place[1]}"
