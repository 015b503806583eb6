"""Collects stacks of a running job's ranks: on this node from outside, on other nodes through their agents.

Blocks.
"""

import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import msgspec

from holdfast.core.answer_groups import Answer
from holdfast.jobs.call import Gathering, places
from holdfast.jobs.line import JobLine, who
from holdfast.jobs.running_ranks import RunningRank
from holdfast.model.calls import STACKS_S, CallPlace, StackLook
from holdfast.model.flight.thread_stacks import RankStacks
from holdfast.observe.processes.pyspy import NATIVE_S, Ask, collect

ANSWER_S, NATIVE_ANSWER_S = 20.0, 130.0  # the controller answers for agents that do not, before that
_STACKS: msgspec.msgpack.Decoder[tuple[RankStacks, ...]] = msgspec.msgpack.Decoder(tuple[RankStacks, ...])

# ranks, native -> what could be had of each of them, in their order
Collect: TypeAlias = Callable[[Sequence[RunningRank], bool], list[RankStacks]]


def collected_here(ranks: Sequence[RunningRank], native: bool) -> list[RankStacks]:
    """Returns the stacks of ranks that are all on this node."""
    asks = [Ask(one.rank, one.pid, one.folder) for one in ranks]
    within_s = STACKS_S + NATIVE_S * len(asks) * native
    return list(collect(asks, within_s, native=native, signal_first=False))


class FromAgents:
    """Collects stacks through the agents of the workers' nodes."""

    def __init__(self, line: JobLine, *, all_threads: bool) -> None:
        self._line = line
        self._all_threads = all_threads

    def __call__(self, ranks: Sequence[RunningRank], native: bool) -> list[RankStacks]:
        """Returns the stacks of the ranks. Raises CallNotMade and NoLine."""
        workers = {one.worker for one in ranks}
        if not workers:
            return []
        found = places(self._line, None, None).places
        asked = [place for place in found if place.worker in workers]
        what = StackLook(ranks=tuple(one.rank for one in ranks), native=native, all_threads=self._all_threads)
        gathering = Gathering(self._line, asked, what, who())
        gathering.gather(time.monotonic() + STACKS_S + (NATIVE_ANSWER_S if native else ANSWER_S))
        return joined(ranks, asked, gathering.answers("the agent of this node did not respond"))


def joined(
    ranks: Sequence[RunningRank], asked: Collection[CallPlace], answers: Sequence[Answer]
) -> list[RankStacks]:
    """Returns the stack of each rank, or why there is none. Pure."""
    known: dict[int, RankStacks] = {}
    whys = {worker: "the worker of this rank runs on no node now" for worker in {one.worker for one in ranks}}
    whys |= {
        place.worker: f"the agent on {place.node} has no such rank"
        for place in asked
        if place.worker is not None
    }
    for answer in answers:
        if answer.outcome == "exited":
            known |= {one.rank: one for one in _decoded(answer.output)}
        elif answer.worker is not None:
            whys[answer.worker] = f"{answer.node}: {answer.why or answer.outcome}"
    return [
        known.get(one.rank, RankStacks(rank=one.rank, pid=one.pid, why_not=whys[one.worker])) for one in ranks
    ]


def _decoded(output: bytes) -> tuple[RankStacks, ...]:
    try:
        return _STACKS.decode(output)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()  # of another version
