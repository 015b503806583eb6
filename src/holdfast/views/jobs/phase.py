"""Describes in words what a job is doing now. If its journal has ended with an outdated phase, describes the actual
state instead. Pure.
"""

from msgspec.structs import replace

from holdfast.core.job.story import Summary
from holdfast.late_pattern import late
from holdfast.model.documents.parts import JobState

ENDING = "its ranks are being ended"
STEP = late(r"(^training, step |; the last known step is |; step )\d+$")
WORDS: dict[JobState, str] = {
    "dead": "dead: its supervisor and its ranks have ended{since}",
    "unsupervised": "unsupervised{since}: its ranks still run",
    "unknown": "unknown: no message was received{since}, and its machine cannot be queried from here",
}


def true_words(summary: Summary, state: JobState, *, is_being_ended: bool = False, since: str = "") -> str:
    """Returns the job's phase in words, or the state of a job that no supervisor watches.

    `since`: start of that state, as formatted time.
    """
    if state == "preempted" and not summary.outcome:
        return f"pre-empted: {summary.moved}"
    words = WORDS.get(state)
    if words is None:
        return summary.phase_words
    if state == "unsupervised" and is_being_ended:
        words = f"unsupervised{{since}}: {ENDING}"
    step = f"; the last known step is {summary.step}" if summary.step is not None else ""
    silent = " for a while" if state == "unknown" else ""
    return words.format(since=f" since {since}" if since else silent) + step


def at_step(words: str, step: int | None) -> str:
    """Replaces the step in the words of a phase by a newer step. Words about an ended job stay unchanged."""
    if step is None:
        return words
    return STEP.sub(rf"\g<1>{step}", words)


def with_true_words(summary: Summary, state: JobState, *, is_being_ended: bool = False) -> Summary:
    """Returns the summary with its phase in the words of `true_words`."""
    return replace(summary, phase_words=true_words(summary, state, is_being_ended=is_being_ended))
