"""Defines the acts that the worker group asks its caller to carry out. Data types only."""

from msgspec import Struct

from holdfast.model.events import AnyEvent
from holdfast.model.nodes.workers import AnyCommand


class Send(Struct, frozen=True):
    """Act: send a command to an agent, and keep it until the agent reports it done.

    A repeated `order_id` is ignored.
    """

    node: str
    order_id: str
    command: AnyCommand


class Say(Struct, frozen=True):
    """Act: send a message to a connected agent once, without keeping it for a later connection."""

    node: str
    command: AnyCommand


class Forget(Struct, frozen=True):
    """Act: cancel the orders for this node's agent whose ids begin with `prefix`."""

    node: str
    prefix: str = ""


class Drop(Struct, frozen=True):
    """Act: close the connection of this agent."""

    node: str
    why: str


class AskEngine(Struct, frozen=True):
    """Act: query the engine about this node."""

    node: str


class StartAgent(Struct, frozen=True):
    """Act: have the engine start an agent on this node."""

    node: str


class SetNodeAside(Struct, frozen=True):
    """Act: have the engine exclude this node from further use."""

    node: str
    reason: str


class MoreNodes(Struct, frozen=True):
    """Act: ask the engine for more nodes.

    `workers`: number of workers of the job; `without`: nodes that must not be used.
    """

    workers: int
    without: tuple[str, ...]


class Tell(Struct, frozen=True):
    """Act: report an event to the job's core."""

    event: AnyEvent


Act = Send | Say | Forget | Drop | AskEngine | StartAgent | SetNodeAside | MoreNodes | Tell
