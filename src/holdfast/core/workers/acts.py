"""Defines the acts that the worker group requests. Values only."""

from msgspec import Struct

from holdfast.model.events import AnyEvent
from holdfast.model.nodes.workers import AnyCommand


class Send(Struct, frozen=True):
    """An order for an agent, kept until the agent reports it done. The same `order_id` twice is one order."""

    node: str
    order_id: str
    command: AnyCommand


class Say(Struct, frozen=True):
    """A message for an agent that is connected now; not kept."""

    node: str
    command: AnyCommand


class Forget(Struct, frozen=True):
    """Cancels orders for this node whose ids begin with `prefix`."""

    node: str
    prefix: str = ""


class Drop(Struct, frozen=True):
    """Closes the connection of this agent."""

    node: str
    why: str


class AskEngine(Struct, frozen=True):
    node: str


class StartAgent(Struct, frozen=True):
    node: str


class SetNodeAside(Struct, frozen=True):
    node: str
    reason: str


class MoreNodes(Struct, frozen=True):
    """`workers`: all of the job."""

    workers: int
    without: tuple[str, ...]


class Tell(Struct, frozen=True):
    """Report an event to the job's core."""

    event: AnyEvent


Act = Send | Say | Forget | Drop | AskEngine | StartAgent | SetNodeAside | MoreNodes | Tell
