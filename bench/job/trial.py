"""One training under one launcher: started, listened to, and ended without a process left behind.

Every process it starts carries a mark of this trial alone in its environment; only processes with that
mark are ever looked at or signalled.
"""

import compileall
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import psutil
from msgspec import Struct

import holdfast
from holdfast.agent.launch import marked, sweep

MARK = "BENCH_TRIAL"
TRAINING = Path(__file__).with_name("training.py")
BIN = Path(sys.executable).parent
HOLDFAST = (str(BIN / "holdfast"),)
QUIET_PERCENT, QUIET_LOOKS = 20.0, 3
LEFT_WAIT_S = 5.0


class Moment(Struct, frozen=True):
    """A line of the training's events. `took_s` of a step is with its padding, `worked_s` without."""

    at_s: float
    kind: str
    rank: int
    pid: int
    step: int = -1
    took_s: float = 0.0
    worked_s: float = 0.0
    fault: str = ""
    master_port: int = 0


class Result(Struct, frozen=True):
    """What a training that came to its end leaves."""

    step: int
    loss: float


_MOMENTS = msgspec.json.Decoder(Moment)


class Trial:
    """A started command. `lines`: what it has said on both its outputs, each with its time of arrival."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.lines: list[tuple[float, str]] = []
        self._mark = {MARK: uuid.uuid4().hex}
        self._env = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {}), **self._mark}
        self.begun_s = time.time()
        self.process = self._start(command)

    def _start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=self._env,
            cwd=self.folder,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, args=(process,), daemon=True)
        self._listener.start()
        return process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        with (self.folder / "said.log").open("a") as log:
            for line in process.stdout or ():
                at_s = time.time()
                self.lines.append((at_s, line))
                log.write(f"{at_s:.3f} {line}")
        if process.stdout:
            process.stdout.close()

    def kill_and_follow(self, command: Sequence[str]) -> None:
        """Kills the command's first process, and only that, and goes on with another command."""
        self.process.kill()
        self.process.wait()
        self.process = self._start(command)

    def wait(self, limit_s: float) -> bool:
        """Whether the command ended within the limit."""
        try:
            self.process.wait(timeout=max(0.0, limit_s))
        except subprocess.TimeoutExpired:
            return False
        return True

    def left(self, wait_s: float = LEFT_WAIT_S) -> tuple[int, ...]:
        """What still runs of it a moment after its end."""
        until_s = time.monotonic() + wait_s
        while (found := marked(self._mark)) and time.monotonic() < until_s:
            time.sleep(0.1)
        return found

    def clear(self) -> None:
        """Ends all that is left of it."""
        sweep(self._mark)
        self.process.wait()
        self._listener.join(timeout=2)

    def has_struck(self, fault: str) -> bool:
        return (self.folder / f"struck-{fault.replace(':', '-')}").exists()

    def moments(self) -> list[Moment]:
        return moments(self.folder)

    def result(self) -> Result | None:
        try:
            return msgspec.json.decode((self.folder / "result.json").read_bytes(), type=Result)
        except (OSError, msgspec.MsgspecError):
            return None


def moments(folder: Path) -> list[Moment]:
    """All ranks' events in order of time; a line torn by a kill is left out."""
    found = []
    for path in folder.glob("events.*.jsonl"):
        for line in path.read_bytes().splitlines():
            try:
                found.append(_MOMENTS.decode(line))
            except msgspec.MsgspecError:
                continue
    return sorted(found, key=lambda moment: moment.at_s)


def training(folder: Path, *, steps: int, step_s: float = 0.02, faults: Sequence[str] = ()) -> list[str]:
    words = [str(TRAINING), "--folder", str(folder), "--steps", str(steps), "--step-s", str(step_s)]
    return [*words, *(word for fault in faults for word in ("--fault", fault))]


def torchrun(ranks: int) -> list[str]:
    return [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(ranks)]


def holdfast_run(state: Path, *flags: str) -> list[str]:
    return [*HOLDFAST, "run", "--policy", "holdfast", "--state-dir", str(state), *flags, "--"]


def compile_holdfast() -> None:
    """As an installed one is: where no bytecode is written, each process would compile all that it imports, 0.6 s of a core."""
    for folder in holdfast.__path__:
        compileall.compile_dir(folder, quiet=2)


def end_on_sigterm() -> None:
    """A bench that is asked to end clears away its trial, as it does on Ctrl-C."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def wait_quiet(limit_s: float) -> bool:
    """Waits until the machine has had little to do for a few seconds; False when it never had."""
    until_s, looks = time.monotonic() + limit_s, 0
    while looks < QUIET_LOOKS:
        if time.monotonic() > until_s:
            return False
        looks = looks + 1 if psutil.cpu_percent(interval=1) < QUIET_PERCENT else 0
    return True
