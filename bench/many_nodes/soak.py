"""Many random faults in a row on one job of four nodes and some spares; it must end well, and with the right result.

    python -m bench.many_nodes.soak --faults 30 --seed 1

The seed decides which faults strike where and how soon after one another; some strike in the middle of the recovery
from the one before. Nodes are network namespaces on this machine. What is looked at afterwards: exit code, last step and
loss, the counters each rank was given, the journal (whole, no report heard twice, no attempt started twice), processes and
networks that are left, and that no node was isolated that nothing had befallen. Exits with 1 when something is wrong.
"""

import argparse
import functools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bench.job.trial import BIN, HOLDFAST, Result, Trial, end_on_sigterm, training
from bench.many_nodes.job import COMMANDS, RANKS, ManyJob, many_job, refuse_without_root
from bench.many_nodes.lockstep import next_total
from holdfast.controller.loop import replay
from holdfast.journal.store import open_reader
from holdfast.model.orders import AnyOrder, StartAttempt
from holdfast.model.policy import Policy
from holdfast.model.state import Ended

FLAGS = (
    "--max-restarts",
    "128",
    "--unconditional-restart",
    "--replace-workers",
    "128",
    "--node-silence",
    "12s",
)
START_S, AGAIN_S, END_S, ALONE_S = 180.0, 240.0, 240.0, 600.0
STEPS_BETWEEN = 15
MARGIN = 300  # steps between the word that it is to end, and its end
FOR_EVER = 10**9
SHORT_CUT_S, LONG_CUT_S = (1.0, 6.0), 30.0
OVERLAP = 0.25  # how often a fault strikes before all is well again after the one before
LOSS_TOLERANCE = 1e-5


class Fault(Struct, frozen=True):
    """`spoils`: how many nodes it may cost for good. `breaks`: all ranks must begin again. `lasts_s`: before all is well."""

    strike: Callable[[Any], str]
    weight: int
    spoils: int = 0
    breaks: bool = False
    lasts_s: float = 0.0


class Soak:
    """One job, its faults, and what is to be undone later."""

    def __init__(self, job: Any, dice: random.Random, faults: Mapping[str, Fault]) -> None:
        """`job`: a ManyJob."""
        self.job, self.dice, self.faults = job, dice, faults
        self.befallen: set[str] = set()  # nodes that may be isolated
        self.away: set[str] = set()
        self.later: list[tuple[float, Callable[[], None]]] = []

    def turn(self) -> None:
        """Undoes what is due."""
        due = [one for one in self.later if one[0] <= time.monotonic()]
        for one in due:
            self.later.remove(one)
            one[1]()

    def after(self, delay_s: float, do: Callable[[], None]) -> None:
        self.later.append((time.monotonic() + delay_s, do))

    def settle(self) -> None:
        """Undoes all that is left to undo."""
        while self.later:
            self.turn()
            time.sleep(0.1)

    def node(self, *, at_work: bool) -> str:
        """One that is there, at random. raises: LookupError"""
        working = {self.job.rank(rank)[1] for rank in range(RANKS)}
        here = set(self.job.hosts.names) - self.away
        return self.dice.choice(sorted(here & working if at_work else here - working))

    # Faults ---------------------------------------------------------------------------------------------------

    def kill_rank(self) -> str:
        rank = self.dice.randrange(RANKS)
        pid, node = self.job.rank(rank)
        os.kill(pid, signal.SIGKILL)
        return f"rank {rank} on {node}"

    def kill_worker(self) -> str:
        _, node = self.job.rank(self.dice.randrange(RANKS))
        for pid in self.job.of_worker(node):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return node

    def kill_agent(self) -> str:
        node = self.node(at_work=self.dice.random() < 0.8)
        pid = self.job.agent(node)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        return node

    def kill_controller(self) -> str:
        trial = self.job.trial
        trial.process.kill()
        trial.process.wait()
        away_s = self.dice.choice([0.0, 2.0, 8.0])
        time.sleep(away_s)
        trial.process = trial._start([*HOLDFAST, "attach", "--state-dir", str(self.job.state), "bench"])
        return f"away for {away_s:.0f} s"

    def crash_worker_node(self) -> str:
        return self._crash(self.node(at_work=True))

    def crash_spare_node(self) -> str:
        return self._crash(self.node(at_work=False))

    def _crash(self, node: str) -> str:
        self.befallen.add(node)
        self.away.add(node)
        self.job.hosts.crash(node)

        def boot() -> None:
            self.job.hosts.boot([node])
            self.away.discard(node)

        self.after(self.dice.uniform(2.0, 20.0), boot)
        return node

    def cut_short(self) -> str:
        node = self.node(at_work=True)
        for_s = self.dice.uniform(*SHORT_CUT_S)
        self._cut(node, for_s)
        return f"{node} for {for_s:.1f} s"

    def cut_long(self) -> str:
        node = self.node(at_work=True)
        self.befallen.add(node)
        self._cut(node, LONG_CUT_S)
        return f"{node} for {LONG_CUT_S:.0f} s"

    def _cut(self, node: str, for_s: float) -> None:
        hosts = self.job.hosts
        hosts.cut(node)
        self.away.add(node)

        def join() -> None:
            hosts.join(node)
            self.away.discard(node)

        self.after(for_s, join)

    def fill_disk(self) -> str:
        """The node's own: a full one lies over the folder in which its agent keeps what it has."""
        node = self.node(at_work=True)
        self.befallen.add(node)
        own = self.own(node)
        mount = f"mkdir -p {own} && mount -t tmpfs -o size=64k tmpfs {own} && head -c 65536 /dev/zero > {own}/full || true"
        self.inside(node, "sh", "-c", mount)
        pid = self.job.agent(node)
        if pid is not None:  # the next one lives with the full disk
            os.kill(pid, signal.SIGKILL)

        def empty() -> None:
            with suppress(LookupError, ProcessLookupError):  # the node has crashed since
                self.inside(node, "rm", "-f", f"{own}/full")

        self.after(self.dice.uniform(5.0, 15.0), empty)
        return node

    def own(self, node: str) -> Path:
        """The folder of the node's agent."""
        place: Path = self.job.hosts.place(node)
        return place

    def inside(self, node: str, *words: str) -> None:
        """Runs a command on the node. raises: LookupError or ProcessLookupError, where the node is down"""
        _run([*self.job.hosts.inside(node), *words])


