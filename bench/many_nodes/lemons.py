"""How surely lemons are told from sound nodes on a simulated fleet, with all parameters learned; and where that fails.

    python -m bench.many_nodes.lemons --seeds 20 --json out/lemons.json

The main case: 2,048 nodes, 40 lemons that fail 25 times as often, 28 days, 40 % of the nodes' failures attributed, 2 %
of those to a wrong node; jobs of 1 to 256 nodes, each size with the same share of all node-hours, 85 % of the nodes
in use; jobs fail by themselves as well. Sound nodes differ (log-normal, sigma 0.3). Soft warnings: a lemon warns as many
times more than a sound node as it fails more, of one kind; one in ten lemons warns of nothing. The other cases change what
their name says. No parameter of the generator is given to the score. See sim/fleet.py.

Recall: of the lemons, how many are named; precision: of the named, how many are lemons. `at_precision`: the recall that
the order of the scores would allow at a precision of 0.85, with the threshold chosen by somebody who knows the truth.
"""

import argparse
import time
from pathlib import Path
from statistics import mean

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.nodes.lemons import Judged, judge
from holdfast.sim.fleet import FleetMonth, FleetPlan, simulate

MAIN = FleetPlan()
CASES = {
    "main": MAIN,
    "no lemons": replace(MAIN, lemons=0),
    "5 times as often": replace(MAIN, factor=5.0, warned_factor=5.0),
    "10 times as often": replace(MAIN, factor=10.0, warned_factor=10.0),
    "10 % attributed": replace(MAIN, attributed=0.1),
    "no warnings at all": replace(MAIN, warned_per_week=0.0),
    "warnings tell nothing": replace(MAIN, silent=1.0),
    "half of the lemons silent": replace(MAIN, silent=0.5),
    "10 % attributed, no warnings": replace(MAIN, attributed=0.1, warned_per_week=0.0),
    "6 outages of a switch": replace(MAIN, outages=6),
    "32 nodes on a flaky switch": replace(MAIN, flaky=10.0),
    "jobs of 16 nodes and more": replace(MAIN, sizes=(16, 32, 64, 128, 256)),
    "sound nodes differ, sigma 0.6": replace(MAIN, spread=0.6),
    "7 days": replace(MAIN, days=7.0),
    "256 nodes, 5 lemons": replace(MAIN, nodes=256, lemons=5, sizes=(1, 2, 4, 8, 16, 32)),
}
PRECISION = 0.85


class Run(Struct, frozen=True, kw_only=True):
    seed: int
    named: int
    right: int
    of_switch: int  # named, and on the bad switch
    lemons: int
    at_precision: float
    factor: float
    base_per_day: float
    share: float
    attribution: float
    failures: int
    judge_s: float


class Case(Struct, frozen=True, kw_only=True):
    """`recall`, `precision`: of all runs together; the least and the most of single runs beside them."""

    name: str
    recall: float
    recall_range: tuple[float, float]
    precision: float
    precision_range: tuple[float, float]
    at_precision: float
    named: float
    of_switch: float
    factor: float
    share: float
    attribution: float
    failures: float
    judge_s: float
    runs: tuple[Run, ...]


def one_run(plan: FleetPlan, seed: int) -> Run:
    month = simulate(plan, seed)
    start_s = time.process_time()
    judged = judge(month.observed)
    judge_s = time.process_time() - start_s
    named = {score.node for score in judged.scores if score.named}
    learned = judged.learned
    return Run(
        seed=seed,
        named=len(named),
        right=len(named & month.lemons),
        of_switch=len(named & month.of_switch),
        lemons=len(month.lemons),
        at_precision=recall_at(judged, month),
        factor=learned.factor,
        base_per_day=learned.base_per_day,
        share=learned.share,
        attribution=learned.attribution,
        failures=learned.failures,
        judge_s=judge_s,
    )


def recall_at(judged: Judged, month: FleetMonth) -> float:
    best = right = 0
    for count, score in enumerate(judged.scores, 1):
        right += score.node in month.lemons
        if right >= PRECISION * count:
            best = max(best, right)
    return best / len(month.lemons) if month.lemons else 0.0


def case(name: str, plan: FleetPlan, seeds: range) -> Case:
    runs = tuple(one_run(plan, seed) for seed in seeds)
    recalls = [run.right / run.lemons if run.lemons else 0.0 for run in runs]
    precisions = [run.right / run.named for run in runs if run.named] or [0.0]
    return Case(
        name=name,
        recall=mean(recalls),
        recall_range=(min(recalls), max(recalls)),
        precision=sum(run.right for run in runs) / max(1, sum(run.named for run in runs)),
        precision_range=(min(precisions), max(precisions)),
        at_precision=mean(run.at_precision for run in runs),
        named=mean(run.named for run in runs),
        of_switch=mean(run.of_switch for run in runs),
        factor=mean(run.factor for run in runs),
        share=mean(run.share for run in runs),
        attribution=mean(run.attribution for run in runs),
        failures=mean(run.failures for run in runs),
        judge_s=mean(run.judge_s for run in runs),
        runs=runs,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this one; may be repeated")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    done = []
    print(
        f"{'':<30} recall (range)     precision (range)  possible  named  learned: factor  lemons  attributed"
    )
    for name in options.case or CASES:
        one = case(name, CASES[name], seeds)
        done.append(one)
        low, high = one.recall_range
        worst, best = one.precision_range
        print(
            f"{name:<30} {one.recall:.2f} ({low:.2f}-{high:.2f})   {one.precision:.2f} ({worst:.2f}-{best:.2f})"
            f"   {one.at_precision:.2f}  {one.named:6.1f}           {one.factor:6.1f}  {one.share:6.2%}"
            f"     {one.attribution:.0%}",
            flush=True,
        )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(done), indent=1))


if __name__ == "__main__":
    main()
