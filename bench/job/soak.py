"""Real trainings in a row, each hit by faults chosen by dice; each must end well and leave nothing behind.

    python -m bench.job.soak --runs 50 --seed 1

A run's seed decides everything about it: number of ranks, length of a step, which faults strike where.
What is looked at afterwards: exit code, last step and loss, processes, ports, shared memory, and the
journal. A run that fails prints the command that repeats it, and its folder is kept. Exits with 1 then.
"""

import argparse
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.faults.systems.holdfast import summary_of
from bench.job.trial import HOLDFAST, Moment, Result, Trial, end_on_sigterm, holdfast_run, torchrun, training
from holdfast.agent.launch import RankFound
from holdfast.controller.loop import replay
from holdfast.journal.jobdir import StateDir
from holdfast.journal.store import open_reader
from holdfast.model.policy import Policy
from holdfast.model.state import Ended

STEPS, FIRST_STEP, LAST_STEP = 150, 5, 140
# The hang detector waits ten minutes for a training of which it has not yet seen 20 steps go by in the log
# (`start_s`, `marks_min`): a deadlock in that time is found, but too late for a bench.
STEPS_TO_LEARN = 35
KINDS = ("kill9", "exception", "sigstop", "deadlock", "exit7", "segv", "kill-launcher", "kill-holdfast")
KINDS_AT_ONCE = tuple(kind for kind in KINDS if kind != "deadlock")
HANGS = ("sigstop", "deadlock")
HANGS_MAX = Policy().hangs_in_a_row_max
LIMIT_S = 150.0
LOSS_TOLERANCE = 1e-5  # the same float32 sums in the same order
LOOK_S = 0.05
EARLY_S = 0.5  # the job's clock is steered, not set: it may lag the wall clock a little
LISTENING = "0A"  # st in /proc/net/tcp


class Plan(Struct, frozen=True):
    """What the dice of a seed say. `faults`: STEP:RANK:KIND in the order of steps."""

    seed: int
    ranks: int
    step_s: float
    faults: tuple[str, ...]

    def says(self) -> str:
        return f"seed {self.seed}: {self.ranks} ranks, {1e3 * self.step_s:.0f} ms, {' '.join(self.faults)}"


def plan_of(seed: int) -> Plan:
    dice = random.Random(seed)
    ranks = dice.randint(2, 4)
    steps = sorted(dice.sample(range(FIRST_STEP, LAST_STEP), dice.randint(1, 3)))
    gaps = [step - before for step, before in zip(steps, [0, *steps], strict=False)]
    kinds = [dice.choice(KINDS if gap >= STEPS_TO_LEARN else KINDS_AT_ONCE) for gap in gaps]
    faults = tuple(f"{step}:{dice.randrange(ranks)}:{kind}" for step, kind in zip(steps, kinds, strict=True))
    return Plan(seed, ranks, dice.randint(10, 20) / 1e3, faults)


def kind_of(fault: str) -> str:
    return fault.split(":")[2]


def main() -> int:
    options = read_options()
    end_on_sigterm()
    root = Path(tempfile.mkdtemp(prefix="soak-"))
    expected: dict[int, Result] = {}
    took_s, failed = [], []
    for seed in range(options.seed, options.seed + options.runs):
        plan = plan_of(seed)
        if plan.ranks not in expected:
            expected[plan.ranks] = undisturbed(root / f"undisturbed-{plan.ranks}", plan.ranks)
        begun_s = time.monotonic()
        outcome, wrong = one_run(plan, root / f"seed-{seed}", expected[plan.ranks])
        took_s.append(time.monotonic() - begun_s)
        print(f"{plan.says()}: {outcome} in {took_s[-1]:.1f} s", flush=True)
        for line in wrong:
            print(f"    WRONG: {line}", flush=True)
        if wrong:
            failed.append(seed)
            print(f"    its folder: {root / f'seed-{seed}'}")
            print(f"    repeat it: python -m bench.job.soak --runs 1 --seed {seed}", flush=True)
    good = options.runs - len(failed)
    print(f"{good} of {options.runs} runs as they should be; median {statistics.median(took_s):.1f} s a run")
    if not failed:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if failed else 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; each next has the next number")
    return parser.parse_args()


def undisturbed(folder: Path, ranks: int) -> Result:
    """What the same training ends with when nobody touches it and nobody watches."""
    folder.mkdir()
    trial = Trial([*torchrun(ranks), *training(folder, steps=STEPS, step_s=0.0)], folder)
    ended = trial.wait(LIMIT_S)
    trial.clear()
    result = trial.result()
    assert ended and result is not None, f"the training does not even run alone; see {folder / 'said.log'}"
    return result


# One run -------------------------------------------------------------------------------------------------


