"""Defines what the worker group (the controller's model of a job's nodes) asks its caller to do. Data types only."""

from msgspec import Struct

from holdfast.model.events import AnyEvent
from holdfast.model.nodes.workers import AnyCommand


class Send(Struct, frozen=True):
    """Request of the worker group: send a command to an agent, and keep it until the agent reports it done.

    A repeated `order_id` is ignored.
    """

    node: str
    order_id: str
    command: AnyCommand


class Say(Struct, frozen=True):
    """Request of the worker group: send a message to a connected agent once, without storing it for a later
    connection.
    """

    node: str
    command: AnyCommand


class Forget(Struct, frozen=True):
    """Request of the worker group: cancel the commands for this node's agent whose ids begin with `prefix`."""

    node: str
    prefix: str = ""


class Drop(Struct, frozen=True):
    """Request of the worker group: close the connection of this agent."""

    node: str
    why: str


class AskEngine(Struct, frozen=True):
    """Request of the worker group: query the engine about this node."""

    node: str


class StartAgent(Struct, frozen=True):
    """Request of the worker group: have the engine start an agent on this node."""

    node: str


class SetNodeAside(Struct, frozen=True):
    """Request of the worker group: have the engine exclude this node from further use."""

    node: str
    reason: str


class MoreNodes(Struct, frozen=True):
    """Request of the worker group: ask the engine for more nodes.

    `workers`: number of workers of the job; `without`: nodes that must not be used.
    """

    workers: int
    without: tuple[str, ...]


class Tell(Struct, frozen=True):
    """Request of the worker group: report an event to the job's decision rules (core/job)."""

    event: AnyEvent


Act = Send | Say | Forget | Drop | AskEngine | StartAgent | SetNodeAside | MoreNodes | Tell
