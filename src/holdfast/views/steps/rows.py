"""Formats the rows about steps in a job's status: current step, time per step, slowdowns. Only reads."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from holdfast.core.job.story import Summary
from holdfast.journal.jobdir import JobDir
from holdfast.model.steps import StepNow
from holdfast.observe.logs.step_file import StepFile, read
from holdfast.settings.times import duration, length
from holdfast.views.wrapping import shown

NONE_FOUND = "none found"
BARS = "▁▂▃▄▅▆▇█"
# The bars' top is at least so many times their bottom: noise is not to look like a mountain.
BARS_REACH = 1.1


def steps_of(job: JobDir, summary: Summary) -> StepFile | None:
    """Returns the steps of the current attempt as reported by the worker that is furthest ahead; None
    without a report.
    """
    workers = {rank.worker for rank in summary.ranks} or {0}
    files = [read(job.worker(summary.attempt, worker)) for worker in sorted(workers)]
    current = [file for file in files if file is not None and file.attempt == summary.attempt]
    best = max(
        current,
        key=lambda file: (file.now.step if file.now.step is not None else -1, file.at_s),
        default=None,
    )
    # With several workers only the controller has the data to find the slower one.
    slow = read(job.attempt(summary.attempt))
    if best is None or slow is None or slow.attempt != summary.attempt:
        return best
    return replace(best, now=replace(best.now, straggler=slow.now.straggler))


def step_rows(summary: Summary, file: StepFile | None) -> list[tuple[str, str]]:
    """Returns the rows about steps as (name, text); only the step itself if step times are unknown."""
    if file is None:
        return [("step", _step(summary.step, None))]
    now = file.now
    is_over = bool(summary.outcome)
    phase = "" if is_over else now.phase
    found = [("step", _step(now.step if now.step is not None else summary.step, now.total, phase))]
    if times := _times(now, is_over):
        found.append(("step time", times))
    if now.eta_s is not None and not is_over:
        found.append(("eta", f"{length(round(now.eta_s))} at this pace"))
    if times:
        none = "" if is_over else NONE_FOUND
        slow = shown(now.slowdown) or _finding(file, "slowdown") or none
        late = shown(now.straggler) or _finding(file, "straggler") or none
        found += [(name, text) for name, text in (("slowdown", slow), ("straggler", late)) if text]
    if loss := _loss(file):
        found.append(("loss", loss))
    if stands := _finding(file, "step-stands"):
        found.append(("stands", stands))
    return found


def bars(values: Sequence[float], width: int) -> str:
    """Returns the last `width` values as bars between their minimum and maximum; empty without values."""
    last = [value for value in values if value > 0][-width:] if width > 0 else []
    if not last:
        return ""
    low = min(last)
    high = max(*last, low * BARS_REACH)
    return "".join(BARS[min(int((value - low) / (high - low) * len(BARS)), len(BARS) - 1)] for value in last)


def span(values: Iterable[float]) -> str:
    """Formats the range of step times: `3.05 s to 4.40 s`."""
    there = [value for value in values if value > 0]
    return f"{duration(min(there))} to {duration(max(there))}" if there else ""


def part_done(now: StepNow) -> float | None:
    """Returns the share of steps done, 0 to 1; None if the total is unknown."""
    if now.step is None or not now.total or now.total <= 0:
        return None
    return min(max(now.step / now.total, 0.0), 1.0)


def _step(step: int | None, total: int | None, phase: str = "") -> str:
    if step is None:
        return "none yet"
    words = f"{step} of {total} ({min(step / total, 1):.0%})" if total and total > 0 else str(step)
    return f"{words}, {shown(phase)}" if phase and phase != "step" else words


def _times(now: StepNow, is_over: bool) -> str:
    named = (("now", None if is_over else now.now_s), ("median", now.median_s), ("best", now.best_s))
    return ", ".join(f"{name} {duration(value)}" for name, value in named if value is not None)


def _finding(file: StepFile, kind: str) -> str:
    return next((shown(one.text) for one in reversed(file.findings) if one.kind == kind), "")


def _loss(file: StepFile) -> str:
    bad = _finding(file, "loss-nan") or _finding(file, "loss-diverged")
    value = "" if file.now.loss is None else f"{file.now.loss:.5g}"
    return "; ".join(filter(None, (value, bad)))
