"""Describes the current activity of a job, also if its journal stops in the middle and its last phase is out of date.
Pure.
"""

from msgspec.structs import replace

from holdfast.core.job.story import Summary
from holdfast.late_pattern import late
from holdfast.model.documents.parts import JobState

ENDING = "its ranks are being ended"
STEP = late(r"(^training, step |; step )\d+(?=$| was the last that was seen$)")
WORDS: dict[JobState, str] = {
    "dead": "dead: its supervisor and its ranks are gone{since}",
    "unsupervised": "unsupervised{since}: its ranks still run",
    "unknown": "unknown: nothing was heard{since}, and it cannot be asked from here",
}


def true_words(summary: Summary, state: JobState, *, is_being_ended: bool = False, since: str = "") -> str:
    """Returns the words of the journal's phase, or of an unsupervised state. `since`: a time stamp."""
    if state == "preempted" and not summary.outcome:
        return f"pre-empted: {summary.moved}"
    words = WORDS.get(state)
    if words is None:
        return summary.phase_words
    if state == "unsupervised" and is_being_ended:
        words = f"unsupervised{{since}}: {ENDING}"
    step = f"; step {summary.step} was the last that was seen" if summary.step is not None else ""
    silent = " for a while" if state == "unknown" else ""
    return words.format(since=f" since {since}" if since else silent) + step


def at_step(words: str, step: int | None) -> str:
    """The words with a newer step in place of the one that they name. Words of an end name none of the job's own."""
    if step is None:
        return words
    return STEP.sub(rf"\g<1>{step}", words)


def with_true_words(summary: Summary, state: JobState, *, is_being_ended: bool = False) -> Summary:
    """Returns the summary with these words for its phase."""
    return replace(summary, phase_words=true_words(summary, state, is_being_ended=is_being_ended))
