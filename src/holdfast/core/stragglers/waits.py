"""Finds ranks that hardly ever wait while the others do, from samples that nodes take at different moments.

Pure.

Counters read half a second apart do not show which rank came last. But a rank waits in its collectives while
it is ahead of the slowest one, and the slowest never waits: its share of waiting samples shows that, whenever
the samples were taken. Without data on collectives, sleeping counts as waiting.

A sequential test for each rank: does it wait as often as its peers do, or less than a quarter as often?
"""

from collections.abc import Iterable, Mapping, Sequence
from math import log

from holdfast.core.slices import Sliced, pieces, whole
from holdfast.core.stragglers.limits import StragglerSettings
from holdfast.core.stragglers.looks import SUSPECT, Teams
from holdfast.model.samples import GONE_STATES, RankSample

LESS = 0.25  # a straggler's share of waiting samples is at most this part of its peers' share
CLEARLY, STILL = (
    0.6,
    0.3,
)  # less than its peers, as a share of theirs: when it is named, and as long as it stays so
WAITS_MIN = 0.15  # if peers wait less than this, no rank costs them much
SHARE_MIN, SHARE_MAX = 0.02, 0.9
RECENT_LOOKS = 40
RECENT = 1 / RECENT_LOOKS  # weight of a new sample in the shares
SETTLED = 10  # samples before the shares are used
CARE = 1.5  # factor on the limit: samples a second apart are not quite independent
SAMPLE = 255  # ranks from which the peers' share is computed if there are more
NO_STEPS = 0.2  # weight of a sample that may show the same step as the previous one


class Waits:
    """Detects slow ranks from samples that nodes take at different moments.

    Has the same interface as `Looks`.
    """

    def __init__(self, settings: StragglerSettings) -> None:
        self.sums: dict[int, float] = {}
        self.since: dict[int, float] = {}  # when the sum last rose from nothing
        self.counted = 0
        self._settings = settings
        self._shares: dict[int, float] = {}  # of the looks at which it waited
        self._looks: dict[int, int] = {}
        self._places: dict[int, int] = {}  # how far it was in its collectives
        self._moves = NO_STEPS  # share of looks that saw a rank further than the look before did
        self._step: int | None = None
        self._of = 2
        self._usual = 0.0
        self._named: set[int] = set()

    def adding(self, samples: Sequence[RankSample], teams: Teams) -> Sliced[None]:
        """Adds new samples of some or all ranks; a generator that yields after each piece of the work."""
        living = [sample for sample in samples if sample.state not in GONE_STATES]
        if not living:
            return
        self.counted += 1
        self._pace(living)
        weight = self._moves
        peers = self._usual
        low = min(SHARE_MAX, max(SHARE_MIN, peers))
        busy = weight * log((1.0 - LESS * low) / (1.0 - low)) if peers >= WAITS_MIN else 0.0
        waits = weight * log(LESS)
        most = 1.2 * self._limit
        for part in pieces(living):
            for sample in part:
                self._count(sample, waits, busy, most)
            yield
        self._of = max(2, len(self._shares))
        self._usual = self._peers_share()

    add = whole(adding)

    def _count(self, sample: RankSample, waits: float, busy: float, most: float) -> None:
        rank = sample.rank
        is_waiting = self._waits(sample)
        looks = self._looks[rank] = self._looks.get(rank, 0) + 1
        share = self._shares.get(rank, 0.0)
        self._shares[rank] = share + (RECENT if looks >= RECENT_LOOKS else 1.0 / looks) * (is_waiting - share)
        before = self.sums.get(rank, 0.0)
        if is_waiting:
            self.sums[rank] = max(0.0, before + waits) if before else 0.0
        elif looks > SETTLED and busy:
            if before == 0.0:
                self.since[rank] = sample.at_s
            # Bounded, so that the recovery of a rank is detected soon.
            self.sums[rank] = min(before + busy, most)

    def suspects(self) -> tuple[int, ...]:
        """Returns the ranks that may be slower than their peers, because others wait for them."""
        return tuple(rank for rank, sum_ in self.sums.items() if sum_ >= SUSPECT)

    def sure(self, halved: Iterable[int] = ()) -> tuple[int, ...]:
        """Returns the ranks that samples alone prove to be slow.

        For ranks in `halved`, for which there is other evidence, half as many samples suffice. Empty if the slow
        ranks are more than half of all: then it is the others that deviate.
        """
        limit = self._limit
        easy = set(halved)
        for rank, sum_ in self.sums.items():
            if sum_ >= (limit / 2 if rank in easy else limit) and self.share(rank) > CLEARLY:
                self._named.add(rank)
        self._named = {rank for rank in self._named if self.sums.get(rank) and self.share(rank) > STILL}
        return tuple(sorted(self._named)) if 2 * len(self._named) <= self._of else ()

    @property
    def _limit(self) -> float:
        return CARE * log(self._of * 3600 * self._settings.awaited_hours / self._settings.false_flags)

    def share(self, rank: int) -> float:
        """Returns how much less than its peers this rank waited recently: 1 if it never waited, 0 if it
        waited as much.
        """
        if self._usual < WAITS_MIN or self._looks.get(rank, 0) < SETTLED:
            return 0.0
        return max(0.0, 1.0 - self._shares.get(rank, self._usual) / self._usual)

    def is_waiting(self, rank: int) -> bool:
        """Returns whether this rank waits for other ranks in collectives as long as its peers do."""
        if self.counted < 2 * SETTLED or self._usual < WAITS_MIN or rank not in self._shares:
            return False
        return self._shares[rank] > 0.5 * self._usual and bool(self.suspects())

    def _waits(self, sample: RankSample) -> bool:
        """Returns whether the rank waits in this sample.

        A rank that runs and does not answer is not waiting.
        """
        if sample.groups is not None:
            for one in sample.groups:
                if one.enqueued > one.completed >= 0:
                    return True
            return False
        return sample.state == "S"

    def _pace(self, living: Sequence[RankSample]) -> None:
        """Lowers the weight of samples that may show the same step: together they count as one."""
        compared = moved = 0
        for sample in living[: SAMPLE + 1]:
            if sample.groups is None:
                continue
            place = sum(one.enqueued for one in sample.groups)
            before = self._places.get(sample.rank)
            self._places[sample.rank] = place
            if before is not None:
                compared += 1
                moved += place != before
        if compared:
            now = moved / compared
        else:
            step = max((one.step for one in living if one.step is not None), default=None)
            now = NO_STEPS if step is None or self._step is None else float(step > self._step)
            self._step = step if step is not None else self._step
        self._moves += max(RECENT, 1.0 / self.counted) * (now - self._moves)

    def _peers_share(self) -> float:
        shares: Mapping[int, float] = self._shares
        every = -(-len(shares) // SAMPLE)
        known = sorted(list(shares.values())[::every])
        return known[
            len(known) // 2
        ]  # the upper one of two: of two nodes one may be slow, with half of the ranks
