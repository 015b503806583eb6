"""Defines the rows of the node book: lines about nodes and devices, where attempts ran, and isolated nodes.

All times are seconds since the epoch. A line is one MessagePack or JSON map with its tag in `kind`.
"""

from typing import Literal

from msgspec import Struct

Weighs = Literal["node", "shared", "program", "asked"]


class BookLine(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """An event of a node in the node book; `node` is empty if the event concerns all nodes of an attempt.

    `device`: the device's name on the node (PCI address, name); `serial`: the device's permanent identity; empty if
    unknown.
    """

    at_s: float
    node: str = ""
    device: str = ""
    serial: str = ""


class IncidentLine(BookLine, frozen=True, tag="incident"):
    """Event in the node book: an attempt failed. The event says how the failure counts against nodes.

    `weighs`: "node": the fault is attributed to `node`; "shared": one of `suspects` may be the cause, or any node of
    the attempt if `suspects` is empty; "program": the training itself; "asked": a requested end. `run` identifies the
    job permanently: its name and submission time.
    """

    run: str
    attempt: int
    incident: int
    category: str
    title: str
    weighs: Weighs
    confidence: float = 0.0
    suspects: tuple[str, ...] = ()
    network: bool = False  # a link or a switch, which may affect more than this node


class FindingLine(BookLine, frozen=True, tag="finding"):
    """Event in the node book: a check had a finding on a node."""

    finding: str
    text: str
    run: str = ""


class CheckLine(BookLine, frozen=True, tag="check"):
    """Event in the node book: the result of checks on a node. `status`: pass, warn, fail or skip; `check`: the one
    that did not pass.
    """

    status: str
    text: str
    check: str = ""
    context: str = "boot"
    run: str = ""


class ExonerationLine(BookLine, frozen=True, tag="exoneration"):
    """Event in the node book: incident `incident` of `run` was not the fault of this node, or, without a node, of any
    node.
    """

    run: str
    incident: int
    reason: str


class DeviceLine(BookLine, frozen=True, tag="device"):
    """Event in the node book: a device was in this node, last seen at `at_s`, first at `since_s`.

    The newest event about a serial number gives the device's current node.
    """

    model: str = ""
    since_s: float = 0.0
    run: str = ""


class RepairLine(BookLine, frozen=True, tag="repair"):
    """Event in the node book: a repair or replacement. Earlier failures no longer count against the node."""

    text: str
    by: str


class IsolationLine(BookLine, frozen=True, tag="isolation"):
    """Event in the node book: a node was isolated."""

    reason: str
    by: str
    run: str = ""


class ReleaseLine(BookLine, frozen=True, tag="release"):
    """Event in the node book: an isolated node was released."""

    reason: str
    by: str


class HeldBackLine(BookLine, frozen=True, tag="held-back"):
    """Event in the node book: a node was not isolated, because too many nodes had been isolated within the hour."""

    reason: str
    by: str
    run: str = ""


class LostLine(BookLine, frozen=True, tag="lost"):
    """Event in the node book: a node was lost."""

    reason: str
    run: str = ""


class ReturnedLine(BookLine, frozen=True, tag="returned"):
    """Event in the node book: a lost node returned."""

    run: str = ""


class WarningLine(BookLine, frozen=True, tag="warning"):
    """Event in the node book: a warning about a node that did not stop a training.

    `warning`: one of SOFT_WARNINGS; `count`: number of occurrences.
    """

    warning: str
    count: int = 1
    text: str = ""
    run: str = ""


AnyLine = (
    IncidentLine
    | FindingLine
    | CheckLine
    | ExonerationLine
    | DeviceLine
    | RepairLine
    | IsolationLine
    | ReleaseLine
    | HeldBackLine
    | LostLine
    | ReturnedLine
    | WarningLine
)

SOFT_WARNINGS = ("ecc-corrected", "throttling", "link-flap", "slow-steps", "other")


class AttemptRan(Struct, frozen=True, kw_only=True):
    """A row of the node book: which nodes an attempt used, each for `hours` from `started_s` on.

    A later row of the same attempt replaces it.
    """

    run: str
    attempt: int
    nodes: tuple[str, ...]
    started_s: float
    hours: float


class Isolation(Struct, frozen=True, kw_only=True):
    """A node that must not be used until it is released.

    `by`: who or what isolated it; `run`: within which job.
    """

    node: str
    since_s: float
    reason: str
    by: str
    run: str = ""


class IsolationAnswer(Struct, frozen=True):
    """The result of an isolation request. `why_not`: why the node was not isolated, for people."""

    isolated: bool
    why_not: str = ""
