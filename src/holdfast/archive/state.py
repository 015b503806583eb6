"""Determines the actual state of a job: the journal's last phase, compared with lock, processes and file
times.

The journal of a job whose supervisor was killed stops in the middle, so its last phase may be outdated.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.archive.living import Living, ProcessTable, living, process_state
from holdfast.core.job.story import Summary
from holdfast.jobs.record import LOCK_NAME, supervisor
from holdfast.journal.jobdir import JobDir
from holdfast.model.documents.parts import JobState
from holdfast.observe.logs.step_file import StepFile

ELSEWHERE_S = (
    # silence after which the state on another machine is unknown: NFS shows changes up to 60 s late
    90.0
)
FILES_MAX = 4_096
STOPPED = "Tt"
# By the journal's phase, while a supervisor runs the job (docs/words.md).
OF_PHASE: dict[str, JobState] = {
    "new": "starting",
    "waiting": "waiting",
    "holding": "kept",
    "finishing": "stopping",
}
OF_OUTCOME: dict[str, JobState] = {"succeeded": "succeeded", "failed": "failed", "stopped": "stopped"}


class Truth(Struct, frozen=True, kw_only=True):
    """The actual state of a job.

    `since_s`: start of the state. `seen_at_s`: time of the last sign of life. `supervisor`: description of the
    supervisor process. `living`: ranks with running processes if the job has no supervisor; None means unknown, or as
    in the journal. `is_being_ended`: the reapers of a job without a supervisor are ending it. `notes`:
    irregularities, one sentence each.
    """

    state: JobState
    since_s: float | None = None
    seen_at_s: float | None = None
    supervisor: str = ""
    living: frozenset[int] | None = None
    is_being_ended: bool = False
    notes: tuple[str, ...] = ()


def true_state(
    job: JobDir,
    facts: dict[str, Any],
    summary: Summary,
    clock: Callable[[], float],
    processes: ProcessTable | None = None,
) -> Truth:
    """Returns the actual state of a job.

    `facts`: the journal's entries about the start. `clock`: the wall clock of this machine. `processes`: a
    table of processes shared by several jobs, so that /proc is read only once.
    """
    last_s = summary.last_at_s
    if summary.outcome:
        return Truth(state=_outcome(summary), since_s=summary.phase_since_s, seen_at_s=last_s)
    holder = supervisor(job, facts)
    if summary.moved and not holder:
        return Truth(state="preempted", since_s=last_s, seen_at_s=last_s)
    beat_s = _latest(last_s, *_times(_of_supervisor(job, summary.attempt)))
    if holder:
        state = "stopping" if summary.moved else state_of_phase(summary)
        notes = _notes(job, facts)
        return Truth(
            state=state,
            since_s=_since(state, summary),
            seen_at_s=beat_s,
            supervisor=holder,
            notes=notes,
        )
    if not _is_here(facts):
        return _elsewhere(job, summary, beat_s, clock())
    if _engine(facts) != "local":
        return _on_other_nodes(job, summary, beat_s, clock())
    found = living(job, summary.attempt, processes) if summary.attempt else Living()
    if found.processes:
        return Truth(
            state="unsupervised",
            since_s=beat_s,
            seen_at_s=_latest(beat_s, *_times(_of_ranks(job, summary.attempt))),
            living=found.ranks,
            is_being_ended=_is_alone(facts) and facts.get("detach") is not True,
        )
    seen_s = _latest(beat_s, *_times(_of_ranks(job, summary.attempt)))
    return Truth(state="dead", since_s=seen_s, seen_at_s=seen_s, living=frozenset())


def steps_now(steps: StepFile | None, truth: Truth) -> StepFile | None:
    """Returns the step file, without step rate and remaining time unless the job is training now."""
    if steps is None or truth.state == "training":
        return steps
    return replace(steps, now=replace(steps.now, now_s=None, eta_s=None))


def state_of_phase(summary: Summary) -> JobState:
    """Returns the state of a supervised job from the last phase in its journal."""
    if state := OF_PHASE.get(summary.phase):
        return state
    last = summary.incidents[-1] if summary.incidents else None
    if last is not None and not last.over and not last.ended:
        return "recovering"
    return "training" if summary.phase == "running" else "starting"


def _outcome(summary: Summary) -> JobState:
    if summary.ended_by == "preemption" and summary.outcome != "succeeded":
        return "preempted"
    return OF_OUTCOME.get(summary.outcome, "failed")


def _since(state: JobState, summary: Summary) -> float | None:
    last = summary.incidents[-1] if summary.incidents else None
    started = summary.attempts[-1].started_at_s if summary.attempts else None
    match state:
        case "recovering" if last is not None:
            return last.found_at_s
        case "training" if started is not None:
            return started
        case "starting" if not summary.attempts:
            return summary.submitted_at_s
        case _:
            return summary.phase_since_s


# Jobs of other machines -----------------------------------------------------------------------------------


def _elsewhere(job: JobDir, summary: Summary, beat_s: float | None, now_s: float) -> Truth:
    """Returns the state of a job on another machine by its files, because not every disk shows locks
    across machines.
    """
    if beat_s is not None and now_s - beat_s <= ELSEWHERE_S:
        state = state_of_phase(summary)
        return Truth(state=state, since_s=_since(state, summary), seen_at_s=beat_s)
    seen_s = _latest(beat_s, *_times(_of_ranks(job, summary.attempt)))
    return Truth(state="unknown", since_s=seen_s, seen_at_s=seen_s)


def _on_other_nodes(job: JobDir, summary: Summary, beat_s: float | None, now_s: float) -> Truth:
    """Returns the state of a job whose controller is gone, by the shared files that its agents and ranks
    still write.
    """
    seen_s = _latest(beat_s, *_times(_of_ranks(job, summary.attempt)))
    if seen_s is not None and now_s - seen_s <= ELSEWHERE_S:
        return Truth(state="unsupervised", since_s=beat_s, seen_at_s=seen_s)
    return Truth(state="unknown", since_s=seen_s, seen_at_s=seen_s)


def _is_here(facts: dict[str, Any]) -> bool:
    host = facts.get("host")
    return not isinstance(host, str) or not host or host == socket.gethostname()


def _engine(facts: dict[str, Any]) -> str:
    settings = facts.get("settings")
    engine = settings.get("engine") if isinstance(settings, dict) else None
    return engine if isinstance(engine, str) else "local"


def _is_alone(facts: dict[str, Any]) -> bool:
    """Returns True if the job ran on this machine only, so that its reapers end the ranks when Holdfast
    dies.
    """
    settings = facts.get("settings")
    if not isinstance(settings, dict):
        return True
    plain = {"nnodes": 1, "spares": 0, "hosts": "processes"}
    return all(settings.get(key, value) == value for key, value in plain.items())


def _notes(job: JobDir, facts: dict[str, Any]) -> tuple[str, ...]:
    if not _is_here(facts):
        return ()
    with suppress(OSError, ValueError):
        pid = int((job.path / LOCK_NAME).read_text())
        if process_state(pid) in STOPPED:
            return (f"the supervisor, process {pid}, is stopped (kill -CONT {pid} continues it)",)
    return ()


# Signs of life --------------------------------------------------------------------------------------------


def _of_supervisor(job: JobDir, attempt: int) -> Iterator[Path]:
    """Yields the files that a supervisor or an agent writes once a second."""
    for folder in _folders(job, attempt):
        yield folder / "samples.new"
        yield folder / "steps.json"


def _of_ranks(job: JobDir, attempt: int) -> Iterator[Path]:
    """Yields the files that the reaper, the command and the ranks write."""
    for folder in _folders(job, attempt):
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in ("reaper.jsonl", "stdout", "stderr") or entry.name.endswith(".log"):
                    yield Path(entry.path)


def _folders(job: JobDir, attempt: int) -> list[Path]:
    if not attempt:
        return []
    try:
        return [path for path in job.attempt(attempt).iterdir() if path.name.startswith("worker-")]
    except OSError:
        return []


def _times(paths: Iterator[Path]) -> Iterator[float]:
    for number, path in enumerate(paths):
        if number >= FILES_MAX:
            return
        with suppress(OSError):
            yield path.stat().st_mtime


def _latest(*times: float | None) -> float | None:
    return max((one for one in times if one is not None), default=None)
