"""Defines the interface of senders, and the errors of a delivery."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from holdfast.core.notify.outbox import Send
from holdfast.model.documents.notices import Notice


class Rejected(Exception):
    """Raised when the receiver rejects the message and would reject it again: a wrong secret, an invalid
    form.

    The message is one line: why, and what to do.
    """


class TryLater(Exception):
    """Raised when the receiver cannot accept the message now.

    `after_s`: how long the receiver asks to wait, in seconds; None if unknown.
    """

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Sent(Struct, frozen=True, kw_only=True):
    """The result of a delivery.

    `reference`: id with which the delivered message can be updated later; empty if it cannot be updated.
    """

    reference: str = ""


class Sender(Protocol):
    """Interface of a sender, which delivers notifications to the receiver of one channel.

    It may block for seconds and is called from one thread. `can_update`: whether a message can be changed in
    place. `bounds_itself`: whether the receiver groups messages when there are many. `again_s`: interval in
    seconds at which `again` is called; None means never.
    """

    can_update: bool
    bounds_itself: bool
    again_s: float | None

    def begin(self, delivered: Sequence[Notice]) -> None:
        """Starts the sender with the notifications that earlier processes delivered and that are still
        open.
        """
        ...

    def send(self, send: Send) -> Sent:
        """Delivers a message. Raises Rejected and TryLater."""
        ...

    def again(self) -> None:
        """Sends open alerts again that the receiver would otherwise forget. Raises Rejected and TryLater."""
        ...


class Plain:
    """Base class of senders without state: they have no alerts to send again, and cannot update messages."""

    can_update = False
    bounds_itself = False
    again_s: float | None = None

    def begin(self, delivered: Sequence[Notice]) -> None:
        """Does nothing, because this sender has no state."""

    def again(self) -> None:
        """Does nothing, because this sender has no alerts to send again."""
