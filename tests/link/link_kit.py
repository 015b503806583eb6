"""A clock that tests turn by hand, and turns of both ends of a link over real sockets of the loopback."""

import os
import select
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.link.agent_link import AgentLink
from holdfast.link.hub import Hub
from holdfast.link.spool import Spool

SECRET = bytes(range(32))
TURNS_MAX = 4000


class HandClock:
    def __init__(self, now_s: float = 1_700_000_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class Relay:
    """Stands between both ends and passes bytes on; what goes up is kept in `up`, one bytearray a connection.

    `is_cut`: nothing passes, and nobody is told. `change`: what is done to what goes up.
    """

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        self.up: list[bytearray] = []
        self.is_cut = False
        self.change: Callable[[bytes], bytes] = bytes
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._pairs: list[tuple[socket.socket, socket.socket, bytearray]] = []
        self.address: tuple[str, int] = self._listener.getsockname()

    def pump(self) -> None:
        with suppress(BlockingIOError):
            near, _ = self._listener.accept()
            far = socket.create_connection(self._target())
            self.up.append(bytearray())
            self._pairs.append((near, far, self.up[-1]))
            for sock in (near, far):
                sock.setblocking(False)
        for pair in list(self._pairs):
            if not self.is_cut and not self._passed(*pair):
                self._pairs.remove(pair)
                pair[0].close()
                pair[1].close()

    def _passed(self, near: socket.socket, far: socket.socket, up: bytearray) -> bool:
        for source, sink in ((near, far), (far, near)):
            with suppress(BlockingIOError):
                try:
                    data = source.recv(1 << 16)
                    if not data:
                        return False
                    if source is near:
                        up += data
                        data = self.change(data)
                    sink.setblocking(True)
                    sink.sendall(data)
                    sink.setblocking(False)
                except ConnectionError:
                    return False
        return True

    def sockets(self) -> list[socket.socket]:
        """All that it would read from now."""
        return [] if self.is_cut else [self._listener, *(sock for pair in self._pairs for sock in pair[:2])]

    def close(self) -> None:
        for near, far, _ in self._pairs:
            near.close()
            far.close()
        self._listener.close()


class Ends:
    """Some hubs and links, turned in turn; `heard` and `arrived` keep all that they told."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.hubs: list[Hub] = []
        self.links: list[AgentLink] = []
        self.relays: list[Relay] = []
        self.heard: dict[AgentLink, list[Any]] = {}
        self.arrived: list[Any] = []
        self.records = True  # the controller writes down what it is given

    def hub(self, **more: Any) -> Hub:
        arguments: dict[str, Any] = {"secret": SECRET, "listen": [("127.0.0.1", 0)], "clock": self.clock}
        hub = Hub(**(arguments | more))
        self.hubs.append(hub)
        return hub

    def link(self, hub: Hub | None = None, name: str = "node1", **more: Any) -> AgentLink:
        arguments: dict[str, Any] = {
            "name": name,
            "role": "agent",
            "secret": SECRET,
            "where": (lambda: hub.addresses) if hub else (lambda: []),
            "hello": lambda: b"hello of " + name.encode(),
            "spool": None,
            "clock": self.clock,
            "dice": lambda: 0.5,
        }
        link = AgentLink(**(arguments | more))
        self.links.append(link)
        self.heard[link] = []
        return link

    def relay(self, hub: Hub) -> Relay:
        relay = Relay(lambda: hub.addresses[0])
        self.relays.append(relay)
        return relay

    def kill(self, link: AgentLink, spool: Spool) -> None:
        """As SIGKILL would: nothing is sent or written any more, the kernel closes what was open."""
        self.links.remove(link)
        link._let_go()
        link._is_closed = True
        link._epoll.close()
        os.close(link._kick)
        for log in (spool._kept, spool._loose):
            if log is not None:
                log.close()
        if spool._lock is not None:
            os.close(spool._lock)

    def kill_hub(self, hub: Hub) -> None:
        """Likewise."""
        self.hubs.remove(hub)
        hub._is_closed = True
        for connection in hub._connections.values():
            connection.channel.wire.close()
        for listener in hub._listeners.values():
            listener.close()
        hub._epoll.close()
        os.close(hub._kick)

    def turn(self, step_s: float = 0.0) -> None:
        self.clock.now_s += step_s
        for relay in self.relays:
            relay.pump()
        for link in self.links:
            self.heard[link] += link.turn()
        for hub in self.hubs:
            news = hub.turn()
            self.arrived += news
            if self.records:
                for one in news:
                    if hasattr(one, "seq"):
                        hub.recorded(one.stream, one.seq)

    def until(self, done: Callable[[], bool], step_s: float = 0.0, turns: int = TURNS_MAX) -> None:
        """Turns until it is so."""
        for _ in range(turns):
            if done():
                return
            self._give_time(0.001 if step_s else 0.005)
            self.turn(step_s)
        raise AssertionError(f"never came: {self.arrived[-5:]} {[told[-5:] for told in self.heard.values()]}")

    def pass_s(self, seconds: float, step_s: float = 0.1) -> None:
        for _ in range(round(seconds / step_s)):
            self._give_time(0.001)
            self.turn(step_s)

    def _give_time(self, wait_s: float) -> None:
        """The loopback needs a moment of its own, and a longer one where the kernel is busy with other networks."""
        ends = [*self.hubs, *self.links, *(sock for relay in self.relays for sock in relay.sockets())]
        select.select(ends, [], [], wait_s)

    def of(self, kind: type) -> list[Any]:
        return [one for one in self.arrived if isinstance(one, kind)]

    def told(self, link: AgentLink, kind: type) -> list[Any]:
        return [one for one in self.heard[link] if isinstance(one, kind)]

    def connect(self, *links: AgentLink) -> None:
        self.until(lambda: all(link.connected for link in links))

    def end(self, ends: Sequence[Hub | AgentLink]) -> None:
        for end in ends:
            if isinstance(end, Hub):
                end.close()
                self.hubs.remove(end)
            else:
                end.close(0.0)
                self.links.remove(end)


@contextmanager
def ends() -> Iterator[Ends]:
    made = Ends()
    try:
        yield made
    finally:
        made.end([*made.links, *made.hubs])
        for relay in made.relays:
            relay.close()
