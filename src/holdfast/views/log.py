"""Writes the job's log as a plain text file beside the journal, for pagers and log shippers.

The file only repeats the journal, so if writing it fails, nothing else is affected.
"""

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from holdfast.core.job.decision import Decision
from holdfast.core.job.repeated_warnings import Repeats
from holdfast.core.job.story import Line, Story
from holdfast.core.job.wording import LOOK_AT
from holdfast.core.plurals import counted
from holdfast.late_pattern import late
from holdfast.model.events import AnyEvent
from holdfast.model.policy import Policy
from holdfast.settings.times import stamp

NAME = "fault-tolerance.log"
VARIABLE = late(r"(?:^| )[A-Za-z_]\w*=")
COUNTED = ("job", "rung")  # after these the counters are worth a line


class PlainLog:
    """Writer of the plain text log of one job."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        self._path = folder / NAME
        self._policy = policy
        self._story = Story(policy)
        self._repeats = Repeats()

    def remember(self, event: AnyEvent, decision: Decision) -> None:
        """Processes a journal entry that an earlier process has already written, without writing it again."""
        without_repeats(self._story.hear(event, decision), self._repeats)

    def decided(self, event: AnyEvent, decision: Decision) -> None:
        lines = without_repeats(self._story.hear(event, decision), self._repeats)
        if not lines:
            return
        texts = [printed(line) for line in lines]
        if any(line.kind in COUNTED for line in lines):
            texts.append(f"{stamp(lines[-1].at_s)} {self._counters()}")
        try:
            with self._path.open("a", encoding="utf-8", errors="replace") as file:
                file.write("".join(text + "\n" for text in texts))
        except OSError:
            return  # the recorder says, once, that the state folder cannot be written

    def _counters(self) -> str:
        summary = self._story.summary()
        return (
            f"maximum restarts: {restarts_allowed(self._policy)}; restarts so far: {summary.restarts}; "
            f"reschedules caused by hardware: {summary.hardware_reschedules}"
        )


def without_repeats(lines: Iterable[Line], repeats: Repeats) -> list[Line]:
    """Returns the log lines, in which warnings that repeat those of earlier attempts are replaced by one line for
    each attempt.
    """
    shown = []
    for line in lines:
        finding = "check" if line.kind == "check" and line.text.startswith(LOOK_AT) else line.finding
        text = repeats.shown(finding, line.text, line.attempt)
        shown += [replace(line, text=text)] if text is not None else []
    return shown


def printed(line: Line) -> str:
    """Returns a log line as text with its time, without control characters."""
    text = _environment(line.text) if line.finding == "environment" else line.text
    return f"{stamp(line.at_s)} {' '.join(text.split())}"


def restarts_allowed(policy: Policy) -> str:
    """Returns the maximum number of automatic restarts in words: `8`, or that none are allowed."""
    if policy.max_restarts is not None:
        return str(policy.max_restarts)
    is_sure = not policy.hang_restart and policy.replace_workers is None
    return "none (no automatic restarts)" if is_sure else "none"


def _environment(text: str) -> str:
    """Replaces names and values of environment variables by their number, because they would fill a
    screen.
    """
    given, semicolon, kept = text.partition("; left as you set them: ")
    count = len(VARIABLE.findall(given))
    return f"environment: {counted(count, 'variable')} set (holdfast log --json lists them){semicolon}{kept}"
