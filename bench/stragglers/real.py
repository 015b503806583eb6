"""Whether the one slow rank of a real training is named, and nobody else, and after how many steps.

    python -m bench.stragglers.real --kinds quota,work,healthy --runs 3 --json out/straggler_run.json

Four ranks over gloo, each with the same work for one core in every step, under `holdfast run`. From a step on one rank
has less processor time: `quota` by a control group of its own, `duty` by being stopped in turns, or more work: `work`.
`healthy`: nothing. What decides is `core/stragglers` with this bench's own looks once a second, on the same sources as
the agent's: status of groups, flight records, /proc, control groups. Steps are counted on rank 0 from the moment at
which the rank was slowed. `quota` needs a control group that can be written.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.job.trial import Trial, end_on_sigterm, holdfast_run, torchrun
from bench.stragglers.cpu_quota import CpuQuota, DutyCycle, NoQuota
from holdfast.agent.watch.collectives import Collectives
from holdfast.core.stragglers.records import arrivals
from holdfast.core.stragglers.watch import StragglerWatch
from holdfast.model.flight.records import FlightRecord
from holdfast.model.steps import StepFinding
from holdfast.observe.host.throttling import ThrottleReader
from holdfast.observe.processes.procs import RankReader
from holdfast.observe.processes.worker_server import flight_records
from holdfast.parsers.flight.pickled import Refused
from holdfast.parsers.flight.records import read_record

TRAINING = Path(__file__).with_name("training.py")
RANKS = 4
KINDS = ("quota", "duty", "work", "healthy")
LOOK_S, ANSWER_S, RECORDS_S = 1.0, 0.1, 1.5
START_LIMIT_S = 180.0
STEPS_BEFORE, STEPS_MAX = 20, 30


class Outcome(Struct, frozen=True, kw_only=True):
    """`steps`: of rank 0, from the slowing to the finding. `wrong`: empty in a good run."""

    kind: str
    seed: int
    rank: int
    steps: int | None = None
    seconds: float | None = None
    source: str = ""
    ratio: float | None = None
    step_s: float = 0.0  # before the slowing, the median
    slow_step_s: float = 0.0  # after it
    fetches: int = 0
    fetch_s: float = 0.0  # all fetches together, one rank
    said: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


class Watching:
    """The bench's own looks at the ranks, once a second."""

    def __init__(self, folder: Path, pids: dict[int, int]) -> None:
        self.watch = StragglerWatch()
        self.found: list[tuple[int | None, StepFinding]] = []
        self.fetches, self.fetch_s = 0, 0.0
        self._folder = folder
        self._collectives = Collectives(folder)
        self._readers = {rank: RankReader(pid, rank) for rank, pid in pids.items()}
        self._throttles = {rank: ThrottleReader(pid) for rank, pid in pids.items()}

    def look(self, step: int | None) -> None:
        self._collectives.ask(self._readers)
        time.sleep(ANSWER_S)
        at_s = time.time()
        samples = []
        for rank, reader in self._readers.items():
            sample = reader.sample(at_s, step=step)
            samples.append(msgspec.structs.replace(sample, groups=self._collectives.read(rank)))
        seen = {rank: reader.sample() for rank, reader in self._throttles.items()}
        self.watch.look(samples, {rank: one.throttled_s for rank, one in seen.items() if one is not None})
        if self.watch.wants_records(at_s):
            self._fetch()
        self.found += [(step, finding) for finding in self.watch.findings(step, at_s)]

    def _fetch(self) -> None:
        begun_s = time.monotonic()
        records: list[FlightRecord] = []
        for rank in self._readers:
            asked = flight_records(self._folder / f"rank-{rank}.sock", begun_s + RECORDS_S, time.monotonic)
            for pickled in asked or ():
                try:
                    records.append(read_record(pickled, rank))
                except Refused as error:
                    print(f"    a record of rank {rank}: {error}")
        for one in arrivals(records):
            self.watch.arrivals(one.group, one.sequence, one.at, device=one.device)
        self.fetches += 1
        self.fetch_s += (time.monotonic() - begun_s) / len(self._readers)

    def close(self) -> None:
        self._collectives.close()
        for reader in self._readers.values():
            reader.close()


