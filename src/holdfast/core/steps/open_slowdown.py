"""Accumulates the duration and cost of a slowdown that has not ended yet. Pure."""

from holdfast.core.steps.slowdown import Change
from holdfast.model.steps import (
    SlowdownKind,
)


class OpenSlowdown:
    """A slowdown that has not ended yet, with sums of its time and cost."""

    __slots__ = (
        "after",
        "at_s",
        "before",
        "first",
        "found",
        "kind",
        "last",
        "median",
        "open",
        "restarted",
        "run",
        "steps",
        "sure",
        "what",
    )

    def __init__(
        self, change: Change, first: int | None, at_s: float | None, found: int | None, run: int
    ) -> None:
        self.before, self.after = change.before, change.after
        self.first, self.at_s, self.found, self.run = first, at_s, found, run
        self.last: int | None = None
        self.kind: SlowdownKind = "ramp" if change.kind == "creeping" else "lasting"
        self.open = True
        self.restarted = False
        self.median = change.before  # of a record before, as people would say it
        self.steps = 0
        self.sure = change.sure
        self.what = "everyone"
