"""Detects a step counter that stops while log lines continue. Pure; silent logs belong to the hang detector."""

from holdfast.core.steps import wording
from holdfast.model.steps import StepFinding


class StandWatch:
    """Takes each step and line with the caller's clock; timestamps in the log are not used."""

    def __init__(self, stands_s: float, ratio: float, pause_ratio: float, lines: int) -> None:
        """For the limits, see `StepSettings`."""
        self._limits = (stands_s, ratio, pause_ratio, lines)
        self._line_s: float | None = None
        self._stepped_s: float | None = None
        self._gap_s = 0.0  # the longest between two steps
        self._fresh = False
        self._lines = 0
        self._told = False

    def stepped(self) -> None:
        """Records a step; its time is that of the next line or tick."""
        self._fresh, self._told = True, False

    def line_seen(self, at_s: float) -> None:
        self._line_s = at_s
        self._lines += 1
        self._notice(at_s)

    def may_stand(self, at_s: float) -> bool:
        """A cheap pre-check: True if `tick` is worth calling."""
        self._notice(at_s)
        stands_s, _, _, lines = self._limits
        return (
            not self._told
            and self._stepped_s is not None
            and at_s - self._stepped_s > stands_s
            and self._lines >= lines
        )

    def tick(self, at_s: float, step: int, between_s: float, *, paused: bool) -> list[StepFinding]:
        """Reports a stopped counter. `between_s`: usual time between records. `paused`: the log announced other
        work.
        """
        stepped, line = self._stepped_s, self._line_s
        if stepped is None or line is None or not self.may_stand(at_s):
            return []
        stands_s, ratio, pause_ratio, _ = self._limits
        limit = max(stands_s, ratio * between_s, pause_ratio * self._gap_s)
        # A checkpoint, an evaluation or a compilation takes its time.
        limit *= 5 if paused else 1
        if at_s - stepped < limit or line - stepped < limit / 2:
            return []
        self._told = True
        return [wording.stands(step, at_s - stepped, self._lines, at_s)]

    def _notice(self, at_s: float) -> None:
        if not self._fresh:
            return
        if self._stepped_s is not None:
            self._gap_s = max(self._gap_s, at_s - self._stepped_s)
        self._fresh, self._stepped_s, self._lines = False, at_s, 0
