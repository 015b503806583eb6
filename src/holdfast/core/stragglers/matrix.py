"""Finds stragglers of a whole run, from the time that each rank worked in each step (without waits). Pure.

The rows are copied into one array first: a column of a list of lists is 8,192 objects far apart in memory.
"""

from array import array
from collections.abc import Mapping, Sequence

from holdfast.core.stragglers.limits import StragglerSettings
from holdfast.core.stragglers.panel import Flag
from holdfast.core.stragglers.panel_numpy import large_panel
from holdfast.core.stragglers.wording import Slow, by_node, straggler
from holdfast.model.steps import Straggler


def analyse(
    times: Sequence[Sequence[float]],
    *,
    first_step: int = 0,
    ranks: Sequence[int] = (),
    nodes: Mapping[int, str] | None = None,
    settings: StragglerSettings | None = None,
    floor_s: float = 0.0,
    steps: Sequence[int] = (),
) -> tuple[Straggler, ...]:
    """Returns all ranks that were slower than their peers for some time.

    `times[i][j]`: own time in seconds of rank `ranks[i]` (default i) in step `first_step + j`, or `steps[j]`;
    nan if unknown. All rows have the same length. `floor_s`: see `Panel.add`.

    raises: ValueError, for rows of different lengths
    """
    settings = settings or StragglerSettings()
    names = list(ranks) or list(range(len(times)))
    if len(names) < 2:
        return ()
    nodes = nodes or {}
    teams = [nodes[rank] for rank in names] if all(rank in nodes for rank in names) else ()
    panel = large_panel(len(names), settings, teams)
    found: dict[tuple[int, int], Flag] = {}
    flat, width = array("d"), len(times[0])
    for rank, row in zip(names, times, strict=True):
        if len(row) != width:
            raise ValueError(
                f"rank {rank} has {len(row)} steps, rank {names[0]} has {width}: give nan for missing ones"
            )
        flat.extend(array("d", row))
    for place, step in enumerate(steps or range(first_step, first_step + width)):
        for flag in panel.add(step, flat[place::width], floor_s):
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