def one_run(plan: Plan, folder: Path, expected: Result) -> tuple[str, list[str]]:
    """How it ended, in a word or two, and all that is wrong with it."""
    folder.mkdir()
    state = folder / "state"
    flags = ["--detach"] if any(kind_of(fault) == "kill-holdfast" for fault in plan.faults) else []
    train = training(folder, steps=STEPS, step_s=plan.step_s, faults=plan.faults)
    trial = Trial([*holdfast_run(state, *flags), *torchrun(plan.ranks), *train], folder)
    try:
        if not watched(trial, plan, state):
            return "given up", [f"it had not ended after {LIMIT_S:.0f} s"]
        outcome, wrong = judged(trial, plan, state, expected)
        if left := trial.left():
            wrong.append(f"processes are left: {left}")
        wrong += leftovers(trial.moments(), state)
    finally:
        trial.clear()
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome, wrong


def watched(trial: Trial, plan: Plan, state: Path) -> bool:
    """Sees it to its end, and kills Holdfast where the plan says so. False when it took too long."""
    to_kill = [fault for fault in plan.faults if kind_of(fault) == "kill-holdfast"]
    until_s = time.monotonic() + LIMIT_S
    while not trial.wait(LOOK_S):
        if time.monotonic() > until_s:
            return False
        if to_kill and trial.has_struck(to_kill[0]):
            to_kill.pop(0)
            trial.kill_and_follow([*HOLDFAST, "attach", "--state-dir", str(state)])
    return True


def judged(trial: Trial, plan: Plan, state: Path, expected: Result) -> tuple[str, list[str]]:
    code, wrong = trial.process.returncode, []
    ended, gap = journal_end(state)
    if gap:
        wrong.append(gap)
    if ended is None:
        return f"exit code {code}", [*wrong, "the journal does not end in the job's end"]
    if ended.code != code:
        wrong.append(f"exit code {code}, and the journal says {ended.code}")
    wrong += incidents_wrong(trial, plan, state)
    if ended.outcome == "failed" and may_fail(plan):
        return f"the stated failure ({ended.reason})", wrong
    result = trial.result()
    if ended.outcome != "succeeded" or code != 0:
        wrong.append(f"it {ended.outcome} with {code}: {ended.reason}")
    elif result is None or result.step != STEPS or abs(result.loss - expected.loss) > LOSS_TOLERANCE:
        wrong.append(f"its result is {result}, the undisturbed run's {expected}")
    unmet = [fault for fault in plan.faults if not trial.has_struck(fault)]
    if unmet:
        wrong.append(f"these faults never struck: {' '.join(unmet)}")
    return ended.outcome, wrong


def may_fail(plan: Plan) -> bool:
    """Hangs in a row, without progress between them, are given up as the ladder says."""
    return sum(kind_of(fault) in HANGS for fault in plan.faults) >= HANGS_MAX


def journal_end(state: Path) -> tuple[Ended | None, str]:
    """How the job ended by its journal, replayed; and what is wrong with its numbers, if anything."""
    jobs = StateDir(state).jobs()
    if not jobs:
        return None, "there is no job in the state folder"
    reader = open_reader(jobs[0].journal_path)
    try:
        policy = msgspec.json.decode(reader.meta("policy") or b"{}", type=Policy)
        rows = list(reader.read_raw())
    finally:
        reader.close()
    numbers = [row[5] for row in rows]
    gap = "" if numbers == list(range(1, len(rows) + 1)) else f"the journal has a gap: {numbers}"
    phase = replay(rows, policy).phase
    return (phase if isinstance(phase, Ended) else None), gap


def incidents_wrong(trial: Trial, plan: Plan, state: Path) -> list[str]:
    """Each fault that breaks the training has its incident, between it and the next, and nothing else has one."""
    summary = summary_of(state)
    found = [incident.found_at_s for incident in summary.incidents] if summary else []
    struck = [
        one for one in trial.moments() if one.kind == "struck" and kind_of(one.fault) != "kill-holdfast"
    ]
    wrong = []
    for number, one in enumerate(struck):
        until_s = struck[number + 1].at_s if number + 1 < len(struck) else float("inf")
        if not any(one.at_s - EARLY_S <= at_s < until_s for at_s in found):
            wrong.append(f"{one.fault} has no incident")
    if len(found) != len(struck):
        wrong.append(f"{len(found)} incidents for {len(struck)} faults that break the training")
    return wrong


# What is left --------------------------------------------------------------------------------------------


def leftovers(all_moments: list[Moment], state: Path) -> list[str]:
    """Ports that are still listened on, and shared memory of processes that are gone."""
    ranks = [fact for path in state.glob("jobs/*/attempt-*/worker-*/reaper.jsonl") for fact in ranks_in(path)]
    ports = {fact.master_port for fact in ranks} | {moment.master_port for moment in all_moments}
    pids = {str(fact.pid) for fact in ranks} | {str(moment.pid) for moment in all_moments}
    wrong = [f"port {port} is still listened on" for port in sorted(listened_on() & (ports - {None, 0}))]
    for path in Path("/dev/shm").glob("torch_*"):
        if path.name.split("_")[1] in pids:
            wrong.append(f"shared memory is left: {path}")
    return wrong


def ranks_in(facts: Path) -> list[RankFound]:
    found = []
    for line in facts.read_bytes().splitlines():
        if b'"rank-started"' in line:
            found.append(msgspec.json.decode(line, type=RankFound))
    return found


def listened_on() -> set[int | None]:
    ports: set[int | None] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


if __name__ == "__main__":
    raise SystemExit(main())
