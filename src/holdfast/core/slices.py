"""Splits long work into pieces, so that the caller can do other work between them. Pure.

Work over all ranks of a large job is a generator: it yields after each piece and returns its result.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
RANKS_AT_ONCE = 1024  # some 10 ms of judging

Sliced = Generator[None, None, T]


def pieces(all_: Sequence[T], at_once: int = RANKS_AT_ONCE) -> Iterator[Sequence[T]]:
    """Slices in order, each of at most this length."""
    for at in range(0, len(all_), at_once):
        yield all_[at : at + at_once]


def finished(work: Sliced[T]) -> T:
    """Runs a generator to its end and returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def whole(sliced: Callable[P, Sliced[T]]) -> Callable[P, T]:
    """The same function, run to its end in one call."""

    def work(*args: P.args, **kwargs: P.kwargs) -> T:
        return finished(sliced(*args, **kwargs))

    return work
