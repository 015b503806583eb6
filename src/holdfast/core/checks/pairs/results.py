"""Defines measurements in rounds of disjoint pairs of nodes, and the verdict on them. Data types only.

A round measures every node once: its compute speed alone, and its bandwidth with one partner. A slow pair
shows only that one of the two, or the link between them, is slow; `plan` chooses the next partners so that
`evidence` can decide.
"""

from msgspec import Struct


class PairSample(Struct, frozen=True, kw_only=True):
    """The bandwidths between two nodes in one round.

    `speeds`: GB/s by measurement ("all-reduce 8 MiB"); more is better. `error`: why it failed.
    """

    round: int
    a: str
    b: str
    speeds: dict[str, float] = {}
    error: str = ""

    def other(self, node: str) -> str:
        """Returns the partner of this node in the measurement."""
        return self.b if node == self.a else self.a


class NodeSample(Struct, frozen=True, kw_only=True):
    """The compute speeds of one node in one round.

    `compute`: GFLOP/s by device ("cpu", "cuda:0"). `model`: of its devices. `error`: why it did not answer;
    empty if it did. `wrong`: its results differed between runs.
    """

    round: int
    node: str
    compute: dict[str, float] = {}
    model: str = ""
    error: str = ""
    wrong: str = ""


class Measured(Struct, frozen=True, kw_only=True):
    """The measurements of all rounds so far. `spares`: additional nodes known to be good.

    `usual`: baseline in GB/s by measurement; empty without any. `small`: measurements with small messages,
    whose speed depends on latency and varies more.
    """

    nodes: tuple[str, ...]
    spares: tuple[str, ...] = ()
    rounds: int = 0
    pairs: tuple[PairSample, ...] = ()
    singles: tuple[NodeSample, ...] = ()
    usual: dict[str, float] = {}
    small: tuple[str, ...] = ()


class Round(Struct, frozen=True, kw_only=True):
    """The pair measurements to run next.

    `alone`: nodes without a partner, because their number is odd or they did not answer last time.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    alone: tuple[str, ...] = ()


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of the pairwise measurements.

    `slow_below`: part of the expected speed; widened by `sigmas` of its spread. `odds`: required likelihood
    ratio of fault to chance before a node is named. `hiccup`: minimum rate at which a healthy pair is slow
    once.
    """

    rounds_min: int = 4
    rounds_max: int = 12
    slow_below: float = 0.75
    small_slow_below: float = 0.33  # the same for small messages, whose speed depends on latency
    sigmas: float = 5.0
    partners: int = 3  # good nodes with which a bad node must be slow, if there are that many
    odds: float = 300.0
    hiccup: float = 0.001
    fault_before: float = 0.01  # prior probability of a bad node


class Blame(Struct, frozen=True, kw_only=True):
    """A fault of one or several nodes, found by pair measurements.

    `kind`: "communication", "compute", "wrong" or "silent" for one node; "link" between two good nodes; "group" for
    nodes that are fast among themselves and slow with all others; "one-of" for nodes of which one, or a link, is bad.
    `what`: the measurement. `speed`, `expected`: medians in GB/s or GFLOP/s; 0 without a connection. `whence`:
    "peers" or "baseline". `times` of `looks`: how often it was slow, of how many measurements. `partners`: good nodes
    with which it was measured. `others`: for a group, the number of nodes outside.
    """

    kind: str
    nodes: tuple[str, ...]
    what: str = ""
    speed: float = 0.0
    expected: float = 0.0
    whence: str = "peers"
    times: int = 0
    looks: int = 0
    partners: tuple[str, ...] = ()
    others: int = 0
    error: str = ""


class Verdict(Struct, frozen=True, kw_only=True):
    """The verdict on pairwise measurements. `blames`: certain faults. `expected`: speed by measurement.

    `unsure`: by node, in how many of its samples it was slow without a known reason. `settled`: more rounds
    would not change the verdict.
    """

    blames: tuple[Blame, ...] = ()
    unsure: dict[str, tuple[int, int]] = {}
    expected: dict[str, float] = {}
    settled: bool = False
