"""Prints a running job on the console: the training's output with rank prefixes, and Holdfast's own messages.

The training's output goes to stdout, messages to stderr. If nothing reads the console, or it is closed, lines
are dropped here, because the log files keep them, and the job never waits.
"""

import os
import select
import time
from collections import deque

from msgspec.structs import replace

from holdfast.core.checks.answers import key_of
from holdfast.core.job.decision import Decision
from holdfast.core.job.repeated_warnings import Repeats
from holdfast.core.job.story_lines import RECORD_ONLY
from holdfast.core.job.wording import check_lines, check_name, check_words, phase_words
from holdfast.core.plurals import counted
from holdfast.model.events import AnyEvent, FindingNoted, NodesChecked, VerdictReached
from holdfast.model.state import Checking, Ended
from holdfast.model.verdicts import Verdict
from holdfast.observe.logs.follow import Chunk

PIECE_BYTES = 4096  # what a pipe that poll() calls writable takes without waiting (PIPE_BUF)
BACKLOG_BYTES_MAX = 4 << 20
STALLED_S = 5.0  # a reader on a busy machine may pause for seconds
CHECK_NAMED_S = 1.0  # a boot check that takes longer is named while it runs
CLOSE_S_MAX = 20.0
CLOSE_LOOK_S = 0.01
OFTEN, OFTEN_S = "platform-slowdown", 60.0  # every five slow steps: here, one a minute is enough


class Console:
    """The console output of one job."""

    def __init__(self, *, quiet: bool = False, output_fd: int = 1, words_fd: int = 2) -> None:
        self._quiet = quiet
        self._output = _Sink(output_fd)
        self._words = _Sink(words_fd)
        self._often_s = float("-inf")
        self._check_named_s = float("-inf")
        self._seen: set[tuple[str, str]] = set()  # what checks found wrong on a node
        self._repeats = Repeats()

    def echo(self, chunk: Chunk, before: bytes = b"") -> None:
        """Prints output lines of the training unchanged, each with its rank if known.

        `before`: put before that prefix.
        """
        if self._quiet:
            return
        prefix = before + _prefix(chunk.source)
        for line in chunk.lines:
            self._output.write(prefix + line + b"\n")

    def tell(self, text: str) -> None:
        stamp = time.strftime("%H:%M:%S")
        for line in text.splitlines() or [""]:
            self._words.write(f"holdfast {stamp} {line}\n".encode("utf-8", "replace"))

    def decided(self, event: AnyEvent, decision: Decision) -> None:
        """Prints the message about a decision of the controller; most events have none."""
        if isinstance(event, FindingNoted):
            self._noted(event, decision)
            return
        self._waiting_for_checks(event, decision)
        if isinstance(event, NodesChecked):
            self._checked(event, is_named=len(decision.state.job.workers) > 1)
        if isinstance(event, VerdictReached):
            self._verdict(event.verdict)
        if decision.choice is not None:
            why = decision.why
            is_failure = decision.choice.rung == "fail" and not decision.choice.shadow
            lead = "fail the job, because " if is_failure else ""
            self.tell(f"action: {lead}{why}")
            if isinstance(ended := decision.state.phase, Ended):  # nothing was left to wait for
                self.tell(f"{ended.outcome}: {ended.reason}")
        elif decision.why:
            self.tell(decision.why)

    def _waiting_for_checks(self, event: AnyEvent, decision: Decision) -> None:
        """Prints that a boot check runs, once for each and only if it takes a while."""
        phase = decision.state.phase
        if not isinstance(phase, Checking):
            return
        if event.at_s - phase.since_s >= CHECK_NAMED_S and phase.since_s != self._check_named_s:
            self._check_named_s = phase.since_s
            self.tell(f"{phase_words(decision.state.job, phase)} (boot check)")

    def _noted(self, event: FindingNoted, decision: Decision) -> None:
        if self._is_only_for_the_record(event):
            return
        attempt = decision.state.job.attempt if event.attempt is None else event.attempt
        if decision.why and (text := self._repeats.shown(event.finding, decision.why, attempt)):
            self.tell(text)

    def _is_only_for_the_record(self, event: FindingNoted) -> bool:
        if event.finding != OFTEN:
            return event.finding in RECORD_ONLY
        if event.at_s - self._often_s < OFTEN_S:
            return True
        self._often_s = event.at_s
        return False

    def _checked(self, event: NodesChecked, *, is_named: bool) -> None:
        """Prints problems that checks have found, each once in a run. `is_named`: include the node's name."""
        news = tuple(
            finding for finding in event.troubles if (finding.node, key_of(finding)) not in self._seen
        )
        self._seen |= {(finding.node, key_of(finding)) for finding in news}
        for line in check_lines(replace(event, troubles=news), is_named=is_named):
            self.tell(f"{check_name(event)}: {line}")
        if event.why_not:
            self.tell(check_words(event, is_named=is_named))

    def _verdict(self, verdict: Verdict) -> None:
        if verdict.confidence <= 0:
            return
        self.tell(f"verdict: {verdict.category} ({verdict.confidence:.0%}): {verdict.title}")
        if verdict.advice:
            self.tell(f"advice: {verdict.advice}")

    def flush(self) -> None:
        self._output.flush()
        self._words.flush()

    def close(self) -> None:
        """Prints queued output as fast as the reader takes it; gives up after STALLED_S seconds without progress."""
        until_s = time.monotonic() + CLOSE_S_MAX
        stalled_s, waiting_bytes = time.monotonic(), -1
        while (left := self._output.waiting_bytes + self._words.waiting_bytes) and time.monotonic() < until_s:
            if left != waiting_bytes:
                stalled_s, waiting_bytes = time.monotonic(), left
            elif time.monotonic() - stalled_s > STALLED_S:
                return
            time.sleep(CLOSE_LOOK_S)
            self.flush()


def _prefix(source: str) -> bytes:
    if source.startswith("rank-"):
        return b"[rank" + source[5:].partition(".")[0].encode() + b"] "
    return b""


class _Sink:
    """A file descriptor with a queue, written to only when that does not block."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self._dropped = 0
        self._closed = False
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def write(self, line: bytes) -> None:
        if self._closed:
            return
        self._waiting.append(line)
        self.waiting_bytes += len(line)
        while self.waiting_bytes > BACKLOG_BYTES_MAX and len(self._waiting) > 1:
            self.waiting_bytes -= len(self._waiting.popleft())
            self._dropped += 1
        self.flush()

    def flush(self) -> None:
        try:
            while self._waiting and self._is_ready():
                if self._dropped:
                    note = (
                        f"holdfast: {counted(self._dropped, 'line is', 'lines are')} not shown here; "
                        f"`holdfast logs` shows {'it' if self._dropped == 1 else 'them'}\n"
                    )
                    self._dropped = 0
                    os.write(self._fd, note.encode())
                    continue
                piece = self._waiting[0][:PIECE_BYTES]
                written = os.write(self._fd, piece)
                self._advance(written)
        except OSError:  # the console is closed: the training continues
            self._give_up()

    def _is_ready(self) -> bool:
        return any(flags & select.POLLOUT for _, flags in self._poll.poll(0)) or self._closed_now()

    def _closed_now(self) -> bool:
        if any(
            flags & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, flags in self._poll.poll(0)
        ):
            self._give_up()
        return False

    def _give_up(self) -> None:
        self._closed = True
        self._waiting.clear()
        self.waiting_bytes = 0

    def _advance(self, written: int) -> None:
        line = self._waiting.popleft()
        self.waiting_bytes -= written
        if written < len(line):
            self._waiting.appendleft(line[written:])
