"""How soon a hang is found, whether the right ranks are named, and whether anything healthy is called a hang.

    python -m bench.hang.detection --kinds faults --ranks 4,8 --step 0.02,1 --runs 10 --seed 1 --json out/hang.json
    python -m bench.hang.detection --kinds healthy --runs 5

Each run is a real training over gloo under `holdfast run`, with one fault or one healthy pause (faults.py).
Time is from the moment at which the fault strikes, by the training's own note, to the verdict in the journal.
A run's seed decides all of it. A run that is not as it should be prints the command that repeats it, and its
folder is kept (the last few). Exits with 1 then. frozen-disk and link need root.
"""

import argparse
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.hang.places import DEBUGGERS, Disk, Hosts, NotHere, attach
from bench.job.trial import HOLDFAST, Moment, Trial, end_on_sigterm, torchrun
from holdfast.journal.jobdir import StateDir
from holdfast.journal.store import open_reader
from holdfast.model.events import AnyEvent, HangFound, VerdictReached
from holdfast.model.verdicts import Verdict

TRAINING = Path(__file__).with_name("training.py")
NAMES_MISMATCH = ("collective_mismatch", "collective_missing_rank")
# Each fault, and the categories of the taxonomy that describe it.
FAULTS = {
    "sigstop": ("process_stopped",),
    "killed": ("process_killed",),
    "sleep": ("collective_missing_rank",),
    "lock": ("collective_missing_rank",),
    "gil": ("collective_missing_rank",),
    "loop": ("collective_missing_rank",),
    "loader-fifo": ("dataloader_stuck",),
    "exit": ("collective_missing_rank", "uneven_data"),
    "skip": NAMES_MISMATCH,
    "operation": ("collective_mismatch",),
    "size": ("collective_mismatch",),
    "dtype": ("collective_mismatch",),
    "order": ("collective_mismatch",),
    "uneven": ("uneven_data", *NAMES_MISMATCH),
    "recv": NAMES_MISMATCH,
    "frozen-disk": ("filesystem_error", "checkpoint_save_error", "storage_io", "hung_task"),
    "link": ("nccl_network_error", "collective_timeout"),
}
# Standstills that may end by themselves: a long call into C, a program that was started, a service. Told after 60-90 s.
PATIENT = {
    "loop-c": ("collective_missing_rank",),
    "child": ("collective_missing_rank",),
    "socket": ("collective_missing_rank",),
}
CATEGORIES = FAULTS | PATIENT
HEALTHY = (
    *("none", "checkpoint", "evaluate-one", "evaluate-all", "compile", "first-step-long", "start-long"),
    *("loader-slow", "pause-one", "pause-all", "one-call", "child-works", "garbage", "debugger", "join", "slow-rank", "quiet-log"),
)  # fmt: skip
TWO_CULPRITS = ("sigstop", "sleep", "lock", "gil", "loop")  # sometimes, of eight
ONLY_DDP, AT_FIRST_STEP = ("compile", "join"), ("compile", "first-step-long", "start-long")
START_LIMIT_S, VERDICT_LIMIT_S, PATIENT_LIMIT_S, GRACE = 120.0, 60.0, 150.0, "2s"
LOOK_S = 0.2
KEPT_MAX = 5
EVENT = msgspec.json.Decoder(AnyEvent)


class Plan(Struct, frozen=True, kw_only=True):
    """What the dice of a seed say."""

    seed: int
    kind: str
    ranks: int
    step_s: float
    shape: str
    struck: tuple[int, ...]
    at: int
    steps: int
    seconds: float
    log_every: int
    all_say: bool
    debugger: str = ""

    def is_healthy(self) -> bool:
        return self.kind in HEALTHY

    def culprits(self) -> tuple[int, ...]:
        """Those that a verdict has to name, and no others. A broken link is no rank's fault."""
        return () if self.kind == "link" or self.is_healthy() else self.struck

    def says(self) -> str:
        where = f" in {','.join(map(str, self.struck))} at step {self.at}"
        return f"{self.kind}{where}, {self.ranks} ranks, {self.shape}, {1e3 * self.step_s:.0f} ms, seed {self.seed}"

    def repeat(self, flags: Sequence[str]) -> str:
        more = "".join(f" --flag={flag}" for flag in flags)
        what = f"--kinds {self.kind} --ranks {self.ranks} --step {self.step_s:g} --runs 1 --seed {self.seed}"
        return f"python -m bench.hang.detection {what}{more}"


class Outcome(Struct, frozen=True, kw_only=True):
    """`took_s`: from the strike to the verdict; None where there was none. `wrong`: empty in a good run."""

    plan: Plan
    took_s: float | None = None
    found: str = ""  # the kind of hang, where one was found
    told: tuple[int, ...] = ()
    category: str = ""
    title: str = ""
    why: str = ""
    wrong: tuple[str, ...] = ()

    def is_exact(self) -> bool:
        return self.took_s is not None and set(self.told) == set(self.plan.culprits())


