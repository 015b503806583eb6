"""What a copy of the newest checkpoint in memory costs, how long it takes, and what it saves.

    python -m bench.job.ram_checkpoints --pairs 5 --mib 256 --wait-quiet 60

Steps: the same training under Holdfast in pairs, with and without --ram-checkpoints, which of the two goes first taking
turns. It saves a checkpoint of --mib every --every steps. Given is the median of all steps, as padded to 20 ms and its work
alone, and how long each copy took.
Damage: rank 1 is killed, and before that the newest checkpoint is changed on the disk in its middle. The next attempt must
end with the loss of a training that nothing happened to; given are the seconds from the kill to the next step.
"""

import argparse
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.job.overhead import interval
from bench.job.trial import (
    Moment,
    Trial,
    compile_holdfast,
    end_on_sigterm,
    holdfast_run,
    torchrun,
    training,
    wait_quiet,
)
from holdfast.agent.checkpoints.store import MANIFEST, PREFIX, SHM, Manifest
from holdfast.core.checkpoints.words import KIND
from holdfast.journal.store import open_reader

RANKS = 4
WARM_STEPS = 50
LIMIT_S = 600.0
STEPS, EVERY, FAULT_STEP = 130, 30, 95
RESTARTS = ("--max-restarts", "3", "--unconditional-restart")


# Of the sum of gradients: DistributedDataParallel forms its buckets anew after the first step, also of an attempt that continues.
ROUNDING = 1e-9


def main() -> None:
    options = read_options()
    end_on_sigterm()
    compile_holdfast()
    if options.part in ("steps", "all"):
        report_steps(options)
    if options.part in ("damage", "all"):
        report_damage(options)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5, help="of the part `damage`")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--mib", type=int, default=256, help="size of a checkpoint")
    parser.add_argument("--every", type=int, default=250, help="steps between two checkpoints")
    parser.add_argument("--part", choices=("steps", "damage", "all"), default="all")
    parser.add_argument("--wait-quiet", type=float, default=0.0, metavar="S")
    return parser.parse_args()


def saving(folder: Path, options: argparse.Namespace, steps: int, every: int, *faults: str) -> list[str]:
    words = training(folder, steps=steps, faults=faults)
    return [*torchrun(RANKS), *words, "--checkpoint-every", str(every), "--checkpoint-mib", str(options.mib)]


# Steps ---------------------------------------------------------------------------------------------------


def report_steps(options: argparse.Namespace) -> None:
    ratios: dict[str, list[float]] = {"as trained, padded to 20 ms": [], "its work alone": []}
    copies: list[float] = []
    for number in range(options.pairs):
        steps: dict[bool, list[Moment]] = {}
        for copied in (True, False) if number % 2 else (False, True):
            if options.wait_quiet:
                wait_quiet(options.wait_quiet)
            steps[copied], took = steps_of_a_run(options, copied=copied)
            copies += took
        for words, take in zip(ratios, ("took_s", "worked_s"), strict=True):
            ours, theirs = (
                statistics.median(getattr(one, take) for one in steps[side]) for side in (True, False)
            )
            ratios[words].append(ours / theirs)
        print(f"pair {number + 1} of {options.pairs} is done", file=sys.stderr, flush=True)
    print("| median step | ratio with / without | 95 % |\n|---|---|---|")
    for words, found in ratios.items():
        low, high = interval(found)
        print(f"| {words} | {statistics.median(found):.5f} | {low:.5f}–{high:.5f} |")
    if copies:
        print(
            f"\n{len(copies)} first copies of {options.mib} MiB: {statistics.median(copies):.2f} s each (median)"
        )


def steps_of_a_run(options: argparse.Namespace, *, copied: bool) -> tuple[list[Moment], list[float]]:
    """All ranks' steps after the first fifty, and how long the copies took that the log tells of."""
    folder = Path(tempfile.mkdtemp(prefix="ram-checkpoints-"))
    flags = ["--ram-checkpoints", f"{3 * options.mib}MiB"] if copied else []
    command = [*holdfast_run(folder / "state", "--job", "t", *flags)]
    trial = Trial([*command, *saving(folder, options, options.steps, options.every)], folder)
    try:
        if not trial.wait(LIMIT_S):
            raise SystemExit(f"not over in {LIMIT_S:.0f} s: {folder}")
        steps = [one for one in trial.moments() if one.kind == "step" and one.step > WARM_STEPS]
        took = [float(one["took_s"]) for one in findings(folder, "copied")]
        if copied and not took:
            raise SystemExit(f"no copy was made: {folder}")
        return steps, took
    finally:
        trial.clear()
        shutil.rmtree(folder, ignore_errors=True)


