"""The fault-tolerance log as a plain file beside the journal: for a pager, a tail, a log shipper.

A view like any other: the journal has everything in it, and a file that cannot be written costs nothing.
"""

from pathlib import Path

from holdfast.cli.times import stamp
from holdfast.core.decision import Decision
from holdfast.core.story import Line, Story
from holdfast.model.events import AnyEvent
from holdfast.model.policy import Policy

NAME = "fault-tolerance.log"
COUNTED = ("job", "rung")  # after these the counters are worth a line


class PlainLog:
    def __init__(self, folder: Path, policy: Policy) -> None:
        self._path = folder / NAME
        self._story = Story(policy)

    def remember(self, event: AnyEvent, decision: Decision) -> None:
        """What an earlier process has written already."""
        self._story.hear(event, decision)

    def decided(self, event: AnyEvent, decision: Decision) -> None:
        lines = self._story.hear(event, decision)
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
        allowed = "none" if summary.max_restarts is None else str(summary.max_restarts)
        return (
            f"maximum restarts: {allowed}; restarts so far: {summary.restarts}; "
            f"reschedules caused by hardware: {summary.hardware_reschedules}"
        )


def printed(line: Line) -> str:
    """One line, whatever a log's text may carry."""
    return f"{stamp(line.at_s)} {' '.join(line.text.split())}"
