"""Measures the progress of a job: by steps, or by running time if its log contains no steps. Pure."""

from msgspec.structs import replace

from holdfast.core.job.decision import Decision
from holdfast.model.events import StepReached
from holdfast.model.policy import Policy
from holdfast.model.state import Diagnosing, Job, Running, State


def on_step(state: State, event: StepReached, policy: Policy) -> Decision:
    """Records a step; the first step after a recovery ends the incident."""
    job, phase = state.job, state.phase
    if event.attempt != job.attempt or not isinstance(phase, Running | Diagnosing):
        return Decision(state)
    step = event.step if job.step is None else max(job.step, event.step)
    if step != job.step:
        job = replace(job, step=step)
    if (job.hangs_in_a_row or job.problems_in_a_row) and step >= job.bar_step + policy.progress_steps:
        job = _with_fresh_rows(job)
    if isinstance(phase, Diagnosing):  # printed before the failure, and read after it
        return Decision(State(replace(job, bar_step=max(job.bar_step, step)), phase))
    if job.incident is None:
        return Decision(State(job, phase))
    return _again_in_training(job, phase, event.at_s, f"at step {event.step}")


def _with_fresh_rows(job: Job) -> Job:
    """Returns the job with its counts "in a row" reset, after progress."""
    return replace(job, hangs_in_a_row=0, problems_in_a_row=0, problem="", problem_step=None, error="")


def _again_in_training(job: Job, phase: Running, at_s: float, where: str) -> Decision:
    assert job.incident is not None, "only an incident can end"
    took_s = at_s - job.incident.since_s
    why = f"incident {job.incident.number} over: training again {where}, {took_s:.1f} s after it was found"
    return Decision(State(replace(job, incident=None), replace(phase, handled=False)), why=why)


def settled(state: State, phase: Running, at_s: float, policy: Policy) -> Decision:
    """Ends the incident of a job without steps in its log once the new attempt has run for `settle_s`
    seconds.

    Steps may still follow, because loading or compiling can delay the first one.
    """
    job = state.job
    if job.step is not None or (job.incident is None and not (job.hangs_in_a_row or job.problems_in_a_row)):
        return Decision(state)
    alive_s = at_s - phase.since_s
    if alive_s > policy.progress_s and (job.hangs_in_a_row or job.problems_in_a_row):
        job = _with_fresh_rows(job)
    if job.incident is None or phase.handled or alive_s < policy.settle_s:
        return Decision(state if job is state.job else State(job, phase))
    return _again_in_training(job, phase, at_s, f"for {alive_s:.0f} s (its log has named no step so far)")
