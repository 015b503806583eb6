"""Splits long computations into pieces, so that the main loop can do other work in between. Pure.

A computation over all ranks of a large job is a generator: it yields after each piece and returns its result.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
RANKS_AT_ONCE = 1024  # about 10 ms of computation

Sliced = Generator[None, None, T]


def pieces(all_: Sequence[T], at_once: int = RANKS_AT_ONCE) -> Iterator[Sequence[T]]:
    """Yields consecutive slices of a sequence, each of at most `at_once` items."""
    for at in range(0, len(all_), at_once):
        yield all_[at : at + at_once]


def finished(work: Sliced[T]) -> T:
    """Runs a generator to its end and returns its return value."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def whole(sliced: Callable[P, Sliced[T]]) -> Callable[P, T]:
    """Decorates a generator function: the decorated one runs the generator to its end and returns its return
    value.
    """

    def work(*args: P.args, **kwargs: P.kwargs) -> T:
        return finished(sliced(*args, **kwargs))

    return work
