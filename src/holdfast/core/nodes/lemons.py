"""Scores how likely a node is a lemon: one that fails many times as often as the rest of its fleet. Pure.

The model has two kinds of nodes, sound ones and lemons, each with a constant failure rate; a job fails at the sum of its
nodes' rates plus a rate of its own. An attributed failure is evidence about its node alone. An unattributed one is shared
evidence about all nodes of the attempt: for each, the likelihood ratio of the failure with this node a lemon and with it
sound, given the beliefs about the others. Because rates add up, that ratio is exact for one failure; over many failures
that share nodes it is loopy belief propagation. Expectation maximisation learns the rates, the share of lemons and the
jobs' own rate from the same data; published figures are weak priors.

Soft warnings (corrected errors, throttling, link flaps, slow steps) weigh by how much more often likely lemons show them.
The beliefs from failures are fixed while that is learned, so that many warnings alone do not make a lemon.

The terms of a score, in nats (natural log odds), add up to it.

sources: docs/decisions/0014-a-lemon-score-is-a-posterior.md; loopy belief propagation: Pearl, Probabilistic Reasoning in
Intelligent Systems (1988); naming by mean posterior: Newton et al., Biostatistics 5 (2004) 155-176
"""

from collections.abc import Mapping, Sequence
from math import exp, log, log1p
from operator import sub

from msgspec import Struct

HOURS_PER_DAY = 24.0
SWEEPS_MAX = 80
SETTLED = 1e-4  # the sweeps end when no log odds change by more than this
# Quantiles of a warning's rate among nodes with any: a node's bin is 1 + the number of quantiles it reaches.
QUANTILES = (0.5, 0.8, 0.93, 0.98, 0.994, 0.998)
BINS = len(QUANTILES) + 2
MIXTURE_TURNS = 30
UNSEEN = 0.5
CLAMP = 30.0
ODDS_MAX = 500.0  # nats; beyond it exp() overflows
# This many jobs that fail within this many seconds have a common cause other than a node, such as a switch.
TOGETHER_JOBS, TOGETHER_S = 3, 60.0
ROUNDS = 3  # beliefs from failures, then with warnings, then once more with warnings learned again


class Failure(Struct, frozen=True, kw_only=True):
    """A failed attempt that was not the training's own fault. `run`: the job.

    `node`: the node at fault, with this `confidence`; if empty, any of `suspects` may be the cause.
    """

    run: str
    at_s: float
    suspects: tuple[str, ...] = ()
    node: str = ""
    confidence: float = 1.0


class Observed(Struct, frozen=True, kw_only=True):
    """The history of a fleet.

    `hours`: working hours by node; `job_hours`: by job, not multiplied by its number of nodes.

    `warnings`: number by node and kind.
    """

    hours: dict[str, float]
    job_hours: dict[str, float]
    failures: tuple[Failure, ...] = ()
    warnings: dict[str, dict[str, float]] = {}  # node -> kind -> how many


class Prior(Struct, frozen=True, kw_only=True):
    """The beliefs before a fleet has data, and their weights in failures or nodes.

    `base_per_day`: rate of a sound node; 6.5 per 1,000 node-days on RSC-1, 2.34 on RSC-2 (arXiv 2410.21680).
    `share`: 40 lemons in those two clusters of 24,000 GPUs, 3,000 nodes. `factor`: a lemon's rate as a
    multiple of a sound node's; not published: one that is worth removing. `job_per_day`: a job's own
    unexplained failures; not published. `likeness`: how similar jobs are in this rate, the shape of their
    gamma distribution.
    """

    base_per_day: float = 0.0065
    base_weight: float = 2.0
    factor: float = 15.0
    factor_min: float = 4.0  # less than this is not a lemon but a node like others
    factor_weight: float = 2.0
    share: float = 0.0133
    share_weight: float = 150.0
    job_per_day: float = 0.01
    job_weight: float = 2.0
    likeness: float = 0.5
    warning_weight: float = 20.0
    # The expected share of lemons among the named nodes. On simulated fleets it is 0 to 10 percentage points too high,
    # because nodes differ more than two kinds do.
    precision: float = 0.9
    posterior_min: float = 0.5