def one_run(kind: str, seed: int, folder: Path, options: argparse.Namespace) -> Outcome:
    dice = random.Random(f"{kind} {seed}")
    rank = dice.randrange(RANKS)
    at = STEPS_BEFORE + dice.randrange(10)
    folder.mkdir()
    with ExitStack() as stack:
        slow = slowing(kind)
        if slow is not None:
            stack.callback(slow.close)
        steps = at + options.steps_after
        words = ["--folder", str(folder), "--steps", str(steps), "--work-s", str(options.work_s)]
        words += ["--slow", f"{rank}:{at}:{options.more}"] if kind == "work" else []
        command = [*torchrun(RANKS), str(TRAINING), *words]
        flags = ("--max-restarts", "none", "--no-hang-restart")
        trial = Trial([*holdfast_run(folder / "state", *flags), *command], folder)
        stack.callback(trial.clear)
        pids = wait_for_ranks(trial)
        if pids is None:
            return Outcome(kind=kind, seed=seed, rank=rank, wrong=("it never started",))
        watching = Watching(worker_folder(folder), pids)
        stack.callback(watching.close)
        struck_s = watched(trial, watching, slow, pids[rank], at, kind, options)
        return judged(trial, watching, Outcome(kind=kind, seed=seed, rank=rank), at, struck_s)


def slowing(kind: str) -> CpuQuota | DutyCycle | None:
    """raises: NoQuota"""
    match kind:
        case "quota":
            return CpuQuota(1.0)
        case "duty":
            return DutyCycle(1.0)
    return None


def share_of(trial: Trial, options: argparse.Namespace) -> float:
    """Of a processor, with which one rank's work alone takes so many times what a whole step takes here now."""
    steps = [one for one in trial.moments() if one.kind == "step" and one.rank == 0][-10:]
    ran_s, took_s = median([one.worked_s for one in steps]), median([one.took_s for one in steps])
    return max(0.01, min(0.9, ran_s / (options.times * took_s)))


def wait_for_ranks(trial: Trial) -> dict[int, int] | None:
    """Their pids, once all compute."""
    until_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < until_s and not trial.wait(0.1):
        seen = {moment.rank: moment.pid for moment in trial.moments() if moment.kind == "imported"}
        if len(seen) == RANKS:
            return seen
    return None


def worker_folder(folder: Path) -> Path:
    return next((folder / "state" / "jobs").glob("*/attempt-001/worker-0"))


def watched(
    trial: Trial,
    watching: Watching,
    slow: CpuQuota | DutyCycle | None,
    pid: int,
    at: int,
    kind: str,
    options: argparse.Namespace,
) -> float | None:
    """Looks until the training is over, or a while after the slow rank is named. When it was slowed."""
    struck_s, enough_s = None, None
    due_s = time.monotonic()
    while not trial.wait(max(0.0, min(0.1, due_s - time.monotonic()))):
        step = last_step(trial)
        if struck_s is None and step is not None and step >= at and kind != "healthy":
            struck_s = time.time()
            if slow is not None:
                slow.limit(share_of(trial, options))
                slow.take(pid)
        if time.monotonic() < due_s:
            continue
        due_s = time.monotonic() + LOOK_S - ANSWER_S
        watching.look(step)
        if watching.found and enough_s is None and kind != "healthy":
            enough_s = time.monotonic() + 5.0  # time to say something wrong, too
        if enough_s is not None and time.monotonic() > enough_s:
            trial.process.send_signal(signal.SIGTERM)
            trial.wait(30.0)
            break
    return struck_s


