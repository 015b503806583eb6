"""Combines the detector's finding, flight records and stacks into one hang. Pure."""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.hang.culprits import refine
from holdfast.model.flight.digests import Located
from holdfast.model.flight.thread_stacks import RankStacks
from holdfast.model.samples import Hang, Stack

SURE = 0.5
SURE_BY_STACKS = 0.9  # confidence that `refine` returns if the stacks decide


def joined(found: Hang, located: Located | None, stacks: Sequence[RankStacks]) -> Hang:
    """Returns the hang with culprits and description from flight records if they name a rank, else from
    stacks or samples.

    A stopped rank stays the culprit; the records then only supply the description.
    """
    seen = tuple(Stack(rank=one.rank, frames=one.threads[0].frames) for one in stacks if one.threads)
    by_stacks = refine(found, seen) if seen else found
    if located is None or not located.culprits or located.confidence < SURE:
        return by_stacks
    if located.confidence == SURE and by_stacks.culprits and by_stacks.confidence >= SURE_BY_STACKS:
        return by_stacks  # the records are uncertain, and a stack shows which rank does not wait
    if found.kind == "stopped":
        return replace(found, why=f"{found.why}; {located.why.en}")
    known = {*found.waiting, *found.culprits, *located.waiting, *located.culprits}
    return replace(
        found,
        culprits=located.culprits,
        waiting=tuple(sorted(known - set(located.culprits))),
        category=located.category,
        why=f"{located.why.en}; {found.why}",
        confidence=max(located.confidence, 0.95 if set(located.culprits) == set(found.culprits) else 0.0),
    )
