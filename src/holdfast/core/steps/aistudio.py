"""Reproduces the slowdown rule of Infinigence AIStudio: mean of five iterations against the run's fastest
five. Pure.

A smoothed mean is the arithmetic mean over a window of five iterations; windows follow each other without
overlap and begin after two warm-up iterations of the run. The baseline is the smallest smoothed mean of the
run so far. Ratio: smoothed mean / baseline - 1, rounded to two decimals; above 0.8 a line is written:

    Smoothed mean (iters 83-87: 9465.00 ms, baseline: 3101.00 ms), threshold ratio:2.05. Warning

The documents do not define more. The rest is an interpretation:

- A window is five *records* as they are printed. If the log prints every tenth iteration, it consists of five
  printed means, and the line names the first and last iteration printed.
- A window updates the baseline before it is judged, so the fastest one is its own baseline: ratio 0.
- A resumed run (the record's `run`, or a step below the one before) is a restart: two warm-up iterations again,
  then a new baseline, and the unfinished window is dropped.
- A change of batch size or sequence length drops the unfinished window and the baseline; no warm-up follows.
- A repeated iteration counts once. Missing iterations change nothing.
- The time is the printed one, since a reader of the log has no other.
"""

from holdfast.model.steps import StepRecord

WARMUP = 2
WINDOW = 5
RATIO_MAX = 0.8


class AistudioRule:
    """The slowdown rule applied to the records of one log, in order."""

    def __init__(self) -> None:
        self._run: int | None = None
        self._step: int | None = None
        self._shape: tuple[float | None, int | None] = (None, None)
        self._warmup = WARMUP
        self._baseline_ms: float | None = None
        self._window: list[tuple[int, float]] = []  # iteration, milliseconds

    def restart(self) -> None:
        """Starts warm-up and baseline again, because the training was restarted."""
        self._step = None
        self._shape = (None, None)
        self._warmup = WARMUP
        self._baseline_ms = None
        self._window = []

    def feed(self, record: StepRecord) -> str | None:
        """Returns the warning that the platform would print after this record, without its time stamp; None
        if it prints none.
        """
        time_s = record.printed_s if record.printed_s is not None else record.time_s
        if time_s is None or not 0 < time_s < float("inf"):
            return None
        if self._is_restart(record):
            self.restart()
        elif record.step is not None and record.step == self._step:
            return None
        self._run, self._step = record.run, record.step if record.step is not None else self._step
        self._follow_shape(record)
        if self._warmup:
            self._warmup -= 1
            return None
        number = record.number if record.number is not None else record.step or 0
        self._window.append((number, time_s * 1000))
        return self._judge() if len(self._window) == WINDOW else None

    def _is_restart(self, record: StepRecord) -> bool:
        if self._run is not None and record.run != self._run:
            return True
        return record.step is not None and self._step is not None and record.step < self._step

    def _follow_shape(self, record: StepRecord) -> None:
        batch, sequence = self._shape
        shape = (
            record.batch if record.batch is not None else batch,
            record.sequence if record.sequence is not None else sequence,
        )
        changed = any(old is not None and new != old for old, new in zip(self._shape, shape, strict=True))
        if changed:
            self._baseline_ms = None
            self._window = []
        self._shape = shape

    def _judge(self) -> str | None:
        mean_ms = sum(time_ms for _, time_ms in self._window) / WINDOW
        first, last = self._window[0][0], self._window[-1][0]
        self._window = []
        if self._baseline_ms is None or mean_ms < self._baseline_ms:
            self._baseline_ms = mean_ms
        ratio = round(mean_ms / self._baseline_ms - 1, 2)
        if ratio <= RATIO_MAX:
            return None
        return (
            f"Smoothed mean (iters {first}-{last}: {mean_ms:.2f} ms, baseline: {self._baseline_ms:.2f} ms), "
            f"threshold ratio:{ratio:.2f}. Warning"
        )
