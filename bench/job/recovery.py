"""How soon a real training goes on after a fault: Holdfast beside other launchers, in one run.

Four ranks train over gloo, one of them meets a fault, and the wall clock says when it was noticed and when
all ranks had made their first step again. Systems take turns. One JSON line a run goes to --out; the last
thing printed is a Markdown table.

    python -m bench.job.recovery --runs 3 --wait-quiet 60
    python -m bench.job.recovery --systems holdfast,holdfast-standby,torchrun --faults kill9 --primed [--fault-step 60]
    python -m bench.job.recovery --systems holdfast --faults kill9 --primed --series 5

`--primed`: the job has run before in the same state folder, for a second. `--series N`: N faults, 5 s apart; each is a row.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.faults.systems.base import NotHere, System
from bench.faults.systems.registry import system
from bench.job.rows import Row, collected
from bench.job.trial import Moment, Trial, end_on_sigterm, training, wait_quiet

RANKS, FAULTY_RANK = 4, 2
FAULTS = ("kill9", "exception", "sigstop", "deadlock")
START_LIMIT_S = 120.0
LOOK_S = 0.1
APART_STEPS = 250  # 5 s
PRIME_STEPS = 50


def main() -> int:
    options = read_options()
    end_on_sigterm()
    systems = []
    for name in options.systems:
        try:
            systems.append(system(name, RANKS))
        except NotHere as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    rows = collected(
        (
            row
            for run in range(options.runs)
            for fault in options.faults
            for one in systems
            for row in measured(one, fault, run, options)
        ),
        options.out,
    )
    print(table(rows))
    print(ratios(rows))
    return 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--systems", type=_names, default=["holdfast", "torchrun", "ft_launcher"])
    parser.add_argument("--faults", type=_names, default=list(FAULTS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/recovery.jsonl"))
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after the fault, then given up")
    parser.add_argument("--wait-quiet", type=float, default=0.0, metavar="S", help="for an idle machine")
    parser.add_argument("--fault-step", type=int, default=605, help="12 s of training by default")
    parser.add_argument("--steps-after", type=int, default=100)
    parser.add_argument("--primed", action="store_true", help="after a short run of the same command")
    parser.add_argument("--series", type=int, default=1, metavar="N", help="faults, 5 s apart")
    parser.add_argument("--keep", action="store_true", help="leave the folders of the runs")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    return text.split(",")


# One run -------------------------------------------------------------------------------------------------


def measured(one: System, fault: str, run: int, options: argparse.Namespace) -> list[Row]:
    """One row for each fault of the run."""
    folder = Path(tempfile.mkdtemp(prefix=f"recovery-{one.name}-{fault}-"))
    if options.primed:
        prime(one, folder)
    quiet = wait_quiet(options.wait_quiet) if options.wait_quiet else None
    at = [options.fault_step + number * APART_STEPS for number in range(options.series)]
    strikes = [f"{step}:{FAULTY_RANK}:{fault}" for step in at]
    steps = at[-1] + options.steps_after
    command = [*one.command(folder / "state"), *training(folder, steps=steps, faults=strikes)]
    trial = Trial(command, folder, one.env)
    try:
        ended = watched(trial, strikes, options.limit)
        left = len(trial.left()) if ended else None
    finally:
        trial.clear()
    of_run: Row = {"system": one.name, "fault": fault, "run": run, "quiet": quiet, "ended": ended}
    of_run |= {"exit_code": trial.process.returncode if ended else None, "orphans": left}
    of_run |= {"success": ended and is_success(trial, steps)}
    if options.keep:
        of_run["folder"] = str(folder)
    rows = [of_run | {"at_step": step} | times(one, trial, trial.moments(), step) for step in at]
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def prime(one: System, folder: Path) -> None:
    """A short run of the same command, so that what it imports is known to the next."""
    before = folder / "before"
    before.mkdir()
    trial = Trial([*one.command(folder / "state"), *training(before, steps=PRIME_STEPS)], before, one.env)
    try:
        trial.wait(START_LIMIT_S)
    finally:
        trial.clear()
    shutil.rmtree(folder / "state" / "jobs", ignore_errors=True)


def watched(trial: Trial, strikes: list[str], limit_s: float) -> bool:
    """Whether the command came to its end by itself, within the limit after each fault."""
    give_up_s, left = time.monotonic() + START_LIMIT_S, list(strikes)
    while not trial.wait(LOOK_S):
        if left and trial.has_struck(left[0]):
            del left[0]
            give_up_s = time.monotonic() + limit_s
        if time.monotonic() > give_up_s:
            return False
    return True


def is_success(trial: Trial, steps: int) -> bool:
    result = trial.result()
    return trial.process.returncode == 0 and result is not None and result.step == steps


def times(one: System, trial: Trial, all_moments: list[Moment], step: int) -> Row:
    """Seconds from the fault at that step; None for what did not happen."""
    faults = [moment for moment in all_moments if moment.kind == "struck"]
    struck = next((moment for moment in faults if moment.step == step), None)
    if struck is None:
        return {"found_s": None, "stepping_s": None, "steps_lost": None}
    before = {moment.pid for moment in all_moments if moment.at_s <= struck.at_s}
    until_s = min((moment.at_s for moment in faults if moment.at_s > struck.at_s), default=float("inf"))
    later = [moment for moment in all_moments if struck.at_s < moment.at_s < until_s]
    new = [moment for moment in later if moment.pid not in before]
    first: dict[int, float] = {}
    for moment in new:
        if moment.kind == "step":
            first.setdefault(moment.rank, moment.at_s)
    resumed = next((moment.step for moment in new if moment.kind == "resumed"), None)
    noticed_s = next((found.at_s for found in one.found(trial) if found.at_s > struck.at_s), None)
    return {
        "found_s": _since(struck, noticed_s),
        "begun_s": _since(struck, min((moment.at_s for moment in new), default=None)),
        "stepping_s": _since(struck, max(first.values()) if len(first) == RANKS else None),
        "steps_lost": struck.step - resumed if resumed is not None else None,
    }


def _since(struck: Moment, at_s: float | None) -> float | None:
    return None if at_s is None else round(at_s - struck.at_s, 3)


# The tables ----------------------------------------------------------------------------------------------


def table(rows: list[Row]) -> str:
    lines = [
        "| fault | system | found | stepping again | steps lost | recovered | orphans |",
        "|---" * 7 + "|",
    ]
    for fault, name in _pairs(rows):
        of = [row for row in rows if row["fault"] == fault and row["system"] == name]
        good = sum(bool(row["success"]) for row in of)
        orphans = sum(row["orphans"] or 0 for row in of)  # type: ignore[misc]
        cells = (fault, name, _spread(of, "found_s"), _spread(of, "stepping_s"), _spread(of, "steps_lost", 0))
        lines.append(f"| {' | '.join(cells)} | {good}/{len(of)} | {orphans} |")
    return "\n".join(lines)


def ratios(rows: list[Row]) -> str:
    """Holdfast's median over each other's; a fault that the other never recovered from has no ratio."""
    lines = ["", "| fault | against | found, ratio | stepping, ratio |", "|---|---|---|---|"]
    for fault, name in _pairs(rows):
        if name != "holdfast":
            cells = [_ratio(rows, fault, name, key) for key in ("found_s", "stepping_s")]
            lines.append(f"| {fault} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _pairs(rows: list[Row]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((str(row["fault"]), str(row["system"])) for row in rows))


def _values(rows: list[Row], key: str) -> list[float]:
    return [float(row[key]) for row in rows if row.get(key) is not None]  # type: ignore[arg-type]


def _spread(rows: list[Row], key: str, digits: int = 2) -> str:
    values = _values(rows, key)
    if not values:
        return "never"
    unit = " s" if key.endswith("_s") else ""
    words = (
        f"{statistics.median(values):.{digits}f}{unit} [{min(values):.{digits}f}–{max(values):.{digits}f}]"
    )
    return words if len(values) == len(rows) else f"{words} in {len(values)} of {len(rows)}"


def _ratio(rows: list[Row], fault: str, name: str, key: str) -> str:
    ours, theirs = (
        _values([row for row in rows if row["fault"] == fault and row["system"] == one], key)
        for one in ("holdfast", name)
    )
    return f"{statistics.median(ours) / statistics.median(theirs):.2f}" if ours and theirs else "–"


if __name__ == "__main__":
    raise SystemExit(main())
