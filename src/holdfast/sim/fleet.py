"""Simulates a fleet for weeks: jobs of mixed sizes on nodes, some of which are lemons.

Returns the contents of its node book, as input of the lemon score, and which nodes were lemons. No node is
isolated or repaired meanwhile.
"""

import heapq
from random import Random

from msgspec import Struct

from holdfast.core.nodes.lemons import Failure, Observed

HOURS_PER_DAY, HOURS_PER_WEEK = 24.0, 168.0
KINDS = ("ecc-corrected", "throttling", "link-flap", "slow-steps")


class FleetPlan(Struct, frozen=True, kw_only=True):
    """Parameters of a simulated fleet.

    `base_per_day`: failures a day of a healthy node in use; a lemon has `factor` times as many. `sizes`:
    numbers of nodes of a job; each size has the same share of all node-hours. The length of a job is
    log-normal. `attributed`: share of the nodes' failures attributed to the right node; `wrongly`: share of
    those attributed to another node of the job. `own_per_day`: failures a day caused by the job itself, which
    vary much between jobs; the share `own_known` of them is recognised as such and ignored, the rest stays
    unexplained. `spread`: sigma of the log-normal by which healthy nodes differ. `stay`: probability that a
    job continues on the same nodes. `warned_per_week`: warnings of each kind of a healthy node, with spread
    `warned_spread`. A lemon has one bad part, and shows of its kind `warned_factor` times as many warnings as
    a healthy node of all kinds together; the share `silent` of lemons shows none. `outages`: of one switch
    with `switch_nodes` nodes; each ends all jobs that it reaches. `flaky`: instead, all nodes of that switch
    fail at this many times the base rate.
    """

    nodes: int = 2048
    lemons: int = 40
    factor: float = 25.0
    days: float = 28.0
    base_per_day: float = 0.0065
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    length_hours: float = 12.0
    use: float = 0.85
    attributed: float = 0.4
    wrongly: float = 0.02
    own_per_day: float = 0.02
    own_known: float = 0.7
    spread: float = 0.3
    stay: float = 0.5
    warned_per_week: float = 0.25
    warned_spread: float = 1.0
    warned_factor: float = 25.0
    silent: float = 0.1
    outages: int = 0
    flaky: float = 0.0
    switch_nodes: int = 32


class FleetMonth(Struct, frozen=True, kw_only=True):
    """The result of simulating a fleet: its node book, and which nodes were lemons."""

    observed: Observed
    lemons: frozenset[str]
    of_switch: frozenset[str]  # of the bad one


class _Job:
    def __init__(self, number: int, size: int, hours: float, own_rate: float) -> None:
        self.run = f"job-{number}"
        self.size, self.left_hours, self.own_rate = size, hours, own_rate
        self.nodes: list[int] = []
        self.started = 0.0
        self.turn = 0


def simulate(plan: FleetPlan, seed: int) -> FleetMonth:
    return _Fleet(plan, Random(seed)).month()


