"""A clock that tests turn by hand, and turns of both ends of a link over real sockets of the loopback."""

import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.link.agent_link import AgentLink
from holdfast.link.hub import Hub

SECRET = bytes(range(32))
TURNS_MAX = 4000


class HandClock:
    def __init__(self, now_s: float = 1_700_000_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class Ends:
    """Some hubs and links, turned in turn; `heard` and `arrived` keep all that they told."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.hubs: list[Hub] = []
        self.links: list[AgentLink] = []
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

    def turn(self, step_s: float = 0.0) -> None:
        self.clock.now_s += step_s
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
        """Turns until it is so. The loopback needs a moment of its own, so that a little is waited for descriptors."""
        descriptors = [end.fileno() for end in (*self.hubs, *self.links)]
        for _ in range(turns):
            if done():
                return
            select.select(descriptors, [], [], 0.0 if step_s else 0.005)
            self.turn(step_s)
        raise AssertionError(f"never came: {self.arrived[-5:]} {[told[-5:] for told in self.heard.values()]}")

    def pass_s(self, seconds: float, step_s: float = 0.1) -> None:
        for _ in range(round(seconds / step_s)):
            self.turn(step_s)

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
