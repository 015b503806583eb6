"""Types for measurements in rounds of disjoint pairs of nodes, and for the verdict on them. Values only.

A round measures every node once: its compute speed alone, and its bandwidth with one partner. A slow pair shows only
that one of the two, or the link between them, is slow; `plan` chooses the next partners so that `evidence` can
decide.
"""

from msgspec import Struct


class PairSample(Struct, frozen=True, kw_only=True):
    """Two nodes that both answered, in one round.

    `speeds`: by measurement ("all-reduce 8 MiB"), GB/s; more is better. `error`: why it failed.
    """

    round: int
    a: str
    b: str
    speeds: dict[str, float] = {}
    error: str = ""

    def other(self, node: str) -> str:
        return self.b if node == self.a else self.a


class NodeSample(Struct, frozen=True, kw_only=True):
    """One node in one round. `compute`: by device ("cpu", "cuda:0"), GFLOP/s. `model`: of its devices.

    `error`: why it did not answer; empty if it did. `wrong`: its results differed between runs.
    """

    round: int
    node: str
    compute: dict[str, float] = {}
    model: str = ""
    error: str = ""
    wrong: str = ""


class Measured(Struct, frozen=True, kw_only=True):
    """All rounds so far. `spares`: additional nodes known to be good.

    `usual`: baseline by measurement, GB/s; empty if there is none. `small`: measurements with small messages, whose
    speed is dominated by latency and scatters more.
    """

    nodes: tuple[str, ...]
    spares: tuple[str, ...] = ()
    rounds: int = 0
    pairs: tuple[PairSample, ...] = ()
    singles: tuple[NodeSample, ...] = ()
    usual: dict[str, float] = {}
    small: tuple[str, ...] = ()


class Round(Struct, frozen=True, kw_only=True):
    """The next measurements. `alone`: nodes without a partner: one of an odd number, or one that did not answer last
    time.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    alone: tuple[str, ...] = ()


class Limits(Struct, frozen=True, kw_only=True):
    """`slow_below`: of the expected speed; widened by `sigmas` of its scatter.

    `odds`: required likelihood ratio of fault to chance before a node is named. `hiccup`: minimum rate at which a
    healthy pair is slow once.
    """

    rounds_min: int = 4
    rounds_max: int = 12
    slow_below: float = 0.75
    small_slow_below: float = 0.33  # of messages so small that their speed is that of the latency
    sigmas: float = 5.0
    partners: int = 3  # good ones with which a node must be slow, where there are so many
    odds: float = 300.0
    hiccup: float = 0.001
    fault_before: float = 0.01  # how often a node is bad, before anything is measured


class Blame(Struct, frozen=True, kw_only=True):
    """One fault.

    kind "communication", "compute", "wrong" or "silent": of one node. "link": between two good nodes. "group":
    several nodes that are good among themselves and slow with all others. "one-of": one of them or the link between
    them, undecidable. `what`: the measurement. `speed`, `expected`: medians, GB/s or GFLOP/s; 0: no connection.
    `whence`: "peers" or "baseline". `times` of `looks`: how often it was seen. `partners`: good nodes it was seen
    with. `others`: of a group, the number of nodes outside.
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
    """`blames`: certain faults. `unsure`: node -> how often it was slow without a known reason, of how many samples.

    `expected`: by measurement. `settled`: more rounds would not change the verdict.
    """

    blames: tuple[Blame, ...] = ()
    unsure: dict[str, tuple[int, int]] = {}
    expected: dict[str, float] = {}
    settled: bool = False
