"""Selects the candidates of the last run in a log that contains several runs, and removes old node faults.

Pure.
"""

from collections.abc import Sequence

from holdfast.core.clock_offsets import are_comparable
from holdfast.core.diagnosis.candidates import Candidate, is_cause
from holdfast.model.signatures import EXCEPTION

RUN_BYTES_MIN = 2 << 10  # a run writes more


OUTSIDE_RANK = frozenset(
    {"communication", "process", "scheduler"}
)  # classes that a hang of days ends with as well


BYGONE_DAYS = 1.0  # less can be a clock of another time zone


def of_last_run(candidates: Sequence[Candidate], sizes_bytes: Sequence[int] = ()) -> list[Candidate]:
    """Returns the candidates after the last start in a log to which several runs were appended.

    A start at the very end of the log is ignored, because the launcher's first lines can arrive last.
    """
    started = run_beginnings(candidates, sizes_bytes)
    return [
        candidate
        for candidate in candidates
        if candidate.match.last_offset >= started.get(candidate.match.source, 0)
    ]


def run_beginnings(candidates: Sequence[Candidate], sizes_bytes: Sequence[int] = ()) -> dict[int, int]:
    """Returns the byte offset at which the last run of a log begins, by the number of the log.

    Only logs that hold the start of a run, or the end of a run before the last, are included. `sizes_bytes`: of each log.
    """
    started: dict[int, int] = {}
    for candidate in candidates:
        source = candidate.match.source
        if candidate.has("run-starts"):
            size_bytes = sizes_bytes[source] if source < len(sizes_bytes) else 0
            if not size_bytes or size_bytes - candidate.match.last_offset > RUN_BYTES_MIN:
                started[source] = max(started.get(source, 0), candidate.match.last_offset)
        elif candidate.has("report-of-ended-run"):
            ended = _end_of_run_before(candidate, candidates)
            started[source] = max(started.get(source, 0), ended)
    for source, offset in (
        *_ends_of_same_script(candidates).items(),
        *_tables_of_runs_before(candidates),
        *_refusals_of_other_scripts(candidates),
    ):
        started[source] = max(started.get(source, 0), offset)
    return started


def _ends_of_same_script(candidates: Sequence[Candidate]) -> dict[int, int]:
    """Returns by log the offset at which the run before the last one ended with an exception.

    Both runs ended with different uncaught exceptions of the same script, and a process can have only one.
    Logs that ranks share, or in which a launcher reports on its ranks, are left out.
    """
    known = {
        _place_of(candidate)
        for candidate in candidates
        if candidate.role == "cause" and candidate.signature.id != EXCEPTION
    }
    shared = {
        candidate.match.source
        for candidate in candidates
        if _is_of_ranks(candidate) or candidate.role == "symptom" and _place_of(candidate) not in known
    }
    left = [
        candidate
        for candidate in candidates
        if _left_script(candidate) and candidate.match.source not in shared
    ]
    left.sort(key=lambda candidate: candidate.match.last_offset)
    last = {candidate.match.source: candidate for candidate in left}
    return {
        source: max(
            candidate.match.last_offset + 1
            for candidate in left
            if candidate.match.source == source and _ended_otherwise(candidate, end)
        )
        for source, end in last.items()
        if any(candidate.match.source == source and _ended_otherwise(candidate, end) for candidate in left)
        and end.class_ not in OUTSIDE_RANK
    }


def _tables_of_runs_before(candidates: Sequence[Candidate]) -> list[tuple[int, int]]:
    """Returns the places, as log and offset, of torchrun failure tables that belong to runs before the last
    one.

    torchrun prints one table when it has no restarts left, and each node names its own ranks. So a rank that
    is named in two tables belongs to two runs.
    """
    return [
        (candidate.match.source, candidate.match.offset)
        for candidate in candidates
        if candidate.has("run-gave-up-on-rank") and candidate.match.count > 1
    ]