FIELD = Prior()


class Learned(Struct, frozen=True, kw_only=True):
    """The parameters learned from a fleet. Rates are per node-day, `job_per_day` per job-day.

    `attribution`: share of the nodes' failures that are attributed to a node.
    """

    base_per_day: float
    lemon_per_day: float
    factor: float
    share: float
    attribution: float
    job_per_day: float
    nodes: int
    node_days: float
    failures: int
    attributed: int
    together: int  # further failures, of several jobs at one time, not counted against nodes
    sweeps: int


class Term(Struct, frozen=True):
    """The contribution of one kind of evidence to the log odds, in nats."""

    name: str
    nats: float


class Score(Struct, frozen=True, kw_only=True):
    """How likely a node is a lemon, with the evidence. `days`: working days.

    `likely_its`: expected number of the shared failures that this node caused. `terms` add up to the log odds
    of `posterior`. `named`: certain enough to be called a lemon.
    """

    node: str
    posterior: float
    named: bool
    days: float
    attributed: int
    shared: int
    likely_its: float
    per_day: float  # its own rate, by these and the fleet's
    terms: tuple[Term, ...]


class Judged(Struct, frozen=True, kw_only=True):
    """The scores of a fleet's nodes, most likely lemons first, and the learned parameters."""

    learned: Learned
    scores: tuple[Score, ...]


class _Rates(Struct, frozen=True):
    """Failure rates per hour, of sound nodes, lemons and jobs, and the share of lemons."""

    good: float
    bad: float
    share: float
    job: float


class _Shared:
    """A failure without a known cause: the nodes that may be its cause, and its evidence about each of them,
    in nats.
    """

    __slots__ = ("beliefs", "job", "nodes", "said", "total")

    def __init__(self, nodes: Sequence[int], job: int) -> None:
        self.nodes, self.job = nodes, job
        self.said = [0.0] * len(nodes)
        self.beliefs = [0.0] * len(nodes)  # that each is a lemon, by all but this failure
        self.total = 1.0


class _Expected(Struct):
    """Expected numbers of failures of sound nodes, of lemons, and of each job itself."""

    good: float
    bad: float
    jobs: list[float]


def judge(observed: Observed, prior: Prior = FIELD) -> Judged:
    """Returns the lemon score of every node with working hours.

    Takes about 2 s for 2,048 nodes and 550 failures.
    """
    return _Fleet(observed, prior).judged()


