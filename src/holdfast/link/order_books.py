"""Tracks orders on both sides: sent again until done, delivered exactly once. No sockets."""

from collections.abc import Iterator

from msgspec import Struct

DONE_REMEMBERED = 4096


class _Order(Struct):
    body: bytes
    sent: bool = False


class OrderBook:
    """The controller's open orders for one peer, in order."""

    def __init__(self) -> None:
        self._open: dict[str, _Order] = {}
        self._done: dict[str, None] = {}

    def add(self, order_id: str, body: bytes) -> None:
        """Adds an order. The same id twice is one order, even after it was done."""
        if order_id not in self._open and order_id not in self._done:
            self._open[order_id] = _Order(body)

    def done(self, order_id: str) -> None:
        if self._open.pop(order_id, None) is not None:
            _remember(self._done, order_id)

    def forget(self, prefix: str) -> None:
        """Stops sending orders whose ids begin with `prefix`."""
        for order_id in [one for one in self._open if one.startswith(prefix)]:
            del self._open[order_id]

    def again(self) -> None:
        """A new connection: all open orders must be sent again."""
        for order in self._open.values():
            order.sent = False

    def to_send(self) -> Iterator[tuple[str, bytes]]:
        """The orders to send. Each counts as sent once it is taken from the iterator."""
        for order_id, order in self._open.items():
            if not order.sent:
                order.sent = True
                yield order_id, order.body


class OrdersTaken:
    """The orders that this agent process has received."""

    def __init__(self) -> None:
        self._open: dict[str, None] = {}
        self._done: dict[str, None] = {}

    def take(self, order_id: str) -> bool:
        """Returns True if the order is new and must be delivered."""
        if order_id in self._open or order_id in self._done:
            return False
        self._open[order_id] = None
        return True

    def done(self, order_id: str) -> None:
        self._open.pop(order_id, None)
        _remember(self._done, order_id)

    def is_done(self, order_id: str) -> bool:
        return order_id in self._done


def _remember(ids: dict[str, None], order_id: str) -> None:
    ids[order_id] = None
    if len(ids) > DONE_REMEMBERED:
        del ids[next(iter(ids))]
