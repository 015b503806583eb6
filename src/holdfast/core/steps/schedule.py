"""Tells a planned growth of a step's work from a slowdown: larger batches, sequences, windows or images. Pure.

The evidence: a line that announces the change, settings that plan one, or the first record of an epoch. Where the log
states sizes or tokens per second, `watch` needs none of these.
"""

from collections.abc import Sequence

from holdfast.core.steps.slowdown import Change

EPOCH_RATIO = 1.3  # minimum change at the first record of an epoch
EPOCH_RECORDS = 10  # minimum records of an epoch for a schedule
STAGE_NEAR = 2  # maximum records between the line that announces a change and the change
STAGE_RECORDS = 10  # lines that come more often announce nothing
STAGES_MAX = 16  # of a planned schedule
SHARP = 0.7  # a planned change is there at once: its first record has this part of the rise
LEVELS = 0.1  # part of the records on either side that may lie on the wrong side of the middle


class Plan:
    """What a log contains about the growth of a step's work."""

    def __init__(self) -> None:
        self.is_announced = False  # by settings
        self._stage_at: int | None = None  # record before which the last line announced a change
        self._believed: int | None = None
        self._used = 0
        self._epoch_at = 0  # record at which the epoch began
        self._epoch_before = 0  # and the one before

    def stage(self, record: int) -> None:
        """Notes a line that announces a change, before that record."""
        if self._stage_at is None or record - self._stage_at >= STAGE_RECORDS:
            self._believed = record
        self._stage_at = record

    def epoch(self, record: int) -> None:
        """Notes that an epoch begins with that record."""
        self._epoch_before, self._epoch_at = self._epoch_at, record

    def explains(self, change: Change, values: Sequence[float], *, has_epoch: bool, has_batch: bool) -> bool:
        """Returns whether the change is planned. `values`: step times of the newest records; the last is number
        `change.at`. `has_batch`: the log states the batch size of each step, which then needs no plan.
        """
        if self._believed is not None and abs(change.since - self._believed) <= STAGE_NEAR:
            return True
        if has_batch:
            return False
        if has_epoch and abs(change.since - self._epoch_at) <= 1:
            if self._epoch_at - self._epoch_before >= EPOCH_RECORDS:
                return change.after > EPOCH_RATIO * change.before
        if not self.is_announced or self._used >= STAGES_MAX:
            return False
        if change.kind != "creeping" and not is_sharp(change, values):
            return False
        self._used += 1
        return True


def is_sharp(change: Change, values: Sequence[float]) -> bool:
    """Returns whether the level rises at once and the records on either side are apart."""
    count = change.at - change.since + 1
    old, new = values[:-count], values[-count:]
    if len(old) < STAGE_RECORDS or not new:
        return False
    rise = change.after - change.before
    middle = change.before + rise / 2
    first = sorted(new[:3])[1] if len(new) > 2 else new[0]
    below, above = sum(value > middle for value in old), sum(value < middle for value in new)
    return first >= change.before + SHARP * rise and below <= LEVELS * len(old) and above <= LEVELS * len(new)
