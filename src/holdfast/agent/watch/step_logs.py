"""Reads step records from the logs of one attempt: selects lines that may report a step, and parses them in
batches.

Many short steps are read once a second, which costs 1 µs a line instead of 20; few long ones are read at
once.
"""

import re
import threading
from collections.abc import Callable, Sequence

from holdfast.model.step_forms import SPECIFIC, StepForm
from holdfast.model.steps import PhaseMark, StepRecord
from holdfast.observe.logs.follow import Chunk
from holdfast.observe.search.line_sieve import LineSieve
from holdfast.parsers.steps.forms import MARK_WORDS, StepFormError
from holdfast.parsers.steps.lines import JOINED_LINES_MAX, STEMS, StepLines

RANK_LOG = re.compile(r"rank-(\d+)\.log")
SETTING_WORDS = ("atch", "seq")  # in lines that name the size of a batch or of a sequence
QUICK_PER_S = 5.0  # steps; more of them are read together
TOGETHER_S = 1.0
TOGETHER_LINES_MAX = 20_000
PAUSE_S = 0.5  # before lines that are read together: a pause of the first step, and not a part of all


class StepForms:
    """The formats of step lines (step forms) of this run, loaded and compiled in a thread, so that the
    training does not wait.

    `load` may raise StepFormError. `why_not`: why steps cannot be read; the run continues without.
    """

    def __init__(self, load: Callable[[], tuple[StepForm, ...]]) -> None:
        self.forms: tuple[StepForm, ...] = ()
        self._sieve: LineSieve | None = None
        self._counts: dict[str | None, str] = {}
        self.why_not = ""
        self._load = load
        self._ready = threading.Event()
        threading.Thread(target=self._run, name="holdfast-step-forms", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Returns whether loading the step forms has finished, successfully or not."""
        return self._ready.is_set()

    def wait(self, timeout_s: float) -> bool:
        return self._ready.wait(timeout_s) and not self.why_not

    def batch_counts(self, framework: str | None) -> str:
        """Returns what the batch size in a framework's log counts: samples or tokens; "" if its step forms
        differ or it is unknown.
        """
        if framework not in self._counts:
            found = {form.batch_counts for form in self.forms if form.framework == framework}
            self._counts[framework] = found.pop() if len(found) == 1 else ""
        return self._counts[framework]

    def sieve(self) -> LineSieve:
        """Returns a new filter for the lines of one log, which selects lines that may report a step."""
        if self._sieve is None:
            self._sieve = LineSieve(words_of(self.forms), after=JOINED_LINES_MAX)
        return self._sieve.fork()

    def _run(self) -> None:
        try:
            forms = self._load()
            if forms:
                StepLines(forms)  # compiles their patterns, which the wheel is not to wait for
            self.forms = forms
        except (StepFormError, OSError) as error:
            self.why_not = str(error)
        except Exception as error:  # noqa: BLE001 - an exception in a thread would only reach the terminal
            self.why_not = f"{type(error).__name__}: {error}"
        finally:
            self._ready.set()


def words_of(forms: Sequence[StepForm]) -> tuple[bytes, ...]:
    """Returns case-insensitive regular expressions for the words that the step forms require in a line.

    For a step form without required words, returns an expression that matches any line.
    """
    if any(not form.literal and form.trust >= SPECIFIC for form in forms):
        return ()
    literals = {form.literal for form in forms if form.literal} | {*MARK_WORDS, *SETTING_WORDS}
    stems = STEMS.pattern.removeprefix(b"(?i)").split(b"|")
    return (*stems, *(re.escape(literal.encode()) for literal in sorted(literals)))


class StepLog:
    """One growing log whose step lines are read. `add` new lines, and `take` when it `is_due`."""

    def __init__(self, source: str, forms: StepForms) -> None:
        self.source = source
        named = RANK_LOG.match(source)
        self._reader = StepLines(forms.forms, rank=int(named[1]) if named else None)
        self._sieve = forms.sieve()
        self._lines: list[bytes] = []
        self._first_s = 0.0  # when the first of these came
        self._last_s = 0.0
        self._taken_s: float | None = None  # when the last of those before came
        self._counted_s = float("-inf")
        self._count = 0  # of records since
        self._is_quick = False

    @property
    def framework(self) -> str | None:
        return self._reader.framework

    def add(self, chunk: Chunk) -> None:
        if not self._lines:
            self._first_s = chunk.at_s
        self._last_s = chunk.at_s
        self._lines += self._sieve.kept(chunk.lines)

    def is_due(self, at_s: float) -> bool:
        if not self._lines:
            return False
        waits = self._is_quick and len(self._lines) < TOGETHER_LINES_MAX
        return not waits or at_s - self._first_s >= TOGETHER_S

    def take(self) -> list[tuple[float, StepRecord | PhaseMark]]:
        """Returns the step records in the lines that were added, each with its arrival time if known."""
        lines, self._lines = self._lines, []
        if self._is_quick:
            items = self._reader.feed_block(b"\n".join(lines) + b"\n", self._last_s)
        else:
            items = self._reader.feed(lines, self._last_s)
        self._count += len(items)
        gone_s = self._last_s - self._counted_s
        if gone_s >= TOGETHER_S:
            self._is_quick = self._count > QUICK_PER_S * gone_s
            self._counted_s, self._count = self._last_s, 0
        came = self._came(items)
        self._taken_s = self._last_s
        return came

    def finish(self) -> list[tuple[float, StepRecord | PhaseMark]]:
        """Ends the log. Returns the step records in its last lines."""
        return [*self.take(), *((self._last_s, item) for item in self._reader.finish())]

    def _came(self, items: Sequence[StepRecord | PhaseMark]) -> list[tuple[float, StepRecord | PhaseMark]]:
        """Records that were read together are spread evenly: with one stamp for all, their steps took no time."""
        count = sum(isinstance(item, StepRecord) for item in items)
        if count < 2:
            return [(self._last_s, item) for item in items]
        before_s = self._taken_s
        if before_s is None or self._first_s - before_s > PAUSE_S:
            start_s, parts, number = self._first_s, count - 1, -1
        else:
            start_s, parts, number = before_s, count, 0
        came = []
        for item in items:
            number += isinstance(item, StepRecord)
            came.append((start_s + (self._last_s - start_s) * max(number, 0) / parts, item))
        return came
