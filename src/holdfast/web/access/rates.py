"""Limits the rate of requests: a token bucket for each user or address."""

from collections.abc import Callable

KEYS_MAX = 10_000


class Rates:
    """Token buckets by key. `per_s`: tokens added each second; `burst`: capacity."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float]) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._buckets: dict[str, tuple[float, float]] = {}  # what is in it, and since when

    def wait_s(self, key: str, cost: float = 1.0) -> float:
        """Takes `cost` tokens from the bucket of `key` and returns 0; if there are too few, takes none and returns
        the seconds until there are enough.
        """
        left = self._left(key)
        if left < cost:
            return (cost - left) / self._per_s
        if len(self._buckets) >= KEYS_MAX and key not in self._buckets:
            self._forget()
        self._buckets[key] = (left - cost, self._clock())
        return 0.0

    def is_empty(self, key: str) -> bool:
        return self._left(key) < 1.0

    def full_s(self, key: str) -> float:
        """Returns the seconds until the bucket of `key` has a token again."""
        return max(0.0, (1.0 - self._left(key)) / self._per_s)

    def _left(self, key: str) -> float:
        left, since_s = self._buckets.get(key, (self._burst, 0.0))
        return min(self._burst, left + (self._clock() - since_s) * self._per_s)

    def _forget(self) -> None:
        """Drops full buckets, which are like unused ones; if there are none, the oldest half."""
        full = [key for key in self._buckets if self._left(key) >= self._burst]
        for key in full or list(self._buckets)[: KEYS_MAX // 2]:
            del self._buckets[key]
