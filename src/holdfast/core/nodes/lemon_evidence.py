"""Converts the last weeks of the node book into the input of the lemon score. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from holdfast.core.nodes.lemons import Failure, Observed
from holdfast.model.nodes.book import (
    AnyLine,
    AttemptRan,
    ExonerationLine,
    IncidentLine,
    RepairLine,
    WarningLine,
)

WINDOW_DAYS = 28.0
HOURS_LEAST = 1.0  # for a node that failed in a boot check, before any attempt ran on it
_HOUR_S = 3600.0


def observed(lines: Sequence[AnyLine], attempts: Iterable[AttemptRan], *, since_s: float) -> Observed:
    """Returns the fleet's failures, working hours and warnings since `since_s`; for a repaired node, since its last
    repair.

    Leaves out ends that users requested, failures of the training itself, and exonerated failures. An exoneration
    that names a node clears only that node.
    """
    begun = _begun(lines, since_s)
    hours, job_hours, worker_groups = _exposure(attempts, begun, since_s)
    cleared = _cleared(lines)
    failures = []
    for line in lines:
        if isinstance(line, IncidentLine) and line.at_s >= since_s:
            failure = _failure(
                line, worker_groups, begun, since_s, cleared.get((line.run, line.incident), frozenset())
            )
            if failure is not None:
                failures.append(failure)
    for failure in failures:
        if failure.node:
            hours[failure.node] = max(hours.get(failure.node, 0.0), HOURS_LEAST)
    return Observed(
        hours=dict(hours),
        job_hours=dict(job_hours),
        failures=tuple(failures),
        warnings=_warnings(lines, begun, since_s),
    )


def _begun(lines: Iterable[AnyLine], since_s: float) -> dict[str, float]:
    """Returns the time of each node's last repair."""
    begun: dict[str, float] = {}
    for line in lines:
        if isinstance(line, RepairLine) and line.at_s > since_s:
            begun[line.node] = max(line.at_s, begun.get(line.node, 0.0))
    return begun


_Exposure = tuple[dict[str, float], dict[str, float], dict[tuple[str, int], tuple[str, ...]]]


def _exposure(attempts: Iterable[AttemptRan], begun: Mapping[str, float], since_s: float) -> _Exposure:
    """Returns the hours of each node, the hours of each job, and the nodes of each attempt."""
    hours: dict[str, float] = defaultdict(float)
    job_hours: dict[str, float] = defaultdict(float)
    worker_groups = {}
    for one in attempts:
        worker_groups[one.run, one.attempt] = one.nodes
        end_s = one.started_s + one.hours * _HOUR_S
        job_hours[one.run] += max(0.0, end_s - max(one.started_s, since_s)) / _HOUR_S
        for node in one.nodes:
            start_s = max(one.started_s, since_s, begun.get(node, since_s))
            hours[node] += max(0.0, end_s - start_s) / _HOUR_S
    return hours, job_hours, worker_groups


def _cleared(lines: Iterable[AnyLine]) -> dict[tuple[str, int], frozenset[str]]:
    """Returns the exonerated nodes by incident; "" stands for all nodes."""
    found: dict[tuple[str, int], frozenset[str]] = {}
    for line in lines:
        if isinstance(line, ExonerationLine):
            key = line.run, line.incident
            found[key] = found.get(key, frozenset()) | {line.node}
    return found


def _failure(
    line: IncidentLine,
    worker_groups: Mapping[tuple[str, int], tuple[str, ...]],
    begun: Mapping[str, float],
    since_s: float,
    cleared: frozenset[str],
) -> Failure | None:
    if line.weighs not in ("node", "shared") or "" in cleared:
        return None

    def counts(node: str) -> bool:
        return node not in cleared and line.at_s >= begun.get(node, since_s)

    if line.weighs == "node":
        if not counts(line.node):
            return None
        return Failure(run=line.run, at_s=line.at_s, node=line.node, confidence=line.confidence)
    suspects = line.suspects or worker_groups.get((line.run, line.attempt), ())
    left = tuple(filter(counts, suspects))
    return Failure(run=line.run, at_s=line.at_s, suspects=left) if left else None


def _warnings(
    lines: Iterable[AnyLine], begun: Mapping[str, float], since_s: float
) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for line in lines:
        if isinstance(line, WarningLine) and line.at_s >= begun.get(line.node, since_s):
            kinds = found.setdefault(line.node, {})
            kinds[line.warning] = kinds.get(line.warning, 0.0) + line.count
    return found
