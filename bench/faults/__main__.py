"""Measures what systems do about real faults of a small real training: finding, naming, and going on by themselves.

    python -m bench.faults --systems holdfast,torchrun --faults 30 --seed 1 --out out/faults
    python -m bench.faults --systems holdfast --each 1        # every kind once

Each fault of a round, drawn with the seed, strikes the same training under each system. The truth follows from how the
fault is made (bench/faults/kinds.py). One JSON line a run goes to results.jsonl in the folder of --out, the table to
results.md there. The same command again continues a round that was interrupted. With --corpus, the logs of torchrun and
its relatives become labelled cases (bench/faults/score.py).
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from bench.faults.corpus import machine_names, write_case
from bench.faults.draw import Case, drawn, each
from bench.faults.judge import Row, judged
from bench.faults.kinds import BY_NAME, CLASSES, KINDS
from bench.faults.outside import absent
from bench.faults.report import page
from bench.faults.run import Setup, run_case, undisturbed
from bench.faults.systems.base import NotHere, System
from bench.faults.systems.registry import SYSTEMS, system
from bench.job.trial import Result, end_on_sigterm, wait_quiet

WITHOUT_DIAGNOSES = (
    "torchrun",
    "torchrun-once",
    "ft_launcher",
    "dlrover",
    "torchft",
)  # a corpus must not hold the answers of the tool


UNDISTURBED = Case(number=-1, kind="undisturbed", step=0, rank=0)


def main() -> int:
    options = read_options()
    end_on_sigterm()
    setup = Setup(options.ranks, options.steps, options.step_s, options.limit)
    check_round(options.out, setup, options.seed)
    missing = absent()
    left_out = [
        f"{kind}: {reason}" for kind, reason in missing.items() if BY_NAME[kind].class_ in options.classes
    ]
    systems = []
    for name in options.systems:
        try:
            systems.append(system(name, setup.ranks))
        except NotHere as error:
            left_out.append(f"{name}: {error}")
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    cases = cases_of(options, setup, missing)
    root = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        rows = measured(systems, cases, setup, root, options, left_out)
    finally:
        if not options.keep:
            shutil.rmtree(root, ignore_errors=True)
    about = (
        f"{len(cases)} faults, seed {options.seed}; {setup.ranks} ranks, {setup.steps} steps of {1e3 * setup.step_s:.0f} ms; "
        f"given up {setup.limit_s:.0f} s after the fault and the time of all steps. Medians."
    )
    written = page(rows, about, left_out)
    (options.out / "results.md").write_text(written)
    print(written)
    return 0


def cases_of(options: argparse.Namespace, setup: Setup, missing: Collection[str]) -> list[Case]:
    if options.kinds or options.each:
        kinds = options.kinds or [kind.name for kind in KINDS if kind.class_ in options.classes]
        return each(options.seed, options.each or 1, setup.ranks, setup.steps, kinds, missing)
    return drawn(options.seed, options.faults, setup.ranks, setup.steps, options.classes, missing)


def measured(
    systems: list[System],
    cases: list[Case],
    setup: Setup,
    root: Path,
    options: argparse.Namespace,
    left_out: list[str],
) -> list[Row]:
    alone = undisturbed(setup, root)
    known = rows_before(options.out)
    able = [
        one
        for one in systems
        if any(name == one.name for name, _ in known) or trains_undisturbed(one, setup, root, alone, left_out)
    ]
    rows = []
    with (options.out / "results.jsonl").open("a") as out:
        for case in cases:
            for one in able:
                if (one.name, case) in known:
                    rows.append(known[one.name, case])
                    continue
                if options.wait_quiet:
                    wait_quiet(options.wait_quiet)
                run, printed = run_case(one, case, setup, root, alone)
                rows.append(judged(run, setup.ranks))
                line = msgspec.json.encode(rows[-1]).decode()
                out.write(f"{line}\n")
                out.flush()
                print(line, file=sys.stderr, flush=True)
                if options.corpus and one.name in WITHOUT_DIAGNOSES:
                    name = f"{one.name}-{options.seed}-{case.number:02}-{case.kind}"
                    ended_well = not rows[-1].person
                    write_case(
                        options.corpus / name, case, printed, machine_names(root), ended_well=ended_well
                    )
    return rows


def rows_before(folder: Path) -> dict[tuple[str, Case], Row]:
    """Returns the results of an interrupted round in that folder, by system and case. raises: msgspec.DecodeError"""
    path = folder / "results.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [msgspec.json.decode(line, type=Row) for line in lines]
    return {(row.system, Case(row.number, row.kind, row.step, row.rank)): row for row in rows}


def check_round(folder: Path, setup: Setup, seed: int) -> None:
    """Refuses a folder with results of another training or seed. raises: SystemExit"""
    path, here = folder / "round.json", msgspec.json.encode({"seed": seed, "setup": setup})
    if path.exists() and path.read_bytes() != here:
        raise SystemExit(
            f"{folder} holds a round with other options ({path.name}); name another folder with --out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(here)


def trains_undisturbed(
    one: System, setup: Setup, root: Path, alone: tuple[Result, float], left_out: list[str]
) -> bool:
    """Returns whether the training ends well under the system without a fault. If not, adds the reason to `left_out`.

    Otherwise a system that does not start here would count as one that recovers from nothing.
    """
    run, printed = run_case(one, UNDISTURBED, setup, root, alone)
    row = judged(run, setup.ranks)
    if row.result_equal and not row.person:
        return True
    last = next((line.strip() for line in reversed(printed) if line.strip()), "it printed nothing")
    how = f"ended with {run.code}" if run.ended else f"did not end in {run.took_s:.0f} s"
    left_out.append(f"{one.name}: the training without a fault {how}: {last}")
    print(f"left out: {left_out[-1]}", file=sys.stderr)
    return False


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--systems", type=among(SYSTEMS), default=["holdfast", "torchrun"], help=", ".join(SYSTEMS)
    )
    parser.add_argument("--classes", type=among(CLASSES), default=list(CLASSES), help=", ".join(CLASSES))
    parser.add_argument("--faults", type=int, default=30, help="number to draw; classes take turns")
    parser.add_argument("--each", type=int, metavar="N", help="instead of drawing: each kind N times")
    parser.add_argument(
        "--kinds", type=among(BY_NAME), help=f"only these kinds, once or as --each says: {', '.join(BY_NAME)}"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/faults"))
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="write labelled cases there")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after the fault, then given up")
    parser.add_argument("--wait-quiet", type=float, default=0.0, metavar="S", help="for an idle machine")
    parser.add_argument("--keep", action="store_true", help="leave the folders of the runs")
    return parser.parse_args()


def among(known: Collection[str]) -> Callable[[str], list[str]]:
    """Returns a reader of comma-separated names that refuses unknown ones."""

    def names(text: str) -> list[str]:
        given = text.split(",")
        if unknown := [name for name in given if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
        return given

    return names


if __name__ == "__main__":
    raise SystemExit(main())
