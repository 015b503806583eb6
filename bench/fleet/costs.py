"""Checks that the classes of `holdfast cost` add up to the wall clock, on real short trainings hit by random faults.

    python -m bench.fleet.costs --runs 50 --seed 1

Each run is the demo's training under torchrun and `holdfast run`. The wall clock is measured outside of Holdfast's journal,
from the first to the last word of its record. Prints one row a run and the largest difference; exits with 1 above 0.1 %.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from bench.job.trial import HOLDFAST, Trial, end_on_sigterm, torchrun
from holdfast.archive.costs import read_cost
from holdfast.archive.job import read
from holdfast.core.costs.classes import LOST
from holdfast.journal.jobdir import StateDir

TRAIN = Path(__file__).parents[2] / "src/holdfast/demo/train.py"
KINDS = ("kill", "exception", "stop")
LIMIT_S = 240.0
DIFFERENCE_MAX = 0.001


def main() -> int:
    options = read_options()
    end_on_sigterm()
    worst, bad = 0.0, 0
    print(f"{'seed':>5} {'wall':>8} {'classes':>8} {'off':>9}  classes, seconds")
    for seed in range(options.seed, options.seed + options.runs):
        with tempfile.TemporaryDirectory(prefix="costs-", ignore_cleanup_errors=True) as folder:
            off = run(seed, Path(folder), options.steps)
        worst, bad = max(worst, off), bad + (off > DIFFERENCE_MAX)
    print(f"{options.runs} runs, largest difference {worst:.4%}, {bad} above {DIFFERENCE_MAX:.1%}")
    return 1 if bad else 0


def run(seed: int, folder: Path, steps: int) -> float:
    """The difference between the classes and the wall clock, as a share."""
    dice = random.Random(seed)
    ranks = dice.randint(2, 3)
    at = sorted(dice.sample(range(15, steps - 10), dice.randint(1, 2)))
    faults = [f"{step}:{dice.randrange(ranks)}:{dice.choice(KINDS)}" for step in at]
    words = [
        "--folder",
        str(folder),
        "--steps",
        str(steps),
        "--checkpoint-every",
        str(dice.choice((5, 10, 25))),
    ]
    words += [word for fault in faults for word in ("--fault", fault)]
    state = folder / "state"
    flags = ["run", "--policy", "holdfast", "--state-dir", str(state), "--no-standby", "--quiet", "--"]
    trial = Trial([*HOLDFAST, *flags, *torchrun(ranks), str(TRAIN), *words], folder)
    begun_s = time.monotonic()
    try:
        in_time = trial.wait(LIMIT_S)
    finally:
        trial.clear()
    outside_s = time.monotonic() - begun_s
    (job,) = StateDir(state).jobs()
    summary, cost = read(job).summary, read_cost(job).cost
    wall_s = (summary.last_at_s or 0.0) - (summary.submitted_at_s or 0.0)
    sum_s = sum(cost.by_class.values())
    off = abs(sum_s - wall_s) / wall_s if wall_s else 1.0
    if not in_time or not wall_s <= outside_s or len(summary.incidents) < 1 or not LOST & set(cost.by_class):
        print(f"seed {seed}: the run did not end, or had no incident: {' '.join(faults)}", file=sys.stderr)
        off = 1.0
    said = "  ".join(f"{name} {seconds:.2f}" for name, seconds in cost.by_class.items())
    print(f"{seed:>5} {wall_s:>8.2f} {sum_s:>8.2f} {off:>9.5%}  {said}", flush=True)
    return off


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=120)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
