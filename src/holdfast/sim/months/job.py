"""Simulates the training of one large job between faults: progress, checkpoints, slow periods."""

from holdfast.sim.months.plan import Contender

STEP_S = 1.0  # of the virtual training


class Training:
    """The simulated training of one large job.

    `useful_s`: time spent on steps that count; `saved_s`: the part of it that the last checkpoint contains.
    """

    def __init__(self, contender: Contender, interval_s: float) -> None:
        self.saved_s = 0.0
        self.interval_s = interval_s
        self.save_s = contender.save_s
        self.checkpointing_s = self.slow_s = 0.0  # wall clock, of all attempts
        self._first_s: float | None = None
        self._pause_s = 0.0  # of this attempt, in slow stretches
        self._stood_s: float | None = None

    @property
    def moves(self) -> bool:
        return self._first_s is not None and self._stood_s is None

    def begin(self, at_s: float) -> None:
        """Starts to count the steps of an attempt from `at_s` on."""
        self._first_s, self._stood_s, self._pause_s = at_s, None, 0.0

    def stand(self, at_s: float) -> None:
        """Stops counting steps at `at_s`; the attempt still exists."""
        if self._first_s is not None and self._stood_s is None:
            self._stood_s = at_s

    def end(self, at_s: float) -> None:
        """Ends the attempt: steps that were not saved in a checkpoint are lost."""
        if self._first_s is not None:
            self.stand(at_s)
            cycles, _ = self._made(at_s)
            self.checkpointing_s += cycles * self.save_s
            self.slow_s += min(self._pause_s, max(0.0, (self._stood_s or at_s) - self._first_s))
            self.saved_s += cycles * self.interval_s
        self._first_s = self._stood_s = None

    def useful_s(self, at_s: float) -> float:
        if self._first_s is None:
            return self.saved_s
        cycles, rest_s = self._made(at_s)
        return self.saved_s + cycles * self.interval_s + rest_s

    def step(self, at_s: float) -> int:
        return int(self.useful_s(at_s) / STEP_S) + 1

    def slow_down(self, lost_s: float) -> None:
        if self.moves:
            self._pause_s += lost_s

    def _made(self, at_s: float) -> tuple[int, float]:
        """Returns the number of complete checkpoints of this attempt, and the seconds of training since
        the last one.
        """
        assert self._first_s is not None
        until_s = at_s if self._stood_s is None else min(at_s, self._stood_s)
        trained_s = max(0.0, until_s - self._first_s - self._pause_s)
        cycle_s = self.interval_s + self.save_s
        cycles = int(trained_s / cycle_s)
        return cycles, min(trained_s - cycles * cycle_s, self.interval_s)