def plan_of(kind: str, ranks: int, step_s: float, seed: int) -> Plan:
    dice = random.Random(f"{kind} {ranks} {step_s} {seed}")
    many = 2 if kind in TWO_CULPRITS and ranks >= 8 and dice.random() < 0.3 else 1
    struck = tuple(sorted(dice.sample(range(ranks), many)))
    if kind == "loader-slow" and dice.random() < 0.5:
        struck = tuple(range(ranks))
    fast = step_s < 0.5
    at = 0 if kind in AT_FIRST_STEP else dice.randint(40, 60) if fast else dice.randint(8, 12)
    seconds = pause_s(kind, step_s, dice)
    after = (80 if fast else 3) + (
        int(seconds / step_s) if kind in ("quiet-log", "slow-rank", "debugger") else 0
    )
    return Plan(
        seed=seed,
        kind=kind,
        ranks=ranks,
        step_s=step_s,
        shape="ddp" if kind in ONLY_DDP else dice.choice(("ddp", "groups")),
        struck=struck,
        at=at,
        steps=at + after if kind in HEALTHY else 10**6,
        seconds=seconds,
        log_every=dice.choice((1, 10)) if fast else 1,
        all_say=dice.random() < 0.3,
        debugger=dice.choice(list(DEBUGGERS)) if kind == "debugger" else "",
    )


def pause_s(kind: str, step_s: float, dice: random.Random) -> float:
    """As long as would tempt a detector, and no longer than such a thing is in real trainings."""
    match kind:
        case "pause-all":
            return min(100 * step_s, 60.0) * dice.uniform(0.5, 1.0)
        case "pause-one":
            return min(100 * step_s, 8.0) * dice.uniform(0.5, 1.0)
        case "garbage":
            return dice.uniform(3.0, 5.0)
        case "debugger" | "slow-rank" | "one-call":
            return dice.uniform(10.0, 15.0)
        case _:
            return dice.uniform(20.0, 30.0)


# One run -------------------------------------------------------------------------------------------------


class Seen(Struct, frozen=True, kw_only=True):
    """What the journal has so far."""

    hang: HangFound | None = None
    verdict: VerdictReached | None = None


def one_run(plan: Plan, folder: Path, flags: Sequence[str]) -> Outcome:
    folder.mkdir()
    with ExitStack() as stack:
        disk = stack.enter_context(Disk(folder)) if plan.kind == "frozen-disk" else None
        hosts = stack.enter_context(Hosts()) if plan.kind == "link" else None
        train = training(plan, folder, disk)
        command = hosts.command(plan.ranks, train) if hosts else [*torchrun(plan.ranks), *train]
        trial = Trial([*holdfast(folder / "state", flags), *command], folder)
        stack.callback(trial.clear)
        struck = wait_for_strike(trial)
        if struck is None:
            return Outcome(plan=plan, wrong=("it never struck",))
        act_from_outside(plan, trial, hosts, stack)
        outcome = watched(plan, trial, struck)
        if disk is not None:
            disk.heal()
        left = end(trial)
    return msgspec.structs.replace(outcome, wrong=(*outcome.wrong, *left))


def holdfast(state: Path, flags: Sequence[str]) -> list[str]:
    fixed = ["--state-dir", str(state), "--no-hang-restart", "--max-restarts", "none", "--grace", GRACE]
    return [*HOLDFAST, "run", "--policy", "holdfast", *fixed, *flags, "--"]


def training(plan: Plan, folder: Path, disk: Disk | None) -> list[str]:
    words = [str(TRAINING), "--folder", str(folder), "--kind", plan.kind, "--shape", plan.shape]
    words += ["--step-s", str(plan.step_s), "--at", str(plan.at), "--steps", str(plan.steps)]
    words += ["--ranks", ",".join(map(str, plan.struck)), "--seconds", f"{plan.seconds:.1f}"]
    words += ["--log-every", str(plan.log_every), *(["--all-say"] if plan.all_say else [])]
    return words + (["--disk", str(disk.path)] if disk else [])


def wait_for_strike(trial: Trial) -> Moment | None:
    """The first rank's note of it; None where the training ends or takes too long before."""
    until_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < until_s:
        over = trial.wait(LOOK_S / 4)
        if struck := [moment for moment in trial.moments() if moment.kind in ("struck", "done")]:
            return struck[0]
        if over:
            return None
    return None


def act_from_outside(plan: Plan, trial: Trial, hosts: Hosts | None, stack: ExitStack) -> None:
    """What no rank can do to itself, in the moment of the strike."""
    if hosts is not None:
        hosts.cut()
    if plan.debugger:
        pid = next(moment.pid for moment in trial.moments() if moment.rank == plan.struck[0])
        process = attach(plan.debugger, pid, plan.seconds)
        stack.callback(process.wait)
        stack.callback(process.terminate)


