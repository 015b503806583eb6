"""Detects losses that become NaN or infinite, spike, or diverge. Pure.

The rules are robust, because healthy losses fall fast at first, are noisy, and cross zero in reinforcement
learning: a log with losses at or below zero is checked for NaN and infinity only.
"""

from collections import deque
from math import inf, isfinite

from holdfast.model.steps import LossReport, LossSpike, StepFinding

HISTORY = 64  # last losses, with which a new one is compared
HISTORY_MIN = 30  # before that, the loss falls too fast for a comparison
SPIKE_SPREADS = 10.0  # minimum distance of a spike above the median, in robust standard deviations
SPIKE_RATIO = 1.5  # minimum ratio of a spike to the median, for very smooth losses
SPIKES_MAX = 100  # recorded
DIVERGED_RATIO = 1.5  # the median of the last RECENT losses, divided by the best such median
DIVERGED_RECORDS = 40  # minimum duration of a divergence, so that a spike with recovery is none
RECENT = 20
FINDINGS_MAX = 20  # spikes that are reported; a loss with more is noisy


class LossWatch:
    """A detector of bad losses (NaN, spikes), which gets the loss of each step in order."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._nan_at: int | None = None
        self._nan_seen = False
        self._is_bad = False
        self._crosses_zero = False
        self._usual: deque[float] = deque(maxlen=HISTORY)
        self._ordered: list[float] = []
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._best = inf
        self._above = 0
        self._above_since: int | None = None
        self._diverged_at: int | None = None
        self._diverged = False
        self._spikes: list[LossSpike] = []
        self._in_spike = False
        self._count = 0

    def restart(self) -> None:
        """Starts another run of the training: the usual loss is learned again; findings stay."""
        self._usual.clear()
        self._recent.clear()
        self._best, self._above, self._count = inf, 0, 0
        self._is_bad = self._in_spike = self._diverged = False

    def report(self) -> LossReport:
        """Returns the last loss, and the bad losses found so far (NaN, infinite, spikes)."""
        last = self._last if self._last is not None and isfinite(self._last) else None
        return LossReport(
            last=last, nan_at=self._nan_at, spikes=tuple(self._spikes), diverged_at=self._diverged_at
        )

    def feed(self, step: int | None, loss: float, at_s: float | None) -> list[StepFinding]:
        """Adds the loss of a step, and returns new findings."""
        self._last = loss
        if not isfinite(loss):
            return self._bad(step, loss, at_s)
        self._is_bad = False
        self._count += 1
        if loss <= 0:
            self._crosses_zero = True
        if self._crosses_zero:
            return []
        found = [*self._spike(step, loss, at_s), *self._divergence(step, loss, at_s)]
        self._usual.append(loss)
        self._recent.append(loss)
        return found

    def _bad(self, step: int | None, loss: float, at_s: float | None) -> list[StepFinding]:
        if not self._nan_seen:
            self._nan_seen, self._nan_at = True, step
        if self._is_bad:
            return []
        self._is_bad = True
        name = "NaN" if loss != loss else "infinite"
        where = f" at step {step}" if step is not None else ""
        return [
            StepFinding(
                kind="loss-nan",
                text=f"The loss is {name}{where}",
                text_zh=f"{f'第 {step} 步的' if step is not None else ''}损失为 {'NaN' if loss != loss else '无穷大'}",
                step=step,
                at_s=at_s,
            )
        ]

    def _spike(self, step: int | None, loss: float, at_s: float | None) -> list[StepFinding]:
        if len(self._usual) < HISTORY_MIN:
            return []
        # Most losses are below the last highest: only those that are not are worth the sorting.
        if (
            loss <= SPIKE_RATIO * min(self._usual[-1], self._usual[-2], self._usual[-3])
            and not self._in_spike
        ):
            return []
        ordered = sorted(self._usual)
        middle = ordered[len(ordered) // 2]
        spread = 1.4826 * sorted(abs(value - middle) for value in ordered)[len(ordered) // 2]
        is_spike = (
            loss > middle * SPIKE_RATIO and loss > middle + SPIKE_SPREADS * spread and loss > ordered[-1]
        )
        if not is_spike:
            self._in_spike = loss > middle * SPIKE_RATIO
            return []
        was, self._in_spike = self._in_spike, True
        if was or len(self._spikes) >= SPIKES_MAX:
            return []
        self._spikes.append(LossSpike(step=step, loss=loss, before=middle))
        if len(self._spikes) > FINDINGS_MAX:
            return []
        where = f" at step {step}" if step is not None else ""
        return [
            StepFinding(
                kind="loss-spike",
                text=f"The loss jumped{where}: {loss:.4g}, before {middle:.4g}",
                text_zh=f"损失{f'在第 {step} 步' if step is not None else ''}突增：{loss:.4g}，此前为 {middle:.4g}",
                step=step,
                at_s=at_s,
                numbers={"loss": loss, "before": middle, "spread": spread},
            )
        ]

    def _divergence(self, step: int | None, loss: float, at_s: float | None) -> list[StepFinding]:
        if self._count % 5 or len(self._recent) < RECENT:
            return []
        now = sorted(self._recent)[RECENT // 2]
        if self._count >= 2 * RECENT:
            self._best = min(self._best, now)
        if not now > DIVERGED_RATIO * self._best:
            self._above, self._above_since, self._diverged = 0, None, False
            return []
        self._above += 5
        if self._above_since is None:
            self._above_since = step
        if self._above < DIVERGED_RECORDS or self._diverged:
            return []
        self._diverged = True
        if self._diverged_at is None:
            self._diverged_at = self._above_since
        since = f" since step {self._above_since}" if self._above_since is not None else ""
        return [
            StepFinding(
                kind="loss-diverged",
                text=f"The loss diverges{since}: about {now:.4g}, at best it was {self._best:.4g}",
                text_zh=f"损失发散{f'（自第 {self._above_since} 步起）' if since else ''}：约 {now:.4g}，最好时为 {self._best:.4g}",
                step=step,
                at_s=at_s,
                numbers={"loss": now, "best": self._best},
            )
        ]