FAULTS = {
    "rank": Fault(Soak.kill_rank, 6, breaks=True),
    "worker": Fault(Soak.kill_worker, 4, breaks=True),
    "agent": Fault(Soak.kill_agent, 5),
    "controller": Fault(Soak.kill_controller, 5),
    "node crash": Fault(Soak.crash_worker_node, 3, spoils=1, breaks=True),
    "spare crash": Fault(Soak.crash_spare_node, 1, spoils=1),
    "link cut": Fault(Soak.cut_short, 4),
    "link cut for long": Fault(Soak.cut_long, 2, spoils=1, lasts_s=LONG_CUT_S),
    "full disk": Fault(Soak.fill_disk, 2),
}


def main() -> int:
    options = read_options()
    refuse_without_root()
    end_on_sigterm()
    folder = Path(tempfile.mkdtemp(prefix="many-soak-"))
    begun_s = time.monotonic()
    with many_job(
        folder / "run", *FLAGS, spares=options.spares, steps=FOR_EVER, kind=options.training
    ) as job:
        soak = Soak(job, random.Random(options.seed), FAULTS)
        counts: Counter[str] = Counter()
        try:
            struck(soak, options, counts)
            wrong = ended(soak, options.training)
        except (TimeoutError, ChildProcessError) as error:
            wrong = [str(error)]
    return said("bench.many_nodes.soak", options, counts, wrong, time.monotonic() - begun_s, folder)


def said(
    name: str,
    options: argparse.Namespace,
    counts: Counter[str],
    wrong: list[str],
    took_s: float,
    folder: Path,
) -> int:
    """What came of it, for people. What is wrong keeps its folder. Returns what to exit with."""
    print(f"seed {options.seed}: {sum(counts.values())} faults ({_told(counts)}) in {took_s:.0f} s")
    for line in wrong:
        print(f"    WRONG: {line}")
    if wrong:
        print(f"    its folder: {folder}")
        print(f"    repeat it: python -m {name} --faults {options.faults} --seed {options.seed}")
        return 1
    print("as it should be")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spares", type=int, default=5, help="nodes that faults may cost, and one")
    parser.add_argument("--training", choices=list(COMMANDS), default="torch")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(FAULTS))
    return parser.parse_args()


def struck(soak: Soak, options: argparse.Namespace, counts: Counter[str]) -> None:
    """All faults, one after the other. raises: TimeoutError, ChildProcessError"""
    trains(soak, 0.0, START_S)
    spoilt = 0
    while sum(counts.values()) < options.faults:
        kinds = [one for one in options.kinds if spoilt + soak.faults[one].spoils < options.spares]
        kind = soak.dice.choices(kinds, [soak.faults[one].weight for one in kinds])[0]
        at_s = time.time()
        try:
            where = soak.faults[kind].strike(soak)
        except (LookupError, IndexError):  # in the middle of a recovery there is no such thing to strike at
            soak.turn()
            time.sleep(0.5)
            continue
        counts[kind] += 1
        spoilt += soak.faults[kind].spoils
        print(f"{sum(counts.values()):3} {kind}: {where}", flush=True)
        if soak.dice.random() < OVERLAP:
            wait(soak, soak.dice.uniform(0.0, 4.0))
        elif soak.faults[kind].breaks:
            again(soak, at_s)
        else:
            trains(soak, at_s + soak.faults[kind].lasts_s, AGAIN_S)
    trains(soak, time.time(), AGAIN_S)


def wait(soak: Soak, for_s: float) -> None:
    until_s = time.monotonic() + for_s
    while time.monotonic() < until_s:
        soak.turn()
        time.sleep(0.05)


