"""Collects the evidence about a failing attempt, and computes the first verdict from it; `verdict.py` improves it.

Reads the ends of logs and requests stacks. Never waits longer than a named limit, and never does anything to
a rank that could stop it.
"""

import signal
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from holdfast.agent.attempt import Attempt
from holdfast.agent.bundle import Scene
from holdfast.agent.watch.hang_scene import Seen
from holdfast.core.verdict.conclude import NETWORK, answer, is_certain, were_only_ended
from holdfast.core.verdict.first import first_verdict
from holdfast.core.verdict.launcher_words import Known, launcher_words
from holdfast.core.verdict.trouble import is_complaint
from holdfast.model.checks import NodeChecks
from holdfast.model.events import VerdictReached
from holdfast.model.failures import ErrorRecord, Failure, LauncherWord, RankExit
from holdfast.model.verdicts import Verdict
from holdfast.parsers.elastic import failed_lines, failure_table
from holdfast.parsers.tracebacks.read import Traceback, tracebacks

TAIL_BYTES = 256 * 1024
TABLE_S = 6.0  # for a launcher to say which rank was first; it gives those that do not end 30 s
# Improves a first verdict by log lines and flight records: `verdict.with_logs`, where verdicts are made.
WithLogs = Callable[[Verdict, Attempt, Seen | None], Verdict]


class EarlyDiagnosis(Struct, frozen=True):
    """A verdict from exit codes and errors of ranks. `certain`: later evidence cannot change it."""

    failure: Failure
    first: Verdict
    certain: bool


def diagnosis(attempt: Attempt) -> EarlyDiagnosis:
    """Returns the verdict that follows from the exit codes and errors known now.

    It is called repeatedly until the verdict is certain, so it does not read log lines.
    """
    errors = tuple(attempt.errors.values())
    needs_logs = attempt.hang is None and all(is_complaint(error) for error in errors)
    logged, elastic = _from_logs(attempt) if needs_logs else ((), ())
    failure = Failure(
        exits=tuple(attempt.exits),
        command_code=attempt.command_code,
        errors=errors,
        tracebacks=logged,
        elastic=elastic,
        oom=_kills(attempt),
        command_error=attempt.start_error,
        hang=attempt.hang,
        left=_left(attempt),
        output_full=attempt.output_full(),
        launcher_words=_launcher_words(attempt),
    )
    first = first_verdict(failure)
    certain = attempt.command_code is not None or is_certain(failure, first)
    return EarlyDiagnosis(failure, first, certain)


def waits_for_launcher(attempt: Attempt, early: EarlyDiagnosis, for_s: float) -> bool:
    """Returns whether the rank that failed first may still be unknown.

    That is the case if a rank died before Holdfast found it, and its launcher then ends the other ranks.
    """
    return for_s <= TABLE_S and attempt.command_code is None and were_only_ended(early.failure)


def needs_look(attempt: Attempt, early: EarlyDiagnosis) -> bool:
    """Returns whether flight records can improve the verdict: ranks report errors about other ranks, or gloo
    aborted ranks.

    After a size or type mismatch on gloo, a neighbour of the faulty rank dies first, and the other ranks
    report errors.
    """
    if attempt.hang is not None or not attempt.looks.has_collectives:
        return False
    aborted = any(done.code == -signal.SIGABRT for done in attempt.exits)
    return aborted or not early.certain or early.first.category in NETWORK


def first_alone(first: Verdict, attempt: Attempt, seen_of_ranks: Seen | None) -> Verdict:
    """Returns the first verdict as it is: for agents, whose controller makes the verdicts."""
    return first


def diagnosis_of_no_start(reason: str, incident: int, at_s: float) -> VerdictReached:
    """Returns the verdict on an attempt that could not start, from the reason alone."""
    return answer(first_verdict(Failure(command_error=reason)), incident, at_s)


