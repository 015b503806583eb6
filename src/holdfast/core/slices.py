"""Long work in pieces, so that whoever does it can look at something else between two of them. Pure.

What goes over all ranks of a large job is written as a generator: it yields after each piece, and returns its result.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
RANKS_AT_ONCE = 1024  # some 10 ms of judging

Sliced = Generator[None, None, T]


def pieces(all_: Sequence[T], at_once: int = RANKS_AT_ONCE) -> Iterator[Sequence[T]]:
    """In order, each of at most so many."""
    for at in range(0, len(all_), at_once):
        yield all_[at : at + at_once]


def finished(work: Sliced[T]) -> T:
    """Its result, all of it done now."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def whole(sliced: Callable[P, Sliced[T]]) -> Callable[P, T]:
    """The same function, all of it done by one call."""

    def work(*args: P.args, **kwargs: P.kwargs) -> T:
        return finished(sliced(*args, **kwargs))

    return work