def watched(plan: Plan, trial: Trial, struck: Moment) -> Outcome:
    """Looks into the journal until there is a verdict, or, in a healthy run, until its end."""
    limit_s = VERDICT_LIMIT_S if plan.kind in FAULTS else PATIENT_LIMIT_S
    if plan.is_healthy():
        limit_s += START_LIMIT_S + plan.seconds + 10 * plan.steps * plan.step_s
    until_s, seen = time.monotonic() + limit_s, Seen()
    while time.monotonic() < until_s:
        over = trial.wait(LOOK_S)
        seen = in_journal(trial.folder / "state")
        if over or seen.verdict is not None:
            break
    outcome = told(plan, seen, struck)
    wrong = of_healthy(outcome, trial) if plan.is_healthy() else of_faulty(outcome)
    return msgspec.structs.replace(outcome, wrong=wrong)


def in_journal(state: Path) -> Seen:
    seen = Seen()
    for event in events(state):
        if isinstance(event, HangFound) and seen.hang is None:
            seen = msgspec.structs.replace(seen, hang=event)
        elif isinstance(event, VerdictReached) and seen.verdict is None:
            seen = msgspec.structs.replace(seen, verdict=event)
    return seen


def events(state: Path) -> Iterator[AnyEvent]:
    jobs = StateDir(state).jobs()
    if not jobs or not jobs[0].journal_path.exists():
        return
    reader = open_reader(jobs[0].journal_path)
    try:
        for entry in reader.read():
            yield EVENT.decode(entry.event)
    finally:
        reader.close()


def told(plan: Plan, seen: Seen, struck: Moment) -> Outcome:
    verdict: Verdict | None = seen.verdict.verdict if seen.verdict else None
    ranks = {culprit.rank for culprit in verdict.culprits if culprit.rank is not None} if verdict else set()
    return Outcome(
        plan=plan,
        took_s=seen.verdict.at_s - struck.at_s if seen.verdict else None,
        found=seen.hang.hang if seen.hang else "",
        told=tuple(sorted(ranks)),
        category=verdict.category if verdict else "",
        title=verdict.title if verdict else "",
        why=seen.hang.reason if seen.hang else "",
    )


def of_faulty(outcome: Outcome) -> tuple[str, ...]:
    if outcome.took_s is None:
        return (f"no verdict within {VERDICT_LIMIT_S:.0f} s",)
    wrong = []
    if outcome.took_s < 0:
        wrong.append(f"a verdict {-outcome.took_s:.1f} s before the fault")
    if not outcome.is_exact():
        wrong.append(f"culprits {list(outcome.told)}, in truth {list(outcome.plan.culprits())}")
    if outcome.category not in CATEGORIES[outcome.plan.kind]:
        wrong.append(f"category {outcome.category}, expected {' or '.join(CATEGORIES[outcome.plan.kind])}")
    return tuple(wrong)


def of_healthy(outcome: Outcome, trial: Trial) -> tuple[str, ...]:
    if outcome.found:
        return (f"FALSE ALARM, {outcome.found}: {outcome.why}",)
    if outcome.took_s is not None:
        return (f"FALSE VERDICT, {outcome.category}: {outcome.title}",)
    code = trial.process.poll()
    return () if code == 0 else (f"a healthy training ended with {code}",)


def end(trial: Trial) -> tuple[str, ...]:
    """Ends the job as a person would, by asking Holdfast; what it leaves behind is an error."""
    if trial.process.poll() is None:
        trial.process.send_signal(signal.SIGTERM)
        if not trial.wait(30.0):
            return ("holdfast did not end within 30 s of a SIGTERM",)
    left = trial.left()
    return (f"processes are left: {left}",) if left else ()


# Many runs -----------------------------------------------------------------------------------------------