def _refusals_of_other_scripts(candidates: Sequence[Candidate]) -> list[tuple[int, int]]:
    """Returns the places, as log and offset, where a script refused its arguments before a person
    interrupted another one.

    A script ends when it refuses its arguments, so what was interrupted is a later run. Only an interrupt
    says so: any other error of a later script can follow from the first one.
    """
    stopped = [one for one in candidates if one.has("interrupted-by-person") and _left_script(one)]
    refused = [one for one in candidates if one.has("arguments-refused") and not _is_of_ranks(one)]
    return [
        (one.match.source, one.match.last_offset + 1)
        for one in refused
        if (refusal := one.known.found("refusing-script", one.match.text))
        and any(
            end.match.source == one.match.source
            and end.match.offset > one.match.last_offset
            and refusal["script"] not in end.match.outermost
            for end in stopped
        )
    ]


def _is_of_ranks(candidate: Candidate) -> bool:
    """Returns whether a line was written by a rank, or by a launcher of ranks."""
    writer = candidate.writer
    return (writer.rank, writer.local_rank, writer.worker) != (
        None,
        None,
        None,
    ) or candidate.has("launcher-starts")


def _place_of(candidate: Candidate) -> tuple[int, int]:
    return candidate.match.source, candidate.match.offset


def _left_script(candidate: Candidate) -> bool:
    """Returns whether a candidate is an exception that the script did not catch.

    Its traceback reaches up to the script's outermost line.
    """
    seen = candidate.match
    return bool(seen.error_type) and candidate.known.says("frame-of-script", seen.outermost)


def _ended_otherwise(candidate: Candidate, end: Candidate) -> bool:
    one, other = candidate.match, end.match
    is_same_script = one.outermost.rpartition(":")[0] == other.outermost.rpartition(":")[0]
    return is_same_script and (one.error_type, one.frame) != (other.error_type, other.frame)


def _end_of_run_before(report: Candidate, candidates: Sequence[Candidate]) -> int:
    """Returns the offset of the end of the run before the last one: that of its last report.

    Of a repeated line only the first and last places are known; then the first counts.
    """
    one = report.match
    if any(
        candidate.match.source == one.source and candidate.match.last_offset > one.last_offset
        for candidate in candidates
    ):
        return one.last_offset
    return one.offset if one.count > 1 else 0


def without_bygone(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without old node faults, if the job trained since and a later candidate can have
    ended it.

    A fault is kept if it recurred, or if its clock cannot be compared.
    """
    ended = [
        candidate
        for candidate in candidates
        if candidate.signature.area == "worker" and _is_trouble(candidate)
    ]
    first_s = min((candidate.at_s for candidate in ended if candidate.at_s is not None), default=None)
    if first_s is None:
        return list(candidates)
    near = [
        candidate
        for candidate in candidates
        if _is_trouble(candidate) and _days_before(first_s, candidate.at_s) <= BYGONE_DAYS
    ]
    times_s = [candidate.at_s for candidate in near if is_cause(candidate) and candidate.at_s is not None]
    if any(is_cause(candidate) and candidate.class_ not in OUTSIDE_RANK for candidate in ended):
        times_s.append(first_s)  # a rank's own mistake ended it, whether or not its line has a time
    last_s = max(times_s, default=None)
    return [candidate for candidate in candidates if not _is_bygone(candidate, last_s, candidates)]


def _is_bygone(candidate: Candidate, last_s: float | None, candidates: Sequence[Candidate]) -> bool:
    return (
        candidate.role == "cause"
        and candidate.signature.area == "kernel"
        and _days_before(candidate.at_s, last_s) > BYGONE_DAYS
        and not any(
            other is not candidate
            and other.category == candidate.category
            and _days_before(other.at_s, last_s) <= BYGONE_DAYS
            for other in candidates
        )
    )


def _is_trouble(candidate: Candidate) -> bool:
    return (
        candidate.role in ("cause", "symptom")
        and candidate.severity in ("fatal", "error")
        and not candidate.survived
    )


def _days_before(at_s: float | None, later_s: float | None) -> float:
    """Returns how many days one time is before the other; 0 if unknown."""
    if at_s is None or later_s is None or not are_comparable(at_s, later_s):
        return 0.0
    return (later_s - at_s) / 86400.0