class _Fleet:
    def __init__(self, observed: Observed, prior: Prior) -> None:
        self._prior = prior
        self._names = sorted(node for node, hours in observed.hours.items() if hours > 0)
        index = {name: number for number, name in enumerate(self._names)}
        self._hours = [observed.hours[name] for name in self._names]
        runs = sorted({failure.run for failure in observed.failures} | set(observed.job_hours))
        job = {run: number for number, run in enumerate(runs)}
        self._job_hours = [observed.job_hours.get(run, 0.0) for run in runs]
        self._attributed: list[list[float]] = [[] for _ in self._names]
        self._shared: list[_Shared] = []
        alone = not_together(observed.failures)
        self._together = len(observed.failures) - len(alone)
        for failure in alone:
            if failure.node:
                if failure.node in index:
                    self._attributed[index[failure.node]].append(min(1.0, max(0.0, failure.confidence)))
                continue
            nodes = [index[name] for name in dict.fromkeys(failure.suspects) if name in index]
            if nodes:
                self._shared.append(_Shared(nodes, job[failure.run]))
        self._warnings = observed.warnings
        self._rates = _Rates(
            prior.base_per_day / HOURS_PER_DAY,
            prior.base_per_day * prior.factor / HOURS_PER_DAY,
            prior.share,
            prior.job_per_day / HOURS_PER_DAY,
        )
        self._jobs = [self._rates.job] * len(runs)
        self._odds = [0.0] * len(self._names)
        self._warned = [0.0] * len(self._names)  # what warnings add to the log odds
        self._sweeps = 0

    def judged(self) -> Judged:
        self._settle()
        warned: list[dict[str, float]] = [{} for _ in self._names]
        for _ in range(1, ROUNDS if self._warnings else 1):
            by_failures = [odds - warned for odds, warned in zip(self._odds, self._warned, strict=True)]
            warned = self._warning_terms([_probability(odds) for odds in by_failures])
            self._warned = [sum(terms.values()) for terms in warned]
            self._settle()
        whole = self._odds
        posteriors = [_probability(odds) for odds in whole]
        named = _named(posteriors, self._prior)
        its = self._likely_its()
        order = sorted(range(len(whole)), key=lambda node: (-whole[node], self._names[node]))
        scores = tuple(
            self._score(node, posteriors[node], node in named, its[node], warned[node]) for node in order
        )
        return Judged(learned=self._learned(sum(its)), scores=scores)

    # Learning ------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Updates beliefs and rates in turn until both converge."""
        for _ in range(SWEEPS_MAX):
            before = self._rates
            self._start_over()
            moved, expected = self._sweep()
            self._learn(expected)
            self._sweeps += 1
            if moved < SETTLED * CLAMP and _alike(before, self._rates):
                break

    def _start_over(self) -> None:
        """Computes the log odds of each node from all evidence, with the current rates."""
        prior = self._prior_term()
        self._odds = [
            max(
                -ODDS_MAX,
                prior + self._exposure_term(node) + self._attributed_term(node) + self._warned[node],
            )
            for node in range(len(self._names))
        ]
        for one in self._shared:
            for place, node in enumerate(one.nodes):
                self._odds[node] += one.said[place]

    def _sweep(self) -> tuple[float, _Expected]:
        """Updates the evidence of each shared failure. Returns the largest change and the expected numbers.

        With R the sum of the rates of all others, (R + bad) / (R + good) is 1 + more / (R + good), and R +
        good is the sum of all rates less the part that a belief in this node adds.
        """
        rates, odds = self._rates, self._odds
        good, bad, more = rates.good, rates.bad, rates.bad - rates.good
        moved, good_ones, bad_ones = 0.0, 0.0, 0.0
        jobs = [0.0] * len(self._jobs)
        for one in self._shared:
            nodes, before, own = one.nodes, one.said, self._jobs[one.job]
            beliefs = [1.0 / (1.0 + exp(old - odds[node])) for node, old in zip(nodes, before, strict=True)]
            lemons = sum(beliefs)
            total = own + good * len(beliefs) + more * lemons
            said = [log1p(more / (total - more * belief)) for belief in beliefs]
            for node, old, new in zip(nodes, before, said, strict=True):
                odds[node] += new - old
            moved = max(moved, max(map(abs, map(sub, said, before))))
            one.said, one.beliefs, one.total = said, beliefs, total
            bad_ones += lemons * bad / total
            good_ones += (len(beliefs) - lemons) * good / total
            jobs[one.job] += own / total
        for node, confidences in enumerate(self._attributed):
            if confidences:
                lemon, count = _probability(odds[node]), sum(confidences)
                bad_ones += lemon * count
                good_ones += (1.0 - lemon) * count
        return moved, _Expected(good_ones, bad_ones, jobs)

    def _likely_its(self) -> list[float]:
        """Returns the expected number of shared failures that each node caused."""
        good, more = self._rates.good, self._rates.bad - self._rates.good
        nodes = [0.0] * len(self._names)
        for one in self._shared:
            for node, belief in zip(one.nodes, one.beliefs, strict=True):
                nodes[node] += (good + more * belief) / one.total
        return nodes

    def _learn(self, expected: _Expected) -> None:
        prior, hours = self._prior, self._hours
        lemons = [_probability(odds) for odds in self._odds]
        bad_hours = sum(lemon * one for lemon, one in zip(lemons, hours, strict=True))
        base = prior.base_per_day / HOURS_PER_DAY
        good = (expected.good + prior.base_weight) / (sum(hours) - bad_hours + prior.base_weight / base)
        bad = (expected.bad + prior.factor_weight) / (bad_hours + prior.factor_weight / (good * prior.factor))
        share = (sum(lemons) + prior.share * prior.share_weight) / (len(lemons) + prior.share_weight)
        usual = prior.job_per_day / HOURS_PER_DAY
        job = (sum(expected.jobs) + prior.job_weight) / (sum(self._job_hours) + prior.job_weight / usual)
        self._rates = _Rates(good, max(bad, good * prior.factor_min), min(0.3, share), job)
        alike = prior.likeness
        self._jobs = [
            (own + alike) / (one + alike / job)
            for own, one in zip(expected.jobs, self._job_hours, strict=True)
        ]

    # Terms ---------------------------------------------------------------------------------------------------

    def _prior_term(self) -> float:
        return log(self._rates.share / (1.0 - self._rates.share))

    def _exposure_term(self, node: int) -> float:
        """Returns the evidence of working hours, which count against a lemon."""
        return -(self._rates.bad - self._rates.good) * self._hours[node]

    def _attributed_term(self, node: int) -> float:
        """Returns the evidence of attributed failures, weighted by confidence."""
        usual = self._rates.good + self._rates.share * (self._rates.bad - self._rates.good)
        return sum(
            log(
                (sure * self._rates.bad / usual + 1.0 - sure) / (sure * self._rates.good / usual + 1.0 - sure)
            )
            for sure in self._attributed[node]
        )

    def _warning_terms(self, lemons: Sequence[float]) -> list[dict[str, float]]:
        """Returns the evidence of warnings, learned over all kinds, because lemons are few, and then for each
        kind.
        """
        terms: list[dict[str, float]] = [{} for _ in self._names]
        kinds = {
            kind: _bins(
                [self._warnings.get(name, {}).get(kind, 0.0) / hours for name, hours in self._at_work()]
            )
            for kind in sorted({kind for found in self._warnings.values() for kind in found})
        }
        if not kinds:
            return terms
        weight = self._prior.warning_weight
        every = [which for bins in kinds.values() for which in bins]
        good, bad = _warning_shares(every, [*lemons] * len(kinds), None, weight, len(kinds))
        for kind, bins in kinds.items():
            own_good, own_bad = _warning_shares(bins, lemons, (good, bad), weight, 1)
            for node, which in enumerate(bins):
                terms[node][kind] = log(own_bad[which] / own_good[which])
        return terms

    def _at_work(self) -> list[tuple[str, float]]:
        return list(zip(self._names, self._hours, strict=True))

    # Words ---------------------------------------------------------------------------------------------------

    def _score(
        self, node: int, posterior: float, named: bool, likely_its: float, warned: Mapping[str, float]
    ) -> Score:
        shared = [one.said[one.nodes.index(node)] for one in self._shared_of(node)]
        attributed = self._attributed[node]
        count = sum(attributed) + likely_its
        mean = posterior * self._rates.bad + (1.0 - posterior) * self._rates.good
        terms = (
            Term("prior", self._prior_term()),
            Term("exposure", self._exposure_term(node)),
            Term("attributed", self._attributed_term(node)),
            Term("shared", sum(shared)),
            *(Term(kind, nats) for kind, nats in warned.items()),
        )
        return Score(
            node=self._names[node],
            posterior=posterior,
            named=named,
            days=self._hours[node] / HOURS_PER_DAY,
            attributed=len(attributed),
            shared=len(shared),
            likely_its=likely_its,
            per_day=(count + 1.0) / (self._hours[node] + 1.0 / mean) * HOURS_PER_DAY,
            terms=terms,
        )

    def _shared_of(self, node: int) -> list[_Shared]:
        if not hasattr(self, "_by_node"):
            self._by_node: list[list[_Shared]] = [[] for _ in self._names]
            for one in self._shared:
                for each in one.nodes:
                    self._by_node[each].append(one)
        return self._by_node[node]

    def _learned(self, of_nodes: float) -> Learned:
        attributed = sum(len(one) for one in self._attributed)
        return Learned(
            base_per_day=self._rates.good * HOURS_PER_DAY,
            lemon_per_day=self._rates.bad * HOURS_PER_DAY,
            factor=self._rates.bad / self._rates.good,
            share=self._rates.share,
            attribution=attributed / (attributed + of_nodes) if attributed + of_nodes else 0.0,
            job_per_day=self._rates.job * HOURS_PER_DAY,
            nodes=len(self._names),
            node_days=sum(self._hours) / HOURS_PER_DAY,
            failures=attributed + len(self._shared),
            attributed=attributed,
            together=self._together,
            sweeps=self._sweeps,
        )


