"""Defines the rows of the node book: lines about nodes and devices, where attempts ran, and isolated nodes.

All times are seconds since the epoch. A line is one MessagePack or JSON map with its tag in `kind`.
"""

from typing import Literal

from msgspec import Struct

Weighs = Literal["node", "shared", "program", "asked"]


class BookLine(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """One line of the node book about a node; `node` is empty if it concerns all nodes of an attempt.

    `device`: its name on the node (PCI address, name); `serial`: the device's permanent identity; empty if
    unknown.
    """

    at_s: float
    node: str = ""
    device: str = ""
    serial: str = ""


class IncidentLine(BookLine, frozen=True, tag="incident"):
    """A failed attempt, and how it counts against nodes.

    `weighs`: node: the fault is attributed to `node`; shared: one of `suspects`, or of all nodes of the attempt if
    empty, may be the cause; program: the training itself; asked: a requested end. `run` identifies the job
    permanently: its name and submission time.
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
    """A line of the node book: a check had a finding on a node."""

    finding: str
    text: str
    run: str = ""


class CheckLine(BookLine, frozen=True, tag="check"):
    """A node's check result. `status`: pass, warn, fail or skip; `check`: the one that did not pass."""

    status: str
    text: str
    check: str = ""
    context: str = "boot"
    run: str = ""


class ExonerationLine(BookLine, frozen=True, tag="exoneration"):
    """Incident `incident` of `run` was not this node's fault; without a node, not the fault of any node."""

    run: str
    incident: int
    reason: str


class DeviceLine(BookLine, frozen=True, tag="device"):
    """A device in this node, last seen at `at_s`, first at `since_s`.

    The newest line of a serial number gives the device's current node.
    """

    model: str = ""
    since_s: float = 0.0
    run: str = ""


class RepairLine(BookLine, frozen=True, tag="repair"):
    """A repair or replacement: earlier failures no longer count against the node."""

    text: str
    by: str


class IsolationLine(BookLine, frozen=True, tag="isolation"):
    """A line of the node book: a node was isolated."""

    reason: str
    by: str
    run: str = ""


class ReleaseLine(BookLine, frozen=True, tag="release"):
    """A line of the node book: an isolated node was released."""

    reason: str
    by: str


class HeldBackLine(BookLine, frozen=True, tag="held-back"):
    """A node was not isolated because too many had been isolated within the hour."""

    reason: str
    by: str
    run: str = ""


class LostLine(BookLine, frozen=True, tag="lost"):
    """A line of the node book: a node was lost."""

    reason: str
    run: str = ""


class ReturnedLine(BookLine, frozen=True, tag="returned"):
    """A line of the node book: a lost node returned."""

    run: str = ""


class WarningLine(BookLine, frozen=True, tag="warning"):
    """A warning on a node that stopped nothing.

    `warning`: one of SOFT_WARNINGS; `count`: number of events.
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
    """The use of nodes by an attempt: each of them for `hours`, from `started_s` on.

    A later row replaces an earlier one.
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
