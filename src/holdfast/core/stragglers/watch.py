"""Detects ranks of a running job that are slower than their peers.

Pure, bounded memory; every source is optional.

Sources by certainty: own times from arrivals at collectives; own times that ranks log; ranks that samples
show as awaited, with CPU throttling. None counts time spent waiting, so the slow rank is named and not those
it delays.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import isfinite

from msgspec import Struct

from holdfast.core.slices import Sliced, whole
from holdfast.core.stragglers.heat import Heat
from holdfast.core.stragglers.limits import StragglerSettings
from holdfast.core.stragglers.looks import Looks
from holdfast.core.stragglers.panel import Flag
from holdfast.core.stragglers.panels import Panels
from holdfast.core.stragglers.rounds import Rounds
from holdfast.core.stragglers.waits import Waits
from holdfast.core.stragglers.wording import Slow, Together, by_node, straggler, who, who_zh
from holdfast.model.samples import RankSample
from holdfast.model.steps import HeatMap, StepFinding, Straggler, StragglerSource

__all__ = ["StragglerSettings", "StragglerWatch"]

FLOOR_SHARE = 0.2  # minimum base of an excess, as a share of the step time
TIMES_KEPT = 2048  # times kept of steps and of blocks
NODE_STEPS = 16
RECENT_STEPS, EARLIER_STEPS = 6, 16
RECENT_S = 3.0  # steps are reported about once a second
SLOWER = 1.2
AWAITED_PART = 0.4  # a rank with less than this part of the slowest one's excess waits for that one itself
NODE_PART = 0.5  # from this part of the slow rank's excess on, other ranks of the node are slow too


class _Open(Struct):
    """A straggler that has been reported, or will be next."""

    found: Straggler
    slow: tuple[Slow, ...]
    node: str
    is_reported: bool = False


class StragglerWatch:
    """Detects stragglers of a running job from all available sources.

    `nodes`: node by rank. `peers`: position by rank, if ranks do different work (pipeline stages). `apart`:
    nodes are sampled at different moments, so no sample shows which rank came last. `clock_error_s`: maximum
    clock difference between nodes; None if unbounded.
    """

    def __init__(
        self,
        settings: StragglerSettings | None = None,
        *,
        nodes: Mapping[int, str] | None = None,
        peers: Mapping[int, str] | None = None,
        apart: bool = False,
        clock_error_s: float | None = None,
    ) -> None:
        self.settings = settings or StragglerSettings()
        self._nodes = dict(nodes or {})
        self._neighbours: dict[str, list[int]] = {}
        for rank, node in self._nodes.items():
            self._neighbours.setdefault(node, []).append(rank)
        self._panels: dict[StragglerSource, Panels] = {
            "arrivals": Panels(self.settings, self._nodes, peers or {}),
            "log-times": Panels(self.settings, self._nodes, peers or {}),
        }
        self._whole_steps = Panels(self.settings, self._nodes, peers or {})
        self._rounds = Rounds(self._nodes, clock_error_s)
        self._blocks: list[float] = []  # when each block of arrivals ended
        self._looks: Looks | Waits = Waits(self.settings) if apart else Looks(self.settings)
        self._throttle = _Throttle()
        self._teams: dict[int, dict[int, tuple[int, ...]]] = {}
        self._steps: list[tuple[float, int]] = []
        self._step_s = 0.0
        self._open: dict[str, _Open] = {}
        self._gone: list[_Open] = []
        self._heats = {name: Heat(self.settings.heat_columns) for name in ("own", "arrivals", "steps")}
        self._fetched_s: float | None = None
        self._soon = 0

    # What is seen

    def own_work(self, step: int, times: Mapping[int, float]) -> None:
        """Adds the times that the ranks worked in a step, without waits for others, in seconds by rank."""
        times = _sane(times)
        if len(times) > 1:
            self._heats["own"].add(step, times)
            self._panels["log-times"].add(step, times, FLOOR_SHARE * self._step_s)

    def step_times(self, step: int, times: Mapping[int, float]) -> None:
        """Adds the ranks' whole step times for the heat map only: in a synchronous job they are equal."""
        times = _sane(times)
        if times:
            self._step_s = sorted(times.values())[len(times) // 2]
        if len(times) > 1:
            self._heats["steps"].add(step, times)
            self._whole_steps.add(step, times)

    def arrivals(self, group: str, sequence: int, at: Mapping[int, float], *, device: bool = False) -> None:
        """Adds when each rank of a group entered one collective, in seconds on its node's clock; in order of
        time.

        Repeated arrivals are ignored. `device`: see `records.Arrival`.
        """
        block = self._rounds.add(group, sequence, at, device)
        if block is None:
            return
        if len(self._blocks) >= TIMES_KEPT:
            del self._blocks[: TIMES_KEPT // 2]
        self._blocks.append(block.at_s)
        panels = self._panels["arrivals"]
        panels.add(panels.steps, block.own_s)
        self._rounds.keep(panels.flags())
        self._heats["arrivals"].add(self._step_at(block.at_s) or panels.steps, block.own_s)

    def teams(self, rank: int, groups: Mapping[int, tuple[int, ...]]) -> None:
        """Sets the global ranks in each process group, by the group's id in the status of this rank."""
        self._teams[rank] = {number: members for number, members in groups.items() if len(members) > 1}

    def looking(
        self, samples: Sequence[RankSample], throttled: Mapping[int, float] | None = None
    ) -> Sliced[None]:
        """Adds samples of ranks; a generator that yields after each piece of the work.

        With `apart`, only new samples of some ranks. `throttled`: seconds that a quota has throttled each
        rank so far.
        """
        if not samples:
            return
        if isinstance(self._looks, Waits):
            yield from self._looks.adding(samples, self._teams)
        else:
            self._looks.add(samples, self._teams)
        self._throttle.add(samples[0].at_s, throttled or {})

    look = whole(looking)

    def wants_records(self, at_s: float) -> bool:
        """Returns whether fetching flight records is worth its cost now.

        A result of True counts as a fetch, so call it only if the records can be fetched.
        """
        if self._fetched_s is None:
            self._fetched_s = at_s
            return False
        since_s = at_s - self._fetched_s
        is_regular = since_s >= self.settings.fetch_every_s
        is_soon = since_s >= self.settings.fetch_soon_s and self._soon < self.settings.fetch_soon_max
        if not is_regular and not (is_soon and self._is_undecided()):
            return False
        self._soon = 0 if is_regular else self._soon + 1
        self._fetched_s = at_s
        return True

    def suspects(self) -> tuple[int, ...]:
        """Returns the ranks that may be slower than their peers."""
        return self._looks.suspects()

    def _is_undecided(self) -> bool:
        named = {
            rank for one in self._open.values() for rank in one.found.ranks if one.found.ratio is not None
        }
        return self._is_slower() and not named or any(rank not in named for rank in self._looks.suspects())

    def _is_slower(self) -> bool:
        """Returns whether the last steps took longer than those before."""
        if not self._steps:
            return False
        now_s, now = self._steps[-1]
        lately = bisect_right(self._steps, (now_s - RECENT_S, 1 << 62))
        if not lately:
            return False
        middle = self._reached(min(now - RECENT_STEPS, self._steps[lately - 1][1]))
        begin = self._reached(middle[1] - EARLIER_STEPS) if middle is not None else None
        if middle is None or begin is None:
            return False
        recent_s, earlier_s = (
            (now_s - middle[0]) / (now - middle[1]),
            (middle[0] - begin[0]) / (middle[1] - begin[1]),
        )
        return recent_s > SLOWER * earlier_s

    def _reached(self, step: int) -> tuple[float, int] | None:
        """Returns the last (time, step) before a later step was reported; None if unknown."""
        at = bisect_right(self._steps, step, key=lambda one: one[1])
        return self._steps[at - 1] if at else None

    # What is concluded

    def findings(self, step: int | None, at_s: float) -> list[StepFinding]:
        """Returns new findings, each once: slow ranks, and ranks that recovered.

        `at_s`: on the job's clock, in seconds.
        """
        if step is not None and (not self._steps or step > self._steps[-1][1]):
            if len(self._steps) >= TIMES_KEPT:
                del self._steps[: TIMES_KEPT // 2]
            self._steps.append((at_s, step))
        self._conclude()
        said = []
        for one in self._gone:
            said.append(self._over(one, step, at_s))
        self._gone = []
        for one in self._open.values():
            if not one.is_reported:
                one.is_reported = True
                said.append(self._finding(one, step, at_s))
        return said

    def stragglers(self) -> tuple[Straggler, ...]:
        """Returns the ranks and nodes that are slower than their peers now."""
        self._conclude()
        return tuple(one.found for one in self._open.values())

    @property
    def reported(self) -> tuple[Straggler, ...]:
        """Returns the stragglers that were reported by the last call of `findings`."""
        return tuple(one.found for one in self._open.values())

    def heat(self) -> HeatMap | None:
        """Returns a heat map of the ranks' own times as they logged them, else of own times computed from arrivals at
        collectives, else of whole steps; None without data.
        """
        always = {rank for one in self._open.values() for rank in one.found.ranks}
        found = (self._heats[name].map(always) for name in ("own", "arrivals", "steps"))
        return next((one for one in found if one is not None), None)

    # Joining the sources

    def _conclude(self) -> None:
        now = {_key(one): one for one in by_node(self._slow(), self._nodes)}
        for key in [key for key in self._open if key not in now]:
            one = self._open.pop(key)
            ranks = set(one.found.ranks)
            # A rank that is now reported as part of its node has not recovered.
            if one.is_reported and not any(
                ranks <= {slow.rank for slow in other.ranks} for other in now.values()
            ):
                self._gone.append(one)
        for key, together in now.items():
            before = self._open.get(key)
            found = straggler(together)
            if before is None:
                self._open[key] = _Open(found, together.ranks, together.node)
            else:
                before.found, before.slow = found, together.ranks

    def _slow(self) -> list[Slow]:
        found: dict[int, Slow] = {}
        for source, panels in self._panels.items():
            for rank, flag in self._of_node(panels).items():
                if rank not in found and not (source == "log-times" and self._looks.is_waiting(rank)):
                    found[rank] = self._by_times(rank, source, flag)
        for rank, flag in self._whole_steps.flags().items():
            if rank not in found and not self._looks.is_waiting(rank):
                found[rank] = self._by_times(rank, "log-times", flag)
        held_back = self._throttle.outstanding(self.settings.throttled_share)
        for rank in self._looks.sure(held_back):
            if rank not in found:
                found[rank] = Slow(
                    rank=rank,
                    source="cpu" if rank in held_back else "awaited",
                    since=self._step_at(self._looks.since.get(rank)),
                    awaited=self._looks.share(rank),
                    throttled=held_back.get(rank),
                )
        most = max((one.ratio for one in found.values() if one.ratio is not None), default=1.0)
        return [one for _, one in sorted(found.items()) if _is_awaited(one, most)]

    def _of_node(self, panels: Panels) -> dict[int, Flag]:
        """Returns the flags, with those of other ranks on a slow rank's node that are slow too but not yet
        certain.
        """
        flags = panels.flags()
        for rank, flag in list(flags.items()):
            for other in self._neighbours.get(self._nodes.get(rank, ""), ()):
                excess = (
                    panels.excess(other, min(NODE_STEPS, panels.steps - flag.count))
                    if other not in flags
                    else None
                )
                if excess is not None and excess > NODE_PART * flag.excess:
                    flags[other] = flag
        return flags

    def _by_times(self, rank: int, source: StragglerSource, flag: Flag) -> Slow:
        is_block = source == "arrivals"
        return Slow(
            rank=rank,
            source=source,
            ratio=flag.ratio,
            since=self._step_of_block(flag.since) if is_block else flag.since,
            is_from_start=flag.is_from_start,
            sigmas=flag.sigmas,
            awaited=self._looks.share(rank) if self._looks.counted else None,
            throttled=self._throttle.outstanding(self.settings.throttled_share).get(rank),
        )

    def _step_of_block(self, number: int) -> int | None:
        back = self._panels["arrivals"].steps - number
        return self._step_at(self._blocks[-back]) if 0 < back <= len(self._blocks) else None

    def _step_at(self, at_s: float | None) -> int | None:
        if at_s is None or not self._steps:
            return None
        at = bisect_right(self._steps, (at_s, 1 << 62))
        return self._steps[max(0, at - 1)][1]

    # Words

    def _finding(self, one: _Open, step: int | None, at_s: float) -> StepFinding:
        numbers: dict[str, float | int | str | list[float]] = {
            "ranks": [float(rank) for rank in one.found.ranks],
            "source": one.found.source,
            "confidence": one.found.confidence,
        }
        first = one.slow[0]
        more = {
            "ratio": one.found.ratio,
            "first_step": one.found.first_step,
            "sigmas": first.sigmas or None,
            "awaited_share": first.awaited,
            "throttled_share": first.throttled,
            "node": one.node or None,
        }
        for name, value in more.items():
            if value is not None:
                numbers[name] = round(value, 4) if isinstance(value, float) else value
        return StepFinding(
            kind="straggler",
            text=one.found.explanation,
            text_zh=one.found.explanation_zh,
            step=step,
            at_s=at_s,
            numbers=numbers,
        )

    def _over(self, one: _Open, step: int | None, at_s: float) -> StepFinding:
        return StepFinding(
            kind="straggler-over",
            text=f"{who(one.found)}: no longer slower than the others",
            text_zh=f"{who_zh(one.found)} 不再比其他 rank 慢",
            step=step,
            at_s=at_s,
            numbers={"ranks": [float(rank) for rank in one.found.ranks]},
        )


class _Throttle:
    """Measures how long a CPU quota throttled each rank within the last seconds."""

    SPAN_S = 20.0
    KEPT = 30

    def __init__(self) -> None:
        self._seen: list[tuple[float, dict[int, float]]] = []

    def add(self, at_s: float, throttled: Mapping[int, float]) -> None:
        if throttled:
            self._seen.append((at_s, dict(throttled)))
            while len(self._seen) > 2 and (
                len(self._seen) > self.KEPT or self._seen[1][0] < at_s - self.SPAN_S
            ):
                del self._seen[0]

    def outstanding(self, share_min: float) -> dict[int, float]:
        """Returns the share of throttled time of the ranks with at least `share_min` and clearly more than
        most ranks.
        """
        if len(self._seen) < 2:
            return {}
        (from_s, before), (to_s, now) = self._seen[0], self._seen[-1]
        if to_s <= from_s:
            return {}
        shares = {
            rank: min(1.0, (total - before[rank]) / (to_s - from_s))
            for rank, total in now.items()
            if rank in before
        }
        usual = sorted(shares.values())[(len(shares) - 1) // 2] if len(shares) > 1 else 0.0
        return {rank: share for rank, share in shares.items() if share >= max(share_min, 2 * usual)}


def _is_awaited(one: Slow, most: float) -> bool:
    """Returns whether a rank is slow itself; while another is much slower, it only waits for that one."""
    return one.ratio is None or one.ratio - 1.0 >= AWAITED_PART * (most - 1.0)


def _key(together: Together) -> str:
    ranks = {slow.rank for slow in together.ranks}
    return f"node {together.node}" if len(ranks) > 1 else f"rank {min(ranks)}"


def _sane(times: Mapping[int, float]) -> Mapping[int, float]:
    return {rank: time_s for rank, time_s in times.items() if isfinite(time_s) and time_s >= 0}