def not_together(failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """Returns the failures in order of time, without those of three or more jobs within a minute."""
    order = sorted(failures, key=lambda failure: failure.at_s)
    bad, start = [False] * len(order), 0
    for end, last in enumerate(order):
        while last.at_s - order[start].at_s > TOGETHER_S:
            start += 1
        if len({one.run for one in order[start : end + 1]}) >= TOGETHER_JOBS:
            bad[start : end + 1] = [True] * (end + 1 - start)
    return tuple(one for one, gone in zip(order, bad, strict=True) if not gone)


def _warning_shares(
    bins: Sequence[int],
    lemons: Sequence[float],
    usual: tuple[list[float], list[float]] | None,
    weight: float,
    kinds: int,
) -> tuple[list[float], list[float]]:
    """Returns each bin's share among sound nodes and among lemons.

    `lemons`: each node's probability, from its failures.

    A mixture model whose weights are known for each node. Each group gets `weight` pseudo-nodes distributed
    as `usual`; without `usual`, sound nodes like all nodes and lemons like sound nodes, so that few lemons
    change little. Each bin also gets half a sound node per kind (Jeffreys' prior), so that no share is zero.
    """
    whole = [(bins.count(one) + 1.0 / BINS) / (len(bins) + 1.0) for one in range(BINS)]
    good_usual, bad_usual = usual or (whole, whole)
    good, bad = list(good_usual), list(bad_usual)
    for _ in range(MIXTURE_TURNS):
        of_bad, of_good = [0.0] * BINS, [0.0] * BINS
        for one, lemon in zip(bins, lemons, strict=True):
            likely = lemon * bad[one]
            part = likely / (likely + (1.0 - lemon) * good[one])
            of_bad[one] += part
            of_good[one] += 1.0 - part
        good = _smoothed([count + UNSEEN * kinds for count in of_good], good_usual, weight if usual else 1.0)
        bad = _smoothed(of_bad, bad_usual if usual else good, weight)
    return good, bad


def _smoothed(counts: Sequence[float], usual: Sequence[float], weight: float) -> list[float]:
    total = sum(counts) + weight
    return [(count + weight * share) / total for count, share in zip(counts, usual, strict=True)]


def _bins(rates: Sequence[float]) -> list[int]:
    """Returns the bin of each warning rate; 0 without warnings."""
    some = sorted(rate for rate in rates if rate > 0)
    if not some:
        return [0] * len(rates)
    edges = [some[int(len(some) * quantile)] for quantile in QUANTILES]
    return [0 if rate <= 0 else 1 + sum(rate >= edge for edge in edges) for rate in rates]


def _named(posteriors: Sequence[float], prior: Prior) -> set[int]:
    """Returns the most likely lemons, as many as keep the expected share of lemons among them high enough."""
    order = sorted(range(len(posteriors)), key=lambda node: -posteriors[node])
    named, total = set[int](), 0.0
    for count, node in enumerate(order, 1):
        total += posteriors[node]
        if posteriors[node] < prior.posterior_min or total / count < prior.precision:
            break
        named.add(node)
    return named


def _probability(odds: float) -> float:
    return 1.0 / (1.0 + exp(-min(CLAMP, max(-CLAMP, odds))))


def _alike(one: _Rates, other: _Rates) -> bool:
    pairs = (
        (one.good, other.good),
        (one.bad, other.bad),
        (one.share, other.share),
        (one.job, other.job),
    )
    return all(abs(a - b) <= 1e-3 * max(a, b) for a, b in pairs)