def again(soak: Soak, after_s: float) -> None:
    """Until all ranks have begun anew since then, and train."""

    def all_step() -> bool:
        soak.turn()
        return len(soak.job.first_steps(after_s)) == RANKS

    soak.job.wait_for("all ranks to begin again", all_step, AGAIN_S)
    trains(soak, time.time(), AGAIN_S)


def trains(soak: Soak, after_s: float, limit_s: float) -> None:
    """Until each rank has taken some steps since then."""

    def steps_enough() -> bool:
        soak.turn()
        made = Counter(one.rank for one in soak.job.moments() if one.kind == "step" and one.at_s > after_s)
        return len(made) == RANKS and min(made.values()) >= STEPS_BETWEEN

    soak.job.wait_for("steps of all ranks", steps_enough, limit_s)


# What it comes to ----------------------------------------------------------------------------------------------


def ended(soak: Soak, kind: str) -> list[str]:
    """Lets it end, and says all that is wrong. raises: TimeoutError"""
    soak.settle()
    job = soak.job
    last = max(one.step for one in job.moments()) + MARGIN
    (job.folder / "last-step.part").write_text(str(last))
    (job.folder / "last-step.part").replace(job.folder / "last-step")
    if not job.trial.wait(END_S):
        raise TimeoutError(f"the job had not ended {END_S:.0f} s after its last step was set")
    wrong = [f"left: {one}" for one in job.left()]
    if job.trial.process.returncode != 0:
        wrong.append(f"exit code {job.trial.process.returncode}")
    result, alone = job.trial.result(), undisturbed(job.folder.parent / "alone", last, kind)
    if result is None or result.step != last or abs(result.loss - alone.loss) > LOSS_TOLERANCE:
        wrong.append(f"its result is {result}, the undisturbed run's {alone}")
    return wrong + journal_wrong(soak) + starts_wrong(job)


def undisturbed(folder: Path, steps: int, kind: str) -> Result:
    """What the same training ends with when nobody touches it and nobody watches."""
    if kind == "lockstep":
        return Result(steps, float(functools.reduce(next_total, range(1, steps + 1), 1)))
    folder.mkdir()
    command = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(RANKS)]
    trial = Trial([*command, *training(folder, steps=steps, step_s=0.0)], folder)
    is_over = trial.wait(ALONE_S)
    trial.clear()
    result = trial.result()
    assert is_over and result is not None, f"the training does not even run alone; see {folder / 'said.log'}"
    return result


def journal_wrong(soak: Soak) -> list[str]:
    """A row that is missing, a report heard twice, an end that is none, a healthy node isolated."""
    reader = open_reader(soak.job.path / "journal.db")
    try:
        policy = msgspec.json.decode(reader.meta("policy") or b"{}", type=Policy)
        rows, entries = list(reader.read_raw()), list(reader.read())
    finally:
        reader.close()
    wrong = []
    numbers = [entry.seq for entry in entries]
    if numbers != list(range(1, len(entries) + 1)):
        wrong.append("the journal has a gap")
    told = [msgspec.json.decode(entry.event) for entry in entries]
    twice = [via for via, times in Counter(one["via"] for one in told if "via" in one).items() if times > 1]
    if twice:
        wrong.append(f"reports heard twice: {twice}")
    state = replay(rows, policy)
    if not isinstance(state.phase, Ended) or state.phase.outcome != "succeeded":
        wrong.append(f"by its journal the job did not succeed: {state.phase}")
    isolated = {one["node"] for one in told if one["kind"] == "node-isolated"}
    if isolated - soak.befallen:
        wrong.append(f"isolated, though nothing had befallen them: {sorted(isolated - soak.befallen)}")
    return wrong


def starts_wrong(job: ManyJob) -> list[str]:
    """Each rank of each attempt begins at most once, and with the counters that were ordered."""
    ordered = {}
    for entry in job.entries():
        for order in msgspec.json.decode(entry.orders, type=list[AnyOrder]):
            if isinstance(order, StartAttempt):
                for one in order.workers:
                    ordered[order.attempt, one.worker] = (one.schedule_cnt, one.proc_start_cnt)
    wrong = []
    begun: Counter[tuple[int, int]] = Counter()
    for path in job.folder.glob("events.*.jsonl"):
        for line in path.read_bytes().splitlines():
            if b'"begun"' not in line:
                continue
            one = msgspec.json.decode(line)
            which = (one["holdfast_attempt"], one["rank"])
            begun[which] += 1
            given = (one["ma_schedule_cnt"], one["ma_proc_start_cnt"])
            if given != ordered.get(which):
                wrong.append(
                    f"rank {which[1]} of attempt {which[0]} was given {given}, not {ordered.get(which)}"
                )
    wrong += [
        f"rank {rank} of attempt {attempt} began {times} times"
        for (attempt, rank), times in begun.items()
        if times > 1
    ]
    return wrong


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items()))


def _run(words: list[str]) -> None:
    os.spawnvp(os.P_WAIT, words[0], words)


if __name__ == "__main__":
    sys.exit(main())
