"""Follows the steps of one log: makes counters continuous, separates runs, and computes real step times.

Pure.

Lines of a rank are consecutive; lines without a rank have one writer, as far as known. Times are the printed
ones if they are times of a step, else differences: of elapsed times, of means since the start, of time
stamps. Differences of whole seconds are computed over enough steps for a small rounding error.
"""

import math
from collections.abc import Iterable, Mapping
from itertools import repeat
from operator import sub

from msgspec import Struct, field

from holdfast.model.step_forms import LIBRARY, StepForm
from holdfast.model.steps import FirstLast, StepRecord
from holdfast.parsers.steps.columns import Columns
from holdfast.parsers.steps.reading import Found
from holdfast.parsers.steps.values import SECONDS_MAX

AGENT_S_MIN = 5.0  # minimum difference of arrival times, which are only known to the interval of reads
COARSE_S_MIN = 20.0  # from here on, a difference of times in whole seconds has an error of at most 5 %
ULP_SHARE_MAX = 0.05  # maximum rounding error as a share of a difference of means
FRESH_MAX = 200  # a counter whose first number is at most this has counted from the start
LATE_PRINTS = 3  # a line without rank may be printed this many prints after a later one
TRACKS_MAX = 20_000
NOTES_MAX = 8
BATCH_RATIO_MAX = 1.6


class Anchor(Struct, gc=False):
    """The start of the next time difference: a step and its time."""

    step: int | None = None
    at: float = 0.0

    def advance(self, step: int, at: float, *, gone_s_min: float) -> tuple[float, int] | None:
        """Returns the mean time of the steps since the anchor, and their number; None if too little time has passed.

        `gone_s_min`: elapsed seconds from which the rounding error is small.
        """
        if self.step is None or step <= self.step or at < self.at:
            if self.step is None or step != self.step:
                self.step, self.at = step, at
            return None
        gone_s, steps = at - self.at, step - self.step
        if gone_s < gone_s_min:
            return None
        self.step, self.at = step, at
        return gone_s / steps, steps


class Track(Struct, gc=False):
    """The state of one writer's run. `number`: the highest step number in this epoch, as printed."""

    run: int
    number: int | None = None
    first: int = 0
    offset: int = 0
    epoch: int | None = None
    total: int | None = None
    interval: int | None = None
    count: int = 0
    last: tuple[float | None, float | None] = (None, None)  # printed time and loss of `number`
    consumed: tuple[int, float] | None = None  # a step, and what was consumed until then
    elapsed: Anchor = field(default_factory=Anchor)
    stamps: Anchor = field(default_factory=Anchor)
    agent: Anchor = field(default_factory=Anchor)
    mean: Anchor = field(default_factory=Anchor)


