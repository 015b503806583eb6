"""Collects the step records that ranks log, until all ranks have logged a step. Pure, bounded memory."""

from holdfast.core.stragglers.watch import StragglerWatch
from holdfast.model.steps import RankStep

WAITING_MAX = 64  # steps that some rank has not logged yet


class LoggedSteps:
    """The step records of one attempt, by step and rank.

    A later record of the same step and rank replaces an earlier one.
    """

    def __init__(self) -> None:
        self._ranks: set[int] = set()
        self._steps: dict[int, dict[int, RankStep]] = {}

    def add(self, one: RankStep, watch: StragglerWatch) -> None:
        """Adds a record.

        Passes a step to `watch` once all ranks have logged it or too many steps are waiting.
        """
        self._ranks.add(one.rank)
        step = self._steps.setdefault(one.step, {})
        step[one.rank] = one
        if len(step) == len(self._ranks) > 1:
            self._take(one.step, watch)
        elif len(self._steps) > WAITING_MAX:
            self._take(next(iter(self._steps)), watch)

    def _take(self, step: int, watch: StragglerWatch) -> None:
        records = self._steps.pop(step)
        times = {rank: one.time_s for rank, one in records.items()}
        watch.step_times(step, times)
        waits = {rank: one.data_s for rank, one in records.items() if one.data_s is not None}
        if len(waits) == len(times):  # for its data a rank waits alone, and the others then for it
            watch.own_work(step, waits)