def _kills(attempt: Attempt) -> tuple[str, ...]:
    """Returns the OOM kills of the attempt; queried only if a rank ended by SIGKILL."""
    killed = any(done.code in (-9, 137) for done in attempt.exits) or attempt.command_code in (-9, 137)
    return attempt.memory.kills(rank.pid for rank in attempt.ranks.values()) if killed else ()


def _left(attempt: Attempt) -> tuple[RankExit, ...]:
    return tuple(
        RankExit(
            rank=rank,
            worker=attempt.worker,
            pid=attempt.ranks[rank].pid,
            code=attempt.ranks[rank].code,
            at_s=at_s,
        )
        for rank, at_s in attempt.looks.goodbyes().items()
    )


def _launcher_words(attempt: Attempt) -> tuple[LauncherWord, ...]:
    """Returns the launcher's reports in the lines so far; empty while the signatures are not loaded."""
    pids = {seen.pid: rank for rank, seen in attempt.ranks.items()}
    known = Known(
        worker=attempt.worker, of_local=attempt.world_rank, of_pid=pids.get, by_rank=bool(attempt.ranks)
    )
    return launcher_words(attempt.logs.search(), attempt.logs.signatures, known)


def _from_logs(attempt: Attempt) -> tuple[tuple[ErrorRecord, ...], tuple[RankExit, ...]]:
    found: list[ErrorRecord] = []
    elastic: tuple[RankExit, ...] = ()
    for path in [
        *sorted(attempt.folder.glob("rank-*.log")),
        attempt.folder / "stderr",
        attempt.folder / "stdout",
    ]:
        lines = _tail(path)
        found += [_record(path, one, attempt) for one in tracebacks(lines)]
        elastic = elastic or _elastic(lines, attempt)
    return tuple(found), elastic


def _elastic(lines: list[bytes], attempt: Attempt) -> tuple[RankExit, ...]:
    """Returns the rank ends that torchrun reports: in its table, or in the line that it writes when a rank
    fails.
    """
    at_s, worker = attempt.started_s, attempt.worker
    table = failure_table(lines)
    if table:
        return tuple(
            RankExit(rank=row.rank, worker=worker, pid=row.pid, code=row.code, at_s=at_s) for row in table
        )
    return tuple(
        RankExit(rank=rank, worker=worker, pid=row.pid, code=row.code, at_s=at_s)
        for row in failed_lines(lines)[:1]
        if (rank := attempt.world_rank(row.local_rank)) is not None
    )


def _record(path: Path, found: Traceback, attempt: Attempt) -> ErrorRecord:
    name = path.name
    rank = int(name[5:-4]) if name.startswith("rank-") and name[5:-4].isdigit() else found.rank
    rank = attempt.world_rank(found.local_rank) if rank is None else rank
    if rank is None and found.pid is not None:
        rank = next((number for number, seen in attempt.ranks.items() if seen.pid == found.pid), None)
    return ErrorRecord(
        rank=rank,
        worker=attempt.worker if attempt.workers > 1 else None,
        type=found.type,
        message=found.message,
        frame=found.user_frame or found.frame,
        file=f"{path.parent.parent.name}/{path.parent.name}/{name}",
    )


def _tail(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read(TAIL_BYTES).split(b"\n")
    except OSError:
        return []


def scene_of(
    attempt: Attempt,
    incident: int,
    failure: Failure,
    verdict: Verdict,
    kernel_why_not: str,
    checks: tuple[NodeChecks, ...],
    at_s: float,
) -> Scene:
    """Returns what is known about an incident, for its bundle, without the settings and the environment."""
    return Scene(
        incident=incident,
        attempt=attempt.number,
        folder=attempt.folder,
        failure=failure,
        verdict=verdict,
        offsets=attempt.logs.offsets(),
        kernel=tuple(attempt.logs.kernel_lines),
        kernel_why_not=kernel_why_not,
        samples=tuple(attempt.looks.samples),
        settings=b"",
        env={},
        at_s=at_s,
        steps=tuple(attempt.steps.records),
        findings=tuple(attempt.steps.findings),
        checks=checks,
    )
