"""Defines what a sender is, and what can go wrong with a delivery."""

from typing import Protocol

from msgspec import Struct

from holdfast.core.notify.outbox import Send


class Rejected(Exception):
    """The receiver refuses this, and will again: a wrong secret, a form it does not take. One line: why, what to do."""


class TryLater(Exception):
    """The receiver cannot take it now. `after_s`: when it asks to be tried again, in seconds; None: it does not say."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Sent(Struct, frozen=True, kw_only=True):
    """`reference`: by which the message is updated or followed up; empty: it cannot be."""

    reference: str = ""


class Sender(Protocol):
    """Delivers to one receiver. May take seconds; called from a thread of its own for each channel.

    `can_update`: whether a message can be changed, or a later one joined to it.
    """

    can_update: bool

    def send(self, send: Send) -> Sent:
        """raises: Rejected, TryLater"""
        ...

    def close(self) -> None: ...