class Bench:
    """Runs plans, tells each outcome as it comes, and keeps the folders of the last ones that were wrong."""

    def __init__(self, flags: Sequence[str]) -> None:
        self.flags = flags
        self.root = Path(tempfile.mkdtemp(prefix="hang-", dir="/tmp"))
        self.outcomes: list[Outcome] = []
        self._kept: list[Path] = []
        self._lock = threading.Lock()

    def run(self, plan: Plan) -> None:
        folder = self.root / f"{plan.kind}-{plan.ranks}-{plan.step_s:g}-{plan.seed}"
        try:
            outcome = one_run(plan, folder, self.flags)
        except NotHere as error:
            print(f"{plan.says()}: left out, {error}", flush=True)
            return
        with self._lock:
            self.outcomes.append(outcome)
            self._say(outcome, folder)

    def _say(self, outcome: Outcome, folder: Path) -> None:
        says = "nothing"
        if outcome.took_s is not None:
            ranks = ",".join(map(str, outcome.told)) or "nobody"
            says = f"{outcome.took_s:.1f} s, {outcome.category}, named {ranks}"
        print(f"{outcome.plan.says()}: {says}", flush=True)
        for line in outcome.wrong:
            print(f"    WRONG: {line}")
        if not outcome.wrong:
            shutil.rmtree(folder, ignore_errors=True)
            return
        for text in filter(None, (outcome.title, outcome.why)):
            print(f"    said: {text}")
        print(f"    repeat it: {outcome.plan.repeat(self.flags)}")
        print(f"    its folder: {folder}", flush=True)
        self._kept.append(folder)
        for old in self._kept[:-KEPT_MAX]:
            shutil.rmtree(old, ignore_errors=True)

    def close(self) -> None:
        if not self._kept:
            shutil.rmtree(self.root, ignore_errors=True)


def main() -> int:
    options = read_options()
    end_on_sigterm()
    plans = [
        plan_of(kind, ranks, step_s, options.seed + number)
        for number in range(options.runs)
        for kind in options.kinds
        for ranks in options.ranks
        for step_s in options.step
    ]
    bench = Bench(options.flag)
    try:
        if options.parallel > 1:
            with ThreadPoolExecutor(options.parallel) as pool:
                list(pool.map(bench.run, plans))
        else:  # in the main thread, so that Ctrl-C ends the run under way
            for plan in plans:
                bench.run(plan)
    finally:
        bench.close()
        table(bench.outcomes)
        if options.json is not None:
            options.json.write_bytes(msgspec.json.format(msgspec.json.encode(bench.outcomes)))
    return 1 if any(outcome.wrong for outcome in bench.outcomes) else 0


def table(outcomes: Sequence[Outcome]) -> None:
    """A row for each kind, then the totals."""
    print("\n| kind | runs | exact | category right | p50 s | p95 s | max s | categories |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in dict.fromkeys(outcome.plan.kind for outcome in outcomes):
        row(kind, [outcome for outcome in outcomes if outcome.plan.kind == kind])
    faults = [outcome for outcome in outcomes if not outcome.plan.is_healthy()]
    if faults:
        row("all faults", faults)
    healthy = [outcome for outcome in outcomes if outcome.plan.is_healthy()]
    if healthy:
        alarms = sum(bool(outcome.found) or outcome.took_s is not None for outcome in healthy)
        print(f"\n{alarms} false alarms in {len(healthy)} healthy runs")


def row(name: str, outcomes: Sequence[Outcome]) -> None:
    took_s = sorted(outcome.took_s for outcome in outcomes if outcome.took_s is not None)
    if outcomes[0].plan.is_healthy():
        good = sum(not outcome.wrong for outcome in outcomes)
        print(f"| {name} (healthy) | {len(outcomes)} | {good} quiet | | | | | |")
        return
    exact = sum(outcome.is_exact() for outcome in outcomes)
    right = sum(outcome.category in CATEGORIES[outcome.plan.kind] for outcome in outcomes)
    times = [f"{quantile(took_s, share):.1f}" if took_s else "-" for share in (0.5, 0.95, 1.0)]
    seen = Counter(outcome.category or "none" for outcome in outcomes)
    categories = ", ".join(f"{category} {count}" for category, count in seen.most_common())
    print(f"| {name} | {len(outcomes)} | {exact} | {right} | {' | '.join(times)} | {categories} |")


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kinds", type=kinds, default=list(FAULTS), help="faults, patient, healthy, all, or names"
    )
    parser.add_argument("--ranks", type=many(int), default=[4])
    parser.add_argument("--step", type=many(float), default=[0.02], help="seconds")
    parser.add_argument(
        "--runs", type=int, default=1, help="of each kind, number of ranks and length of step"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first run; each next has the next number")
    parser.add_argument("--parallel", type=int, default=1, help="so many trainings at once")
    parser.add_argument(
        "--flag", action="append", default=[], help="one more for holdfast, as in --flag=--no-shim"
    )
    parser.add_argument("--json", type=Path, help="write every outcome there")
    return parser.parse_args()


def kinds(text: str) -> list[str]:
    sets = {
        "faults": list(FAULTS),
        "patient": list(PATIENT),
        "healthy": list(HEALTHY),
        "all": [*CATEGORIES, *HEALTHY],
    }
    names = sets.get(text) or text.split(",")
    if unknown := [name for name in names if name not in sets["all"]]:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is not known; there are {', '.join(sets['all'])}")
    return names


def many(number: Callable[[str], float]) -> Callable[[str], list[float]]:
    return lambda text: [number(word) for word in text.split(",")]


if __name__ == "__main__":
    raise SystemExit(main())
