"""Tracks orders on both sides of a link: resent until done, delivered exactly once. Pure."""

from collections.abc import Iterator

from msgspec import Struct

DONE_REMEMBERED = 4096


class _Order(Struct):
    body: bytes
    sent: bool = False


class OrderBook:
    """The orders that a controller has sent or will send to one peer and that are not done, in order."""

    def __init__(self) -> None:
        self._open: dict[str, _Order] = {}
        self._done: dict[str, None] = {}

    def add(self, order_id: str, body: bytes) -> None:
        """Adds an order. An id that was added before is ignored, even after the order was done."""
        if order_id not in self._open and order_id not in self._done:
            self._open[order_id] = _Order(body)

    def done(self, order_id: str) -> None:
        if self._open.pop(order_id, None) is not None:
            _remember(self._done, order_id)

    def forget(self, prefix: str) -> None:
        """Removes orders whose ids begin with `prefix`."""
        for order_id in [one for one in self._open if one.startswith(prefix)]:
            del self._open[order_id]

    def again(self) -> None:
        """Marks all unfinished orders as not sent, because there is a new connection."""
        for order in self._open.values():
            order.sent = False

    def to_send(self) -> Iterator[tuple[str, bytes]]:
        """Yields the id and body of each order not yet sent, and marks it as sent."""
        for order_id, order in self._open.items():
            if not order.sent:
                order.sent = True
                yield order_id, order.body


class OrdersTaken:
    """The ids of the orders that this agent process has received."""

    def __init__(self) -> None:
        self._open: dict[str, None] = {}
        self._done: dict[str, None] = {}

    def take(self, order_id: str) -> bool:
        """Records an order. Returns True if it is new and must be delivered."""
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
