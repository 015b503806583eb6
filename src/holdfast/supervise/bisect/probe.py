"""Runs a command once, reads its steps while it runs, and ends it as soon as its condition is decided."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from holdfast.core.bisect.condition import Condition, Judged, Shown, judge
from holdfast.model.step_forms import StepForm
from holdfast.model.steps import StepRecord
from holdfast.parsers.steps.lines import StepLines

POLL_S = 0.02
GRACE_S = 5.0  # between SIGTERM and SIGKILL
READ_BYTES = 1 << 20
STREAMS = ("stdout", "stderr")
SKIP_CODE = 125  # as of `git bisect run`: this run cannot be judged


class Order(Struct, frozen=True, kw_only=True):
    """Parameters of one test run. `folder`: receives stdout and stderr.

    `limit_s`: maximum duration in seconds.
    """

    command: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    folder: Path
    limit_s: float


class Reading:
    """Reads the values that --until tests (loss, step time) from the output of one run as it grows."""

    def __init__(self, folder: Path, forms: Sequence[StepForm]) -> None:
        self.shown = Shown()
        self._lines = {name: StepLines(forms, details=True) for name in STREAMS}
        self._files: dict[str, BinaryIO] = {name: open(folder / name, "rb", buffering=0) for name in STREAMS}
        self._arrived: tuple[int, float] | None = None  # the last step and when its line came

    def read(self, now_s: float) -> None:
        for name, lines in self._lines.items():
            while block := self._files[name].read(READ_BYTES):
                for item in lines.feed_block(block):
                    if isinstance(item, StepRecord):
                        self._take(item, now_s)

    def finish(self, now_s: float) -> None:
        self.read(now_s)
        for lines in self._lines.values():
            for item in lines.finish():
                if isinstance(item, StepRecord):
                    self._take(item, now_s)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _take(self, record: StepRecord, now_s: float) -> None:
        step, shown = record.step, self.shown
        if step is None:
            return
        values = (("loss", record.loss), ("grad_norm", record.grad_norm), ("lr", record.learning_rate))
        for name, value in values:
            if value is not None:
                shown.values.setdefault(name, {})[step] = value
        time_s = (
            record.time_s
            if record.time_s is not None and isfinite(record.time_s)
            else self._between(step, now_s)
        )
        if time_s is not None:
            shown.values.setdefault("step_s", {})[step] = time_s
        shown.last_step = max(step, shown.last_step or 0)
        self._arrived = (step, now_s)

    def _between(self, step: int, now_s: float) -> float | None:
        """Returns the duration of a step in seconds, from the arrival times of log lines, if the log does
        not name it.
        """
        if self._arrived is None or step <= self._arrived[0]:
            return None
        return (now_s - self._arrived[1]) / (step - self._arrived[0])


def run(order: Order, condition: Condition, forms: Sequence[StepForm]) -> tuple[Judged, float]:
    """Runs the command, and returns its judgement and its duration in seconds.

    Ends every process of its process group.
    """
    order.folder.mkdir(parents=True, exist_ok=True)
    begun_s = time.monotonic()
    with open(order.folder / STREAMS[0], "wb") as out, open(order.folder / STREAMS[1], "wb") as err:
        try:
            process = subprocess.Popen(
                order.command,
                cwd=order.cwd,
                env=dict(order.env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except OSError as error:
            return Judged("unknown", f"{order.command[0]} cannot be started: {error.strerror}"), 0.0
    reading = Reading(order.folder, forms)
    try:
        judged = _followed(process, reading, order, condition, begun_s)
    finally:
        reading.close()
        _end(process)
    return judged, time.monotonic() - begun_s


def _followed(
    process: subprocess.Popen[bytes], reading: Reading, order: Order, condition: Condition, begun_s: float
) -> Judged:
    shown = reading.shown
    while True:
        code = process.poll()
        now_s = time.monotonic()
        shown.seconds = now_s - begun_s
        shown.timed_out = code is None and shown.seconds > order.limit_s
        shown.is_over = code is not None or shown.timed_out
        shown.exit = code
        if shown.is_over:
            reading.finish(now_s)
        else:
            reading.read(now_s)
        if code == SKIP_CODE:
            return Judged(
                "unknown", f"the command exited with {SKIP_CODE}, which means skip: this run cannot be judged"
            )
        judged = judge(condition, shown)
        if judged is not None:
            return judged
        time.sleep(POLL_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        except PermissionError:  # only processes of another user are left in the group
            break
        if number == signal.SIGTERM:
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                continue
    process.wait()