def last_step(trial: Trial) -> int | None:
    """Of rank 0, from the end of its events."""
    try:
        with (trial.folder / "events.0.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 1000))
            lines = file.read().splitlines()[1:]
        steps = [event.get("step") for event in map(msgspec.json.decode, lines) if event["kind"] == "step"]
    except (OSError, ValueError, KeyError):
        return None
    return steps[-1] if steps else None


def judged(trial: Trial, watching: Watching, outcome: Outcome, at: int, struck_s: float | None) -> Outcome:
    steps = [moment for moment in trial.moments() if moment.kind == "step" and moment.rank == 0]
    named = [(step, one) for step, one in watching.found if one.kind == "straggler"]
    wrong = []
    right = []
    for step, one in named:
        if one.numbers["ranks"] == [float(outcome.rank)] and (step or 0) >= at and outcome.kind != "healthy":
            right.append((step, one))
        else:
            wrong.append(f"wrongly, at step {step}: {one.text}")
    if outcome.kind != "healthy" and not right:
        wrong.append("it was not named")
    if trial.left():
        wrong.append("processes are left")
    found = msgspec.structs.replace(
        outcome,
        step_s=median([one.took_s for one in steps if one.step < at]),
        slow_step_s=median([one.took_s for one in steps if one.step > at]),
        fetches=watching.fetches,
        fetch_s=watching.fetch_s,
        said=tuple(f"step {step}: {one.text}" for step, one in watching.found),
    )
    if right and struck_s is not None:
        step, one = right[0]
        taken = (step or 0) - at
        if taken > STEPS_MAX:
            wrong.append(f"named after {taken} steps")
        ratio = one.numbers.get("ratio")
        found = msgspec.structs.replace(
            found,
            steps=taken,
            seconds=(one.at_s or 0.0) - struck_s,
            source=str(one.numbers["source"]),
            ratio=ratio if isinstance(ratio, float) else None,
        )
    return msgspec.structs.replace(found, wrong=tuple(wrong))


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


def main() -> int:
    options = read_options()
    end_on_sigterm()
    root = Path(tempfile.mkdtemp(prefix="straggler-", dir="/tmp"))
    outcomes: list[Outcome] = []
    try:
        for number in range(options.runs):
            for kind in options.kinds:
                folder = root / f"{kind}-{number}"
                try:
                    outcome = one_run(kind, options.seed + number, folder, options)
                except NoQuota as error:
                    print(f"{kind}: left out, no control group can be written here: {error}", flush=True)
                    continue
                outcomes.append(outcome)
                say(outcome)
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
        table(outcomes)
        if options.json is not None:
            options.json.write_bytes(msgspec.json.format(msgspec.json.encode(outcomes)))
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


def say(outcome: Outcome) -> None:
    times = f"steps of {outcome.step_s:.2f} s, then {outcome.slow_step_s:.2f} s; {outcome.fetches} fetches"
    print(f"{outcome.kind} rank {outcome.rank}, seed {outcome.seed}: {times}", flush=True)
    for text in outcome.said:
        print(f"    {text}")
    for text in outcome.wrong:
        print(f"    WRONG: {text}")
    sys.stdout.flush()


def table(outcomes: Sequence[Outcome]) -> None:
    print(
        "\n| kind | runs | right | steps to name it, median (most) | s | ratio | step s before, after | by |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for kind in dict.fromkeys(outcome.kind for outcome in outcomes):
        ones = [outcome for outcome in outcomes if outcome.kind == kind]
        named = [one for one in ones if one.steps is not None]
        steps = [float(one.steps or 0) for one in named]
        ratios = [one.ratio for one in named if one.ratio is not None]
        sources = ", ".join(sorted({one.source for one in named}))
        cells = [
            kind,
            str(len(ones)),
            str(sum(not one.wrong for one in ones)),
            f"{median(steps):.0f} ({max(steps):.0f})" if steps else "-",
            f"{median([one.seconds or 0.0 for one in named]):.1f}" if named else "-",
            f"{median(ratios):.2f}" if ratios else "-",
            f"{median([one.step_s for one in ones]):.2f}, {median([one.slow_step_s for one in ones]):.2f}",
            sources or "-",
        ]
        print(f"| {' | '.join(cells)} |")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=["quota", "work", "healthy"])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--times", type=float, default=3.0, help="longer, by less processor time: quota, duty"
    )
    parser.add_argument(
        "--more", type=float, default=1.0, help="of its work, that a rank has more: kind work"
    )
    parser.add_argument("--work-s", type=float, default=0.05, help="of processor time a step")
    parser.add_argument("--steps-after", type=int, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    unknown = set(options.kinds) - set(KINDS)
    if unknown:
        parser.error(f"no such kind: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
