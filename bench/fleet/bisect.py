"""Measures whether `holdfast bisect` finds the right commit, over real commits of generated repositories with one planted fault.

    python -m bench.fleet.bisect --trials 30 --commits 200 --seed 1

Each repository has side branches that are merged, and a small training that every commit changes a little. In turn a commit
makes steps slow, the loss high, or a run crash; all later commits have it. The command is run as users run it, in the
repository. Exits with 1 where a trial finds another commit, or needs more than log2(commits) + 3 runs.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from bench.job.trial import HOLDFAST

KINDS = {"slow": "step_s>0.1@3-7", "loss": "loss>4.5@12", "crash": "exit!=0"}
SIDE_EVERY, SIDE_COMMITS = 25, 4
LIMIT_S = 600.0
PROGRAM = """import time
# change {number}
RATE = {rate}
weight = 3.0
for step in range(1, 13):
    weight -= RATE * 2 * weight
    {fault}
    print(f"step {{step}}/12 loss: {{weight * weight + LIFT:.6f}}", flush=True)
"""
FAULTS = {"slow": "time.sleep(0.2)", "loss": "LIFT = 5.0", "crash": "assert step < 7"}


class Commit(Struct, frozen=True):
    """`parents`: numbers of earlier commits."""

    number: int
    parents: tuple[int, ...]


def main() -> int:
    options = read_options()
    limit = math.floor(math.log2(options.commits) + 3)
    right = 0
    for trial in range(options.trials):
        kind = tuple(KINDS)[trial % len(KINDS)]
        with tempfile.TemporaryDirectory(prefix="bisect-", ignore_cleanup_errors=True) as folder:
            right += _trial(kind, options.seed * 1_000 + trial, options.commits, limit, Path(folder))
    print(f"right commit in at most {limit} runs: {right} of {options.trials}")
    return 0 if right == options.trials else 1


def _trial(kind: str, seed: int, count: int, limit: int, folder: Path) -> bool:
    dice = random.Random(seed)
    commits = _history(count)
    planted = dice.choice([commit.number for commit in commits[5:-5] if len(commit.parents) == 1])
    repository = folder / "repository"
    ids = _made(repository, commits, planted, kind, dice)
    begun_s = time.monotonic()
    words = ["--good", ids[1], "--bad", ids[count], "--until", KINDS[kind], "--timeout", "2min"]
    done = subprocess.run(
        [
            *HOLDFAST,
            "bisect",
            "--json",
            "--state-dir",
            str(folder / "state"),
            *words,
            "--",
            sys.executable,
            "train.py",
        ],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    found = (
        json.loads(done.stdout) if done.stdout else {"found": [], "runs": [], "text": [done.stderr[-300:]]}
    )
    runs = len(found["runs"])
    is_right = found["found"] == [ids[planted]] and runs <= limit
    print(
        f"{kind:<6} commit {planted:>4} of {count}: {'right' if is_right else 'WRONG'}, {runs} runs, "
        f"{time.monotonic() - begun_s:.1f} s" + ("" if is_right else f": {found['text']}"),
        flush=True,
    )
    return is_right


def _history(count: int) -> list[Commit]:
    """A line of commits, from which a few leave now and then and are merged again."""
    commits = [Commit(1, ())]
    tip = 1
    while len(commits) < count:
        number = len(commits) + 1
        if number % SIDE_EVERY == 0 and number + SIDE_COMMITS + 2 <= count:
            base, side = tip, tip
            for _ in range(SIDE_COMMITS):
                number = len(commits) + 1
                commits.append(Commit(number, (side,)))
                side = number
            tip = len(commits) + 1
            commits.append(Commit(tip, (base,)))
            number = len(commits) + 1
            commits.append(Commit(number, (tip, side)))
        else:
            commits.append(Commit(number, (tip,)))
        tip = number
    return commits


def _made(
    repository: Path, commits: list[Commit], planted: int, kind: str, dice: random.Random
) -> dict[int, str]:
    """Makes the repository, and returns the id of each commit by its number."""
    subprocess.run(["git", "init", "-q", str(repository)], env=_env(), check=True)
    bad: set[int] = set()
    parts: list[str] = []
    for commit in commits:
        if commit.number == planted or bad & set(commit.parents):
            bad.add(commit.number)
        is_bad = commit.number in bad
        fault = f"LIFT = 0.0; {FAULTS[kind]}" if is_bad else "LIFT = 0.0"
        text = PROGRAM.format(number=commit.number, rate=round(0.02 + dice.random() * 0.02, 5), fault=fault)
        text = text if commit.number % 7 else text.replace("weight", "w")
        message = f"change {commit.number}"
        parts.append(
            f"commit refs/heads/trunk\nmark :{commit.number}\ncommitter a <a@example.org> {1_700_000_000 + commit.number} +0000\n"
            f"data {len(message)}\n{message}\n"
        )
        parts += [
            f"{'from' if not place else 'merge'} :{parent}\n" for place, parent in enumerate(commit.parents)
        ]
        parts.append(f"M 100644 inline train.py\ndata {len(text)}\n{text}\n")
    marks = repository / ".git" / "marks"
    subprocess.run(
        ["git", "fast-import", "--quiet", "--force", f"--export-marks={marks}"],
        input="".join(parts),
        text=True,
        cwd=repository,
        env=_env(),
        check=True,
    )
    subprocess.run(["git", "checkout", "-q", "trunk"], cwd=repository, env=_env(), check=True)
    return {int(line.split()[0][1:]): line.split()[1] for line in marks.read_text().splitlines()}


def _env() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
