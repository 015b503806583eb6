"""Reads one value for each rank over time, from the samples of a job's current attempt, for a heat map."""

from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from holdfast.agent.watch.sample_ring import read_samples
from holdfast.journal.jobdir import JobDir
from holdfast.model.documents.jobs import HeatMap, Mark
from holdfast.model.nodes.samples import Moment

WORKERS_MAX = 64  # workers whose samples are read
RANKS_MAX = 2_048
COLUMN_S_MIN = 1.0
UNITS = {"utilisation": "%", "sm": "%", "memory": "%", "power": "W", "cpu": "cores", "step": "steps behind"}


class NoSamples(LookupError):
    """Raised when there are no samples of this metric. The message says why."""


class _Value(Struct, frozen=True, gc=False):
    """A value of one rank at one time."""

    at_s: float
    rank: int
    value: float


def heat_map(
    job: JobDir,
    attempt: int,
    metric: str,
    *,
    from_s: float | None,
    to_s: float | None,
    columns: int,
    incidents: tuple[Mark, ...] = (),
) -> HeatMap:
    """Returns the mean value for each rank and column. `metric`: a key of UNITS. Raises NoSamples."""
    read = METRICS.get(metric)
    if read is None:
        raise NoSamples(f"there is no metric {metric!r}: use one of {', '.join(METRICS)}")
    folders = sorted(job.attempt(attempt).glob("worker-*"))[:WORKERS_MAX]
    since_s = float("-inf") if from_s is None else from_s
    until_s = float("inf") if to_s is None else to_s
    values = [one for folder in folders for one in read(folder, since_s) if one.at_s <= until_s]
    if not values:
        raise NoSamples(f"no {metric} was sampled in attempt {attempt} of job {job.name}")
    if metric == "step":
        values = list(_behind(values))
    return _map(values, metric, max(1, columns), incidents)


def _map(values: list[_Value], metric: str, columns: int, incidents: tuple[Mark, ...]) -> HeatMap:
    first_s, last_s = min(one.at_s for one in values), max(one.at_s for one in values)
    column_s = max(COLUMN_S_MIN, (last_s - first_s) / columns)
    ranks = sorted({one.rank for one in values})[:RANKS_MAX]
    count = min(columns, int((last_s - first_s) / column_s) + 1)
    sums = {rank: [0.0] * count for rank in ranks}
    counts = {rank: [0] * count for rank in ranks}
    for one in values:
        if one.rank in sums:
            column = min(count - 1, int((one.at_s - first_s) / column_s))
            sums[one.rank][column] += one.value
            counts[one.rank][column] += 1
    rows = tuple(
        tuple(
            round(total / number, 3) if number else None
            for total, number in zip(sums[rank], counts[rank], strict=True)
        )
        for rank in ranks
    )
    return HeatMap(
        metric=metric,
        unit=UNITS[metric],
        ranks=tuple(ranks),
        from_s=first_s,
        column_s=column_s,
        values=rows,
        incidents=tuple(mark for mark in incidents if first_s <= mark.at_s <= last_s),
    )


def _cpu(folder: Path, since_s: float) -> Iterator[_Value]:
    """Yields the number of cores that a rank and its child processes used between two samples."""
    before: dict[int, tuple[int, float, float]] = {}
    for moment in read_samples(folder, since_s):
        for rank in moment.ranks:
            if rank.tree_cpu_s is None:
                continue
            pid, at_s, cpu_s = before.get(rank.rank, (0, 0.0, 0.0))
            if pid == rank.pid and rank.at_s > at_s and rank.tree_cpu_s >= cpu_s:
                yield _Value(rank.at_s, rank.rank, (rank.tree_cpu_s - cpu_s) / (rank.at_s - at_s))
            before[rank.rank] = (rank.pid, rank.at_s, rank.tree_cpu_s)


def _step(folder: Path, since_s: float) -> Iterator[_Value]:
    for moment in read_samples(folder, since_s):
        for rank in moment.ranks:
            if rank.step is not None:
                yield _Value(round(rank.at_s), rank.rank, rank.step)


def _behind(values: list[_Value]) -> Iterator[_Value]:
    """Yields how many steps each rank is behind the leading rank."""
    best: dict[float, float] = {}
    for one in values:
        best[one.at_s] = max(one.value, best.get(one.at_s, 0.0))
    for one in values:
        yield _Value(one.at_s, one.rank, best[one.at_s] - one.value)


def _device(value_of: Callable[[Moment, int], float | None]) -> Callable[[Path, float], Iterator[_Value]]:
    """Returns a reader of one device metric for each rank.

    The n-th device of a node is taken for that of its n-th rank if their numbers are equal.
    """

    def read(folder: Path, since_s: float) -> Iterator[_Value]:
        ranks: list[int] = []
        for moment in read_samples(folder, since_s):
            ranks = sorted({one.rank for one in moment.ranks}) or ranks
            if len(moment.devices) != len(ranks):
                continue
            for place, rank in enumerate(ranks):
                value = value_of(moment, place)
                if value is not None:
                    yield _Value(moment.at_s, rank, value)

    return read


def _utilisation(moment: Moment, place: int) -> float | None:
    value = moment.devices[place].utilization
    return None if value is None else 100.0 * value


def _sm(moment: Moment, place: int) -> float | None:
    value = moment.devices[place].sm_active
    return None if value is None else 100.0 * value


def _memory(moment: Moment, place: int) -> float | None:
    device = moment.devices[place]
    if device.memory_used_bytes is None or not device.memory_bytes:
        return None
    return 100.0 * device.memory_used_bytes / device.memory_bytes


def _power(moment: Moment, place: int) -> float | None:
    return moment.devices[place].power_w


METRICS: dict[str, Callable[[Path, float], Iterator[_Value]]] = {
    "utilisation": _device(_utilisation),
    "sm": _device(_sm),
    "memory": _device(_memory),
    "power": _device(_power),
    "cpu": _cpu,
    "step": _step,
}