class _Fleet:
    def __init__(self, plan: FleetPlan, dice: Random) -> None:
        self._plan, self._dice = plan, dice
        self._end = plan.days * HOURS_PER_DAY
        order = list(range(plan.nodes))
        dice.shuffle(order)
        self._lemons = frozenset(order[: plan.lemons])
        self._switch = frozenset(order[plan.lemons : plan.lemons + plan.switch_nodes])
        self._rates = [self._rate(node) for node in range(plan.nodes)]
        self._free = order
        self._hours = [0.0] * plan.nodes
        self._job_hours: dict[str, float] = {}
        self._failures: list[Failure] = []
        self._running: dict[str, _Job] = {}
        self._ends: list[tuple[float, int, str, int]] = []
        self._number = 0
        self._next = self._new_job()

    def month(self) -> FleetMonth:
        plan = self._plan
        outages = sorted(self._dice.uniform(0, self._end) for _ in range(plan.outages))
        self._fill(0.0)
        while self._ends and self._ends[0][0] < self._end:
            at = self._ends[0][0]
            if outages and outages[0] <= at:
                self._outage(outages.pop(0))
                continue
            _, _, run, turn = heapq.heappop(self._ends)
            job = self._running.get(run)
            if job is not None and job.turn == turn:
                self._over(job, at)
                self._fill(at)
        for job in self._running.values():
            self._worked(job, self._end)
        names = [_name(node) for node in range(plan.nodes)]
        observed = Observed(
            hours=dict(zip(names, self._hours, strict=True)),
            job_hours=self._job_hours,
            failures=tuple(self._failures),
            warnings={_name(node): self._warned(node) for node in range(plan.nodes)},
        )
        return FleetMonth(
            observed=observed,
            lemons=frozenset(map(_name, self._lemons)),
            of_switch=frozenset(map(_name, self._switch)) if plan.outages or plan.flaky else frozenset(),
        )

    def _rate(self, node: int) -> float:
        """Returns the failures of a node an hour."""
        plan = self._plan
        base = plan.base_per_day / HOURS_PER_DAY * self._dice.lognormvariate(0.0, plan.spread)
        if node in self._lemons:
            return base * plan.factor
        return base * plan.flaky if plan.flaky and node in self._switch else base

    # Jobs ----------------------------------------------------------------------------------------------------

    def _new_job(self) -> _Job:
        plan, dice = self._plan, self._dice
        self._number += 1
        weights = [1.0 / size for size in plan.sizes]  # the same node-hours for each size
        size = dice.choices(plan.sizes, weights)[0]
        hours = plan.length_hours * dice.lognormvariate(-0.5, 1.0)  # of this mean
        own = plan.own_per_day / HOURS_PER_DAY * dice.gammavariate(0.3, 1 / 0.3)
        return _Job(self._number, size, min(hours, 7 * HOURS_PER_DAY), own)

    def _fill(self, at: float) -> None:
        room = len(self._free) - int(len(self._hours) * (1.0 - self._plan.use))
        while self._next.size <= room:
            job, self._next = self._next, self._new_job()
            job.nodes = [self._take() for _ in range(job.size)]
            room -= job.size
            self._running[job.run] = job
            self._start(job, at)

    def _take(self) -> int:
        place = self._dice.randrange(len(self._free))
        self._free[place], self._free[-1] = self._free[-1], self._free[place]
        return self._free.pop()

    def _start(self, job: _Job, at: float) -> None:
        rate = job.own_rate + sum(self._rates[node] for node in job.nodes)
        job.started, job.turn = at, job.turn + 1
        until = min(job.left_hours, self._dice.expovariate(rate))
        heapq.heappush(self._ends, (at + until, self._number, job.run, job.turn))

    def _worked(self, job: _Job, at: float) -> float:
        hours = at - job.started
        for node in job.nodes:
            self._hours[node] += hours
        self._job_hours[job.run] = self._job_hours.get(job.run, 0.0) + hours
        job.left_hours -= hours
        return hours

    def _over(self, job: _Job, at: float) -> None:
        self._worked(job, at)
        if job.left_hours <= 1e-9:
            self._free.extend(job.nodes)
            del self._running[job.run]
            return
        rates = [job.own_rate, *(self._rates[node] for node in job.nodes)]
        which = self._dice.choices(range(len(rates)), rates)[0]
        if which:
            self._failed(job, job.nodes[which - 1], at)
        elif self._dice.random() >= self._plan.own_known:
            self._unexplained(job, at)
            self._again(job, at)
        else:
            self._again(job, at)

    def _failed(self, job: _Job, node: int, at: float) -> None:
        if self._dice.random() >= self._plan.attributed:
            self._unexplained(job, at)
            self._again(job, at)
            return
        if self._dice.random() < self._plan.wrongly:
            node = self._dice.choice(job.nodes)
        self._failures.append(Failure(run=job.run, at_s=at * 3600, node=_name(node), confidence=0.95))
        self._free.append(node)
        job.nodes[job.nodes.index(node)] = self._take()
        self._start(job, at)

    def _unexplained(self, job: _Job, at: float) -> None:
        self._failures.append(Failure(run=job.run, at_s=at * 3600, suspects=tuple(map(_name, job.nodes))))

    def _again(self, job: _Job, at: float) -> None:
        if self._dice.random() >= self._plan.stay:
            self._free.extend(job.nodes)
            job.nodes = [self._take() for _ in range(job.size)]
        self._start(job, at)

    def _outage(self, at: float) -> None:
        for job in list(self._running.values()):
            reached = [node for node in job.nodes if node in self._switch]
            if reached:
                self._worked(job, at)
                self._failed(job, self._dice.choice(reached), at)

    def _warned(self, node: int) -> dict[str, float]:
        """Returns the numbers of warnings of a node by kind: Poisson counts, with rates that vary between
        nodes.
        """
        plan, dice = self._plan, self._dice
        worse = dice.choice(KINDS) if node in self._lemons and dice.random() >= plan.silent else ""
        found = {}
        for kind in KINDS:
            rate = plan.warned_per_week * dice.lognormvariate(0.0, plan.warned_spread)
            rate *= plan.warned_factor * len(KINDS) if kind == worse else 1.0
            left, count = self._hours[node] / HOURS_PER_WEEK, 0
            while rate > 0 and (left := left - dice.expovariate(rate)) > 0:
                count += 1
            if count:
                found[kind] = float(count)
        return found


def _name(node: int) -> str:
    return f"node-{node:04}"
