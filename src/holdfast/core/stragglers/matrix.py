"""Stragglers in the own times of a whole run: ranks x steps, in one pass. Pure.

8,192 ranks x 1,000 steps take about a second; numpy would have to copy what is a list of lists anyway.
"""

from collections.abc import Mapping, Sequence

from holdfast.core.stragglers.limits import StragglerSettings
from holdfast.core.stragglers.panel import Flag, Panel
from holdfast.core.stragglers.told import Slow, by_node, straggler
from holdfast.model.steps import Straggler


def analyse(
    times: Sequence[Sequence[float]],
    *,
    first_step: int = 0,
    ranks: Sequence[int] = (),
    nodes: Mapping[int, str] | None = None,
    settings: StragglerSettings | None = None,
) -> tuple[Straggler, ...]:
    """All that were slower for some time. `times[i][j]`: own time in seconds of rank `ranks[i]` (i where that is empty)
    in step `first_step + j`; nan where it is not known. All rows have the same length.

    raises: ValueError, where they have not
    """
    settings = settings or StragglerSettings()
    names = list(ranks) or list(range(len(times)))
    if len(names) < 2:
        return ()
    nodes = nodes or {}
    teams = [nodes[rank] for rank in names] if all(rank in nodes for rank in names) else ()
    panel = Panel(len(names), settings, teams=teams)
    found: dict[tuple[int, int], Flag] = {}
    for step, column in enumerate(zip(*times, strict=True), first_step):
        for flag in panel.add(step, column):
            found[flag.place, flag.since] = flag
    slow = [
        Slow(
            rank=names[flag.place],
            source="log-times",
            ratio=flag.ratio,
            since=flag.since,
            until=flag.over,
            is_from_start=flag.is_from_start,
            sigmas=flag.sigmas,
        )
        for flag in found.values()
    ]
    return tuple(straggler(group) for group in by_node(slow, nodes))
