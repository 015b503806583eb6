"""Defines the interface of senders, and the errors of a delivery."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from holdfast.core.notify.outbox import Send
from holdfast.model.documents.notices import Notice


class Rejected(Exception):
    """Error: the receiver rejects the message, and would reject it again: a wrong secret, an invalid form.

    One line: why, and what to do.
    """


class TryLater(Exception):
    """Error: the receiver cannot accept the message now.

    `after_s`: the pause that it requests, in seconds; None if unknown.
    """

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Sent(Struct, frozen=True, kw_only=True):
    """The result of a delivery.

    `reference`: by which the message can be updated later; empty if it cannot be.
    """

    reference: str = ""


class Sender(Protocol):
    """Interface of a sender, which delivers to one receiver.

    It may block for seconds and is called from one thread.

    `can_update`: whether a message can be changed in place. `bounds_itself`: whether the receiver groups
    messages when there are many. `again_s`: how often `again` is called, in seconds; None means never.
    """

    can_update: bool
    bounds_itself: bool
    again_s: float | None

    def begin(self, told: Sequence[Notice]) -> None:
        """Starts the sender with the notifications that earlier processes delivered and that are still
        open.
        """
        ...

    def send(self, send: Send) -> Sent:
        """Delivers a message. Raises Rejected and TryLater."""
        ...

    def again(self) -> None:
        """Repeats open alerts that the receiver would otherwise forget. Raises Rejected and TryLater."""
        ...


class Plain:
    """Base class of senders that store nothing, repeat nothing and cannot update messages."""

    can_update = False
    bounds_itself = False
    again_s: float | None = None

    def begin(self, told: Sequence[Notice]) -> None:
        """Does nothing."""

    def again(self) -> None:
        """Does nothing."""
