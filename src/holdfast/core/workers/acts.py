"""What the worker_group wants done, in the order it wants it. Values only."""

from msgspec import Struct

from holdfast.model.events import AnyEvent
from holdfast.model.nodes.workers import AnyCommand


class Send(Struct, frozen=True):
    """An order for an agent, kept until it says that it was carried out. The same `order_id` twice is one."""

    node: str
    order_id: str
    command: AnyCommand


class Say(Struct, frozen=True):
    """For an agent that is connected now; not kept."""

    node: str
    command: AnyCommand


class Forget(Struct, frozen=True):
    """Orders for this node whose ids begin so need not be carried out any more."""

    node: str
    prefix: str = ""


class Drop(Struct, frozen=True):
    """The connection of this agent is to be closed, and why."""

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
    """An event for the job's core."""

    event: AnyEvent


Act = Send | Say | Forget | Drop | AskEngine | StartAgent | SetNodeAside | MoreNodes | Tell
