"""Simulates a clock and random numbers: equal seeds give equal histories. Independent of jobs and nodes."""

import heapq
import itertools
import random
from collections.abc import Callable


class World:
    """A simulated clock with scheduled events, and random numbers from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.now_s = 0.0
        self._order = itertools.count()  # ties run in the order they were asked for
        self._later: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, delay_s: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._later, (self.now_s + delay_s, next(self._order), do))

    def at(self, at_s: float, do: Callable[[], None]) -> None:
        self.after(max(at_s - self.now_s, 0.0), do)

    def run(self, until_s: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Runs all scheduled events up to `until_s`, or until `is_over` returns True; the clock stops at the last
        event.
        """
        while self._later and self._later[0][0] <= until_s:
            self.now_s, _, do = heapq.heappop(self._later)
            do()
            if is_over():
                return
        self.now_s = max(self.now_s, until_s)
