"""Generates the faults of a fleet: when (bursts), on which node (lemons, repeats), of which kind, and how long a
repair takes.

Equal seeds give equal faults, whatever the policy decides; only the nodes that run the job at that time depend on the
policy.
"""

from collections import deque
from random import Random

from msgspec import Struct

from holdfast.core.reliability.outages import WEEK_S
from holdfast.core.reliability.weibull import Weibull
from holdfast.sim.months.plan import World

KINDS = ("device", "node", "software", "hang", "switch")
RECENT_MAX = 4_096


class Drawn(Struct, frozen=True):
    """A future fault. `dice`: random numbers in 0..1, for what depends on the state of the fleet when the fault
    happens.
    """

    at_s: float
    kind: str
    dice: tuple[float, float, float]


class Faults:
    """Generator of the faults of a fleet."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._gaps = Random(f"gaps {seed}")
        self._kinds = Random(f"kinds {seed}")
        self._repairs = Random(f"repairs {seed}")
        self._slow = Random(f"slow {seed}")
        self._one = Weibull(world.shape, world.mean_s)
        self._shares = [getattr(world.mix, kind) for kind in KINDS]
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT_MAX)  # when, which node
        plan = world.plan
        whole = list(range(plan.nodes + plan.spares))
        Random(f"lemons {seed}").shuffle(whole)
        self.lemons = tuple(sorted(whole[: plan.lemons.count]))

    def next(self, after_s: float) -> Drawn:
        gap_s = self._one.quantile(min(self._gaps.random(), 1.0 - 1e-12))
        kind = self._kinds.choices(KINDS, self._shares)[0]
        return Drawn(
            after_s + gap_s, kind, (self._kinds.random(), self._kinds.random(), self._kinds.random())
        )

    def next_slow(self, after_s: float) -> float | None:
        per_week = self._world.slow.per_week
        return after_s + self._slow.expovariate(per_week / WEEK_S) if per_week > 0.0 else None

    def repair_s(self) -> float:
        quantiles = self._world.repairs_s
        place = self._repairs.random() * (len(quantiles) - 1)
        low = int(place)
        share = place - low
        return quantiles[low] * (1.0 - share) + quantiles[min(low + 1, len(quantiles) - 1)] * share

    def node(self, drawn: Drawn, at_work: dict[int, int]) -> int:
        """Returns the node that fails: often one that failed within a week, or a lemon.

        `at_work`: the worker that runs on each node.
        """
        while self._recent and self._recent[0][0] < drawn.at_s - WEEK_S:
            self._recent.popleft()
        again, where, which = drawn.dice
        recent = sorted({node for _, node in self._recent if node in at_work})
        if recent and again < self._world.repeated:
            chosen = recent[int(which * len(recent))]
        else:
            chosen = self._fresh(where, which, at_work)
        self._recent.append((drawn.at_s, chosen))
        return chosen

    def _fresh(self, where: float, which: float, at_work: dict[int, int]) -> int:
        lemons = [node for node in self.lemons if node in at_work]
        weight = len(lemons) * (self._world.plan.lemons.factor - 1.0)
        if lemons and where < weight / (weight + len(at_work)):
            return lemons[int(which * len(lemons))]
        nodes = sorted(at_work)
        return nodes[int(which * len(nodes))]
