"""Runs one case under one system: starts it, makes the fault, and ends it without a process left behind."""

import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from bench.faults.draw import Case
from bench.faults.judge import Run
from bench.faults.kinds import BY_NAME
from bench.faults.outside import Place, place
from bench.faults.systems.base import System
from bench.job.trial import Result, Trial, torchrun, training

TRAINING = Path(__file__).with_name("training.py")
START_LIMIT_S = 180.0
LOOK_S = 0.05


class Setup(Struct, frozen=True, omit_defaults=True):
    """The training of a round.

    `limit_s`: after the fault, then the run is given up and counts as in need of a person. `sums`: without
    DistributedDataParallel, whose import is half of a rank's start.
    """

    ranks: int
    steps: int
    step_s: float
    limit_s: float
    sums: bool = False


def undisturbed(setup: Setup, root: Path) -> tuple[Result, float]:
    """Returns result and run time, in seconds, of the training alone under torchrun."""
    folder = Path(tempfile.mkdtemp(prefix="undisturbed-", dir=root))
    trial = Trial([*torchrun(setup.ranks), *words_of(setup, folder, ())], folder)
    begun_s = time.monotonic()
    try:
        ended = trial.wait(START_LIMIT_S + setup.limit_s + setup.steps * setup.step_s)
        took_s = time.monotonic() - begun_s
    finally:
        trial.clear()
    result = trial.result()
    assert ended and result is not None, f"the training does not run alone; see {folder / 'said.log'}"
    return result, took_s


def words_of(setup: Setup, folder: Path, faults: Sequence[str], checkpoint: Path | None = None) -> list[str]:
    words = training(folder, steps=setup.steps, step_s=setup.step_s, faults=faults)
    where = ["--checkpoint", str(checkpoint)] if checkpoint else []
    return [str(TRAINING), *words[1:], *where, *(["--sums"] if setup.sums else [])]


def run_case(
    system: System, case: Case, setup: Setup, root: Path, alone: tuple[Result, float]
) -> tuple[Run, list[str]]:
    """Returns what was seen, and the lines that the system and the training printed."""
    kind = BY_NAME[case.kind]
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=root))  # paths in a log must not tell the fault
    started = system.started if kind.class_ == "control" and system.started else system.command
    with place(kind.where, folder) as around:
        faults = [case.mark()] if kind.class_ != "healthy" else []
        command = [*started(folder / "state"), *words_of(setup, folder, faults, around.checkpoint())]
        trial = Trial(command, folder, system.env)
        begun_s = time.monotonic()
        try:
            ended = watched(trial, case, setup, around, system.again(folder / "state", command))
            took_s = time.monotonic() - begun_s
            left = len(trial.left()) if ended else 0
        finally:
            around.heal()  # first: what waits for the disk can then end
            trial.clear()
        run = Run(
            system=system.name,
            case=case,
            moments=tuple(trial.moments()),
            found=tuple(system.found(trial)),
            ended=ended,
            code=trial.process.returncode if ended else None,
            left=left,
            took_s=took_s,
            result=trial.result(),
            expected=alone[0],
            expected_s=alone[1],
        )
    return run, [line for _, line in trial.lines]


def watched(trial: Trial, case: Case, setup: Setup, around: Place, again: list[str]) -> bool:
    """Returns whether the command ended by itself in time. Makes and heals the fault of `around` on the way.

    A control-plane case starts the system again once, if its first process was killed.
    """
    give_up_s = time.monotonic() + START_LIMIT_S + setup.steps * setup.step_s
    restarts = 1 if BY_NAME[case.kind].class_ == "control" else 0
    struck_s: float | None = None
    healed = False
    while True:
        ended = trial.wait(LOOK_S)
        now_s = time.monotonic()
        if struck_s is None and trial.has_struck(case.mark()):
            struck_s, give_up_s = now_s, now_s + setup.limit_s + setup.steps * setup.step_s
            around.strike(trial)
        elif struck_s is not None and not healed and around.heal_after_s is not None:
            if now_s > struck_s + around.heal_after_s:
                around.heal()
                healed = True
        if ended:
            if not (restarts and trial.process.returncode == -signal.SIGKILL):
                return True
            restarts -= 1
            trial.kill_and_follow(again)
        if now_s > give_up_s:
            return False
