"""Detects a step counter that stops while log lines continue.

Pure. A silent log is a matter of the hang detector.
"""

from holdfast.core.steps import wording
from holdfast.model.steps import StepFinding


class StandWatch:
    """Detects a stopped step counter from steps and lines, by the caller's clock; time stamps in the log are
    not used.
    """

    def __init__(self, stands_s: float, ratio: float, pause_ratio: float, lines: int) -> None:
        """Sets the limits; `StepSettings` describes them."""
        self._limits = (stands_s, ratio, pause_ratio, lines)
        self._line_s: float | None = None
        self._stepped_s: float | None = None
        self._gap_s = 0.0  # the longest between two steps
        self._fresh = False
        self._lines = 0
        self._reported = False

    def stepped(self) -> None:
        """Records that a step was logged; its time is that of the next line or tick."""
        self._fresh, self._reported = True, False

    def line_seen(self, at_s: float) -> None:
        """Records that a log line arrived."""
        self._line_s = at_s
        self._lines += 1
        self._notice(at_s)

    def may_stand(self, at_s: float) -> bool:
        """Returns whether `tick` might report that the training stands still; a fast test."""
        self._notice(at_s)
        stands_s, _, _, lines = self._limits
        return (
            not self._reported
            and self._stepped_s is not None
            and at_s - self._stepped_s > stands_s
            and self._lines >= lines
        )

    def tick(self, at_s: float, step: int, between_s: float, *, paused: bool) -> list[StepFinding]:
        """Returns a finding if the counter has stopped.

        `between_s`: usual time between records. `paused`: the log has announced other work, such as a
        checkpoint.
        """
        stepped, line = self._stepped_s, self._line_s
        if stepped is None or line is None or not self.may_stand(at_s):
            return []
        stands_s, ratio, pause_ratio, _ = self._limits
        limit = max(stands_s, ratio * between_s, pause_ratio * self._gap_s)
        # A checkpoint, an evaluation or a compilation may take long.
        limit *= 5 if paused else 1
        if at_s - stepped < limit or line - stepped < limit / 2:
            return []
        self._reported = True
        return [wording.stands(step, at_s - stepped, self._lines, at_s)]

    def _notice(self, at_s: float) -> None:
        if not self._fresh:
            return
        if self._stepped_s is not None:
            self._gap_s = max(self._gap_s, at_s - self._stepped_s)
        self._fresh, self._stepped_s, self._lines = False, at_s, 0