def findings(folder: Path, *outcomes: str) -> list[dict[str, float | int | str]]:
    """The numbers of the journal's findings about checkpoints, in order."""
    reader = open_reader(folder / "state" / "jobs" / "t" / "journal.db")
    try:
        rows = [msgspec.json.decode(row.event) for row in reader.read()]
    finally:
        reader.close()
    told = [row["numbers"] for row in rows if row.get("finding") == KIND]
    return [numbers for numbers in told if numbers["outcome"] in outcomes]


# Damage --------------------------------------------------------------------------------------------------


def report_damage(options: argparse.Namespace) -> None:
    plain = lost = None
    times: list[float] = []
    for number in range(options.runs):
        if options.wait_quiet:
            wait_quiet(options.wait_quiet)
        plain = plain or loss_of_a_run(options)
        lost, took_s = after_damage(options)
        if not math.isclose(lost, plain, rel_tol=ROUNDING):
            raise SystemExit(f"the loss is {lost}, and {plain} if nothing happens")
        times.append(took_s)
        print(f"run {number + 1} of {options.runs} is done", file=sys.stderr, flush=True)
    low, high = min(times), max(times)
    print(
        f"\nkill → step with the damaged checkpoint restored: {statistics.median(times):.2f} s [{low:.2f}–{high:.2f}]"
    )
    print(f"{len(times)} of {len(times)} runs with the loss of an undisturbed one: {plain:.12f}")


def loss_of_a_run(options: argparse.Namespace) -> float:
    folder = Path(tempfile.mkdtemp(prefix="ram-checkpoints-"))
    trial = Trial(saving(folder, options, STEPS, EVERY), folder)
    try:
        result = trial.result() if trial.wait(LIMIT_S) else None
        if result is None:
            raise SystemExit(f"no result: {folder}")
        return result.loss
    finally:
        trial.clear()
        shutil.rmtree(folder, ignore_errors=True)


def after_damage(options: argparse.Namespace) -> tuple[float, float]:
    """The loss of a training whose rank 1 is killed when its newest checkpoint is damaged, and the seconds from the kill to
    the next step.
    """
    folder = Path(tempfile.mkdtemp(prefix="ram-checkpoints-"))
    fault = f"{FAULT_STEP}:1:wait"
    command = [
        *holdfast_run(
            folder / "state", "--job", "t", *RESTARTS, "--ram-checkpoints", f"{3 * options.mib + 16}MiB"
        )
    ]
    trial = Trial([*command, *saving(folder, options, STEPS, EVERY, fault)], folder)
    try:
        until("the fault", lambda: trial.has_struck(fault))
        path = folder / "checkpoint.pt"
        until("the copy", lambda: is_copied(path, folder))
        flip(path)
        (folder / "go-on").touch()
        killed_s = time.time()
        if not trial.wait(LIMIT_S):
            raise SystemExit(f"not over in {LIMIT_S:.0f} s: {folder}")
        result, told = trial.result(), findings(folder, "restored")
        if result is None or not told:
            raise SystemExit(f"no result, or nothing was restored: {folder}")
        step = next(one for one in trial.moments() if one.kind == "step" and one.at_s > killed_s)
        return result.loss, step.at_s - killed_s
    finally:
        trial.clear()
        shutil.rmtree(folder, ignore_errors=True)


def is_copied(path: Path, folder: Path) -> bool:
    """Whether the newest complete copy of the job is one of this very file."""
    state = path.stat()
    for found in Path(SHM).glob(f"{PREFIX}-*/*/{MANIFEST}"):
        try:
            manifest = msgspec.json.decode(found.read_bytes(), type=Manifest)
        except (OSError, msgspec.MsgspecError):
            continue
        if manifest.folder == str(folder.resolve()):
            return [(one.inode, one.size) for one in manifest.files] == [(state.st_ino, state.st_size)]
    return False


def flip(path: Path) -> None:
    """Changes one byte in the middle, as a failing disk does."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def until(what: str, is_true: Callable[[], bool]) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not is_true():
        if time.monotonic() > until_s:
            raise SystemExit(f"waited {LIMIT_S:.0f} s for {what}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