class Timeline:
    """The steps of one log in one form. `settings`: batch and sequence size, from lines that contain them."""

    def __init__(self, form: StepForm, settings: Mapping[str, float], run: int = 0) -> None:
        self.form = form
        self.run = run
        self.iteration_lines = 0
        self.first = FirstLast()
        self.last = FirstLast()
        self._has_first = False
        self._settings = settings
        self._tracks: dict[int | None, Track] = {}
        self._counted: tuple[int, int] = (run, -1)
        self._has_batch = True  # a batch size that fits the throughput, as far as is known
        self._first_window: tuple[int, float] | None = None
        self._loss: float | None = None
        self._notes: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """Returns the irregularities in the log's times, as sentences for users."""
        return tuple(self._notes)

    def carry_loss(self, loss: float) -> None:
        """Keeps a loss printed on its own line for the next record without one."""
        self._loss = loss

    def add(
        self, found: Found, at_s: float | None, rank: int | None, stamp: tuple[float, bool] | None
    ) -> StepRecord | None:
        """Returns the step record of one line; None if the line repeats a step.

        `stamp`: the line's own time stamp, and whether it is precise.
        """
        printed_s = self._printed_s(found)
        if found.number is None:
            return self._without_step(found, printed_s, at_s, rank, stamp)
        track = self._tracks.get(rank)
        if track is None:
            if len(self._tracks) >= TRACKS_MAX:
                self._tracks.clear()
            track = self._tracks[rank] = Track(self.run)
        before = track.offset + (track.number or 0) if track.number is not None else None
        order = self._place(track, found, rank)
        step = track.offset + found.number
        if order == "again":
            self._saw(found.number, printed_s)
            values = (found.time_s, found.loss)
            is_other = values[1] != track.last[1] if values[1] is not None else values != track.last
            if rank is not None or self.form.is_bar or not is_other:
                return None  # ranks with an equal loss repeat a step, even if their times differ
            track.last = values
            self.iteration_lines += 1
            self._note("each step is reported several times, by writers without a rank")
            return self._record(found, step, track, printed_s, 1, printed_s, at_s, rank, stamp)
        time_s: float | None = printed_s
        steps = 1
        if order == "ahead":
            track.last = (found.time_s, found.loss)
            gone = step - before if before is not None and track.count > 1 else None
            if printed_s is None and self.form.time == "window" and found.time_s is not None:
                printed_s = self._of_window(found.number, found.time_s, gone)
            time_s, steps = self._time(found, track, step, gone, printed_s, at_s, stamp)
            if found.time_s is None:
                printed_s = self._printed_s(found)  # by now it may be known that the batch size is none
        self._count(track.run, step, rank, order)
        self._saw(found.number, printed_s)
        return self._record(found, step, track, time_s, steps, printed_s, at_s, rank, stamp)

    def extend(self, read: Columns, at_s: float | None, rank: int | None) -> list[StepRecord] | None:
        """Returns the step records of many plain lines at once; None if one of them does not simply follow the one
        before.
        """
        form, track = self.form, self._tracks.get(rank)
        if form.time not in ("step", "mean") or form.counts != "steps" or form.per_epoch or form.is_bar:
            return None
        numbers, times = read.numbers, read.times
        if track is None or track.number is None or track.offset or self._loss is not None:
            return None
        gaps = list(map(sub, numbers, (track.number, *numbers)))
        if (
            min(gaps) <= 0
            or self._counted >= (track.run, numbers[0])
            or not 0.0 <= min(times) <= sum(times) < math.inf
        ):
            return None
        if max(times) > SECONDS_MAX:
            return None
        steps: Iterable[int] = gaps if form.time == "mean" else repeat(1)
        settings = self._settings
        stamps: Iterable[float | None] = read.stamps if read.stamps is not None else repeat(at_s)
        nothing = repeat(None)
        records = list(
            map(
                StepRecord,
                numbers,
                times,
                times,
                steps,
                stamps,
                repeat(track.run),
                numbers,
                nothing,
                read.totals if read.totals is not None else nothing,
                read.losses if read.losses is not None else nothing,
                read.rates if read.rates is not None else nothing,
                read.batches if read.batches is not None else repeat(settings.get("batch")),
                read.sequences if read.sequences is not None else repeat(_whole(settings.get("sequence"))),
                read.data if read.data is not None else nothing,
                repeat(rank),
            )
        )
        track.number, track.interval, track.count = numbers[-1], gaps[-1], track.count + len(numbers)
        track.total = read.totals[-1] if read.totals is not None else None
        track.last = (times[-1], read.losses[-1] if read.losses is not None else None)
        self.iteration_lines += len(numbers)
        self._counted = (track.run, numbers[-1])
        self.last = FirstLast(step=numbers[-1], step_time_s=times[-1])
        return records

    def _place(self, track: Track, found: Found, rank: int | None) -> str:
        """Returns where this number is: ahead of all others, the last one again, or late.

        Updates runs and epochs.
        """
        number, epoch = found.number or 0, found.epoch
        if track.number is None:
            self._begin(track, found)
        elif epoch is not None and track.epoch is not None and epoch > track.epoch:
            if self.form.per_epoch or number <= track.number:
                track.offset += self._span(track, number, epoch - track.epoch)
            elif track.interval is None:
                track.interval = number - track.number
        elif epoch is not None and track.epoch is not None and epoch < track.epoch:
            self._new_run(track, found)
        elif number == track.number:
            return "again"
        elif number > track.number:
            track.interval = number - track.number
        elif self._is_next_epoch(track, number):
            track.offset += track.total or 0
        elif rank is None and self._is_late(track, number):
            return "late"
        else:
            self._new_run(track, found)
        track.number, track.count = number, track.count + 1
        track.epoch = epoch if epoch is not None else track.epoch
        track.total = found.total
        return "ahead"

    def _begin(self, track: Track, found: Found) -> None:
        track.first, track.count = found.number or 0, 0
        track.offset = 0
        if self.form.per_epoch and found.epoch and found.total:
            track.offset = (found.epoch - 1) * found.total

    def _new_run(self, track: Track, found: Found) -> None:
        track.run += 1
        self.run = max(self.run, track.run)
        track.epoch, track.interval = None, None
        track.elapsed, track.stamps, track.agent, track.mean = Anchor(), Anchor(), Anchor(), Anchor()
        self._begin(track, found)

    def _span(self, track: Track, number: int, epochs: int) -> int:
        """Returns how many steps the completed epochs had."""
        if track.total is not None:
            return track.total * epochs
        best, interval = track.number or 0, track.interval or 1
        return best + (interval - number if number < interval else 0)

    def _is_next_epoch(self, track: Track, number: int) -> bool:
        """Returns whether a full counter has restarted, without an epoch in the line."""
        if track.total is None or not (self.form.per_epoch or self.form.is_bar):
            return False
        return (track.number or 0) + (track.interval or 1) >= track.total and number < track.total / 2

    def _is_late(self, track: Track, number: int) -> bool:
        reach = LATE_PRINTS * (track.interval or 1)
        return track.count >= LATE_PRINTS and number > track.first and number >= (track.number or 0) - reach

    def _printed_s(self, found: Found) -> float | None:
        """Returns the time of one step as printed in the line."""
        if found.time_s is not None:
            if self.form.time != "window":
                return found.time_s
            if found.window:
                return found.time_s / found.window
        rate, kind = found.rate, found.rate_kind
        if rate is None or not 0.0 < rate < math.inf:
            return None
        if kind == "steps/s":
            return 1.0 / rate
        if kind == "s/step":
            return rate * found.rate_unit_s
        if self.form.trust < LIBRARY:
            return None  # with a common word it may be the rate of one rank or of all
        batch = self._batch(found)
        if batch is None or kind == "none" or not self._has_batch:
            return None
        if kind == "samples/s":
            return batch / rate if self.form.batch_counts == "samples" else None
        if self.form.batch_counts == "tokens":
            return batch / rate
        sequence = found.sequence or self._settings.get("sequence")
        return batch * sequence / rate if sequence else None

    def _check_batch(self, stamped_s: float, printed_s: float, kind: str) -> None:
        """Compares the time computed from a rate of samples with time stamps: the size of one rank's batch
        gives a wrong one.
        """
        if (
            kind in ("samples/s", "tokens/s")
            and stamped_s > 0.0
            and not 1 / BATCH_RATIO_MAX < printed_s / stamped_s < BATCH_RATIO_MAX
        ):
            self._has_batch = False
            self.first = FirstLast(step=self.first.step)
            self._note(
                "the batch size in the log does not fit its throughput and time stamps; times are from the stamps"
            )

    def _note(self, text: str) -> None:
        if text not in self._notes and len(self._notes) < NOTES_MAX:
            self._notes.append(text)

    def _of_window(self, number: int, time_s: float, gone: int | None) -> float | None:
        """Returns the time of one step, from a line with the time of all steps since the previous line."""
        if gone is None:
            self._first_window = (number, time_s)
            return None
        if (
            self._first_window is not None and self._first_window[0] == gone
        ):  # as many as ever: from the start
            self.first = FirstLast(step=number - gone, step_time_s=self._first_window[1] / gone)
        self._first_window = None
        return time_s / gone

    def _batch(self, found: Found) -> float | None:
        batch = found.batch if found.batch is not None else self._settings.get("batch")
        return batch if batch is not None and 0.0 < batch < math.inf else None

    def _time(
        self,
        found: Found,
        track: Track,
        step: int,
        gone: int | None,
        printed_s: float | None,
        at_s: float | None,
        stamp: tuple[float, bool] | None,
    ) -> tuple[float | None, int]:
        """Returns the real time of a step, and the number of steps of which it is the mean."""
        step, gone, is_countable = self._in_steps(found, step, gone)
        by_stamp = (
            track.stamps.advance(step, stamp[0], gone_s_min=_coarse(stamp[1]))
            if stamp and is_countable
            else None
        )
        if by_stamp is not None and found.time_s is None and printed_s is not None:
            self._check_batch(by_stamp[0], printed_s, found.rate_kind)
            printed_s = self._printed_s(found)
        by_agent = (
            track.agent.advance(step, at_s, gone_s_min=AGENT_S_MIN)
            if at_s is not None and is_countable
            else None
        )
        meaning = self.form.time
        if meaning == "step" and printed_s is not None:
            return printed_s, 1
        steps = gone or (step if 0 < step <= FRESH_MAX else 1)
        if meaning == "mean" and printed_s is not None:
            return printed_s, steps
        if meaning == "window" and found.time_s is not None:
            steps = found.window or gone or 1
            return (found.time_s / steps if found.window or gone else None), steps
        if found.elapsed_s is not None and is_countable:
            return track.elapsed.advance(step, found.elapsed_s, gone_s_min=_coarse(found.is_fine)) or (
                None,
                gone or 1,
            )
        if meaning == "run-mean" and found.time_s is not None and is_countable:
            return self._from_means(found, track, found.number or 0) or (None, gone or 1)
        if meaning != "smoothed" and printed_s is not None:
            return printed_s, steps
        return by_stamp or ((None, gone or 1) if stamp else by_agent) or (None, gone or 1)

    def _in_steps(self, found: Found, step: int, gone: int | None) -> tuple[int, int | None, bool]:
        """Returns the counter and its increase in steps, and whether these are known."""
        if self.form.counts == "steps":
            return step, gone, True
        batch = self._batch(found)
        if batch is None:
            return step, None, False
        return int(step // batch), (int(gone // batch) or None if gone else None), True

    def _from_means(self, found: Found, track: Track, step: int) -> tuple[float, int] | None:
        """Returns the time of a step from the mean since the start: mean times steps is an elapsed time, with
        a growing error.
        """
        anchor = track.mean
        time_s = found.time_s or 0.0
        total_s = time_s * step
        if anchor.step is not None and step > anchor.step and total_s > anchor.at:
            gone_s = total_s - anchor.at
            if found.ulp_s * (step + anchor.step) / 2 > ULP_SHARE_MAX * gone_s:
                return None
        return anchor.advance(step, total_s, gone_s_min=0.0)

    def _without_step(
        self,
        found: Found,
        printed_s: float | None,
        at_s: float | None,
        rank: int | None,
        stamp: tuple[float, bool] | None,
    ) -> StepRecord:
        self.iteration_lines += 1
        self._saw(None, printed_s)
        track = Track(self.run)
        return self._record(found, None, track, printed_s, 1, printed_s, at_s, rank, stamp)

    def _record(
        self,
        found: Found,
        step: int | None,
        track: Track,
        time_s: float | None,
        steps: int,
        printed_s: float | None,
        at_s: float | None,
        rank: int | None,
        stamp: tuple[float, bool] | None,
    ) -> StepRecord:
        loss = found.loss
        if loss is None and self._loss is not None:
            loss, self._loss = self._loss, None
        if self.form.counts == "samples" and step is not None:
            step = self._in_steps(found, step, None)[0]
        return StepRecord(
            step,
            time_s,
            printed_s,
            max(1, steps),
            stamp[0] if stamp else at_s,
            track.run,
            found.number,
            found.epoch,
            found.total if track.offset == 0 and not self.form.per_epoch else None,
            loss,
            self._rate(found, track, step, time_s),
            found.batch if found.batch is not None else self._settings.get("batch"),
            found.sequence if found.sequence is not None else _whole(self._settings.get("sequence")),
            found.data_s,
            rank,
        )

    def _rate(self, found: Found, track: Track, step: int | None, time_s: float | None) -> float | None:
        """Returns the printed rate, else that of what was consumed since the last line that says it."""
        if found.rate is not None or found.consumed is None or step is None:
            return found.rate
        before, track.consumed = track.consumed, (step, found.consumed)
        if before is None or not time_s or step <= before[0] or found.consumed <= before[1]:
            return None
        return (found.consumed - before[1]) / (step - before[0]) / time_s

    def _count(self, run: int, step: int, rank: int | None, order: str) -> None:
        """Counts a step once, whichever rank prints it; of lines without a rank, each different
        one counts.
        """
        if (run, step) > self._counted:
            self._counted = (run, step)
            self.iteration_lines += 1
        elif order == "late" and rank is None:
            self.iteration_lines += 1

    def _saw(self, number: int | None, printed_s: float | None) -> None:
        here = FirstLast(step=number, step_time_s=printed_s)
        if not self._has_first:
            self.first, self._has_first = here, True
        self.last = here


def _coarse(is_fine: bool) -> float:
    return 0.0 if is_fine else COARSE_S_MIN


def _whole(value: float | None) -> int | None:
    return int(value) if value else None
