"""Defines what a sender is, and what can go wrong with a delivery."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from holdfast.core.notify.outbox import Send
from holdfast.model.documents.notices import Notice


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
    """Delivers to one receiver. May take seconds; all of it is called from one thread, which each channel has for itself.

    `can_update`: whether a message can be changed in place. `bounds_itself`: whether it groups what comes in a storm.
    `again_s`: how often `again` is called; None: never.
    """

    can_update: bool
    bounds_itself: bool
    again_s: float | None

    def begin(self, told: Sequence[Notice]) -> None:
        """Before anything else: what the receiver has of earlier processes, and is not over."""
        ...

    def send(self, send: Send) -> Sent:
        """raises: Rejected, TryLater"""
        ...

    def again(self) -> None:
        """Repeats what the receiver would else forget. raises: Rejected, TryLater"""
        ...


class Plain:
    """What most senders have in common: nothing is kept, nothing is repeated, nothing is updated."""

    can_update = False
    bounds_itself = False
    again_s: float | None = None

    def begin(self, told: Sequence[Notice]) -> None:
        """Nothing is kept."""

    def again(self) -> None:
        """Nothing is repeated."""
