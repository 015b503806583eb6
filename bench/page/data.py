"""Writes data for the page benchmarks: journals of many jobs in one state folder, and a node book.

The core decides every row, as in a real controller. Few journals are long, most are short, as in a real fleet.
"""

import argparse
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec

from holdfast.client import Client
from holdfast.controller.loop import row_of
from holdfast.core.job.decide import decide
from holdfast.journal.jobdir import JobDir
from holdfast.journal.nodes.book import NodeBook
from holdfast.journal.rows import Row
from holdfast.journal.store import Store
from holdfast.model import events as ev
from holdfast.model.nodes.book import AttemptRan, IncidentLine
from holdfast.model.policy import Policy
from holdfast.model.state import Ended, State
from holdfast.model.verdicts import Culprit, Evidence, Verdict

BEGIN_S = 1_767_225_600.0
RESTARTS = Policy(max_restarts=8, unconditional_restart=True, hang_restart=True)
NO_RESTARTS = Policy()
BATCH_ROWS = 4_000
INDEXED_S_MAX = 1_800.0
RANKS_PER_NODE = 8
NAMES = ("llama", "qwen", "sft", "dpo", "eval", "vit", "moe", "whisper")
# Category, class, title, first error; the frequent ones first.
FAILURES = (
    ("port_in_use", "environment", "port 29500 is in use", "OSError: [Errno 98] Address already in use"),
    ("gpu_oom", "memory", "rank {rank} ran out of GPU memory", "torch.OutOfMemoryError: CUDA out of memory."),
    (
        "user_code",
        "training",
        "ValueError in data.py:41",
        "ValueError: could not convert string to float: 'n/a'",
    ),
    ("process_killed", "host", "rank {rank} was killed by SIGKILL", "Killed"),
    (
        "xid_79",
        "hardware",
        "GPU {device} fell off the bus",
        "NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus",
    ),
    (
        "nccl_network_error",
        "network",
        "a network link failed",
        "NCCL WARN NET/IB : Got completion with error 12",
    ),
    ("disk_full", "host", "the disk is full", "OSError: [Errno 28] No space left on device"),
    (
        "checkpoint_damaged",
        "training",
        "a checkpoint cannot be read",
        "RuntimeError: PytorchStreamReader failed",
    ),
)
WEIGHTS = (20, 18, 16, 12, 10, 9, 8, 7)


def sizes(jobs: int, events: int) -> list[int]:
    """Events of each job: 40 % in the 0.2 % longest, 40 % in the next 2 %, the rest in all others. At least 20."""
    long, middle = max(1, jobs // 500), max(1, jobs // 50)
    short = max(1, jobs - long - middle)
    parts = [(long, 0.4), (middle, 0.4), (short, 0.2)]
    found = [max(20, int(events * share / count)) for count, share in parts for _ in range(count)][:jobs]
    random.Random(7).shuffle(found)
    return found


def fleet_parser(about: str | None) -> argparse.ArgumentParser:
    """Returns a command line with the size of the fleet and the folder of its data. `about`: the text of --help."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--data", type=Path)
    return parser


def kept_fleet(root: Path, asked: argparse.Namespace) -> None:
    """Writes the data of the fleet that the command line describes, unless the folder has data."""
    if not (root / "jobs").is_dir():
        written = write_fleet(root, asked.jobs, asked.nodes, asked.events, asked.processes)
        print(f"data: {asked.jobs} jobs, {asked.nodes} nodes, {written} events")


def wait_for_index(client: Client, jobs: int) -> None:
    """Waits until the server has read so many jobs."""
    began_s = time.monotonic()
    while client.jobs(limit=1).total < jobs:
        assert time.monotonic() - began_s < INDEXED_S_MAX, "the index is not built"
        time.sleep(0.5)


def write_fleet(root: Path, jobs: int, nodes: int, events: int, processes: int) -> int:
    """Returns how many events there are."""
    wanted = [(number, size) for number, size in enumerate(sizes(jobs, events))]
    wanted.sort(key=lambda one: -one[1])
    chunks = [wanted[start::64] for start in range(64)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(_write_jobs, root, chunk, nodes) for chunk in chunks if chunk]
        written = sum(one.result() for one in asked)
    _write_book(root / "fleet", jobs, nodes)
    return written


def job_name(number: int) -> str:
    return f"{NAMES[number % len(NAMES)]}-{number:05}"


def _write_jobs(root: Path, wanted: list[tuple[int, int]], nodes: int) -> int:
    return sum(write_job(root, number, size, nodes) for number, size in wanted)


def begun(job: JobDir, begin_s: float, policy: Policy) -> Store:
    """A new job's folder and journal, with its facts."""
    job.path.mkdir(parents=True)
    (job.path / "created").write_text(f"{begin_s!r}\n")
    store = Store.open(job.journal_path)
    facts = {
        "name": job.name,
        "command": ["torchrun", "--nproc-per-node", "8", f"train_{job.name}.py", "--config", "base.yaml"],
        "host": os.uname().nodename,
        "version": "0.1.0",
    }
    store.set_meta("policy", msgspec.json.encode(policy))
    store.set_meta("job", msgspec.json.encode(facts))
    return store


def write_job(root: Path, number: int, size: int, nodes: int) -> int:
    """One job of about so many events. Returns how many there are."""
    job = JobDir(root / "jobs" / job_name(number))
    begin_s = BEGIN_S + number * 600.0
    store = begun(job, begin_s, _policy(number))
    count, rows = 0, list[Row]()
    for row in _rows(job.name, number, size, nodes, begin_s):
        rows.append(row)
        count += 1
        if len(rows) >= BATCH_ROWS:
            store.append(rows)
            rows = []
    store.append(rows)
    store.close()
    return count


def _rows(name: str, number: int, size: int, nodes: int, begin_s: float) -> Iterator[Row]:
    state, policy = State(), _policy(number)
    for event in _events(name, number, size, nodes, begin_s):
        decision = decide(state, event, policy)
        state = decision.state
        yield row_of(event, decision)
        if isinstance(state.phase, Ended):
            return


def _policy(number: int) -> Policy:
    """A third of the jobs fail at the first failure."""
    return RESTARTS if number % 3 else NO_RESTARTS


def _events(name: str, number: int, size: int, nodes: int, begin_s: float) -> Iterator[ev.AnyEvent]:
    dice = random.Random(number)
    workers = 1 if size < 30 else dice.choice((1, 1, 2, 4, 8))
    at_s, step = begin_s, 0
    yield ev.JobSubmitted(at_s=at_s, job=name, workers=workers, command=("torchrun", f"train_{name}.py"))
    failures = 0 if dice.random() < 0.4 else dice.randint(1, 3)
    attempts = failures + 1
    if _policy(number) is NO_RESTARTS:
        failures, attempts = min(failures, 1), 1  # the first failure is the end
    for attempt in range(1, failures + 2):
        places = [f"gpu-{dice.randrange(nodes):04}" for _ in range(workers)]
        at_s += 2.0
        placed = tuple(ev.Placed(worker, node) for worker, node in enumerate(places))
        yield ev.WorkersPlaced(at_s=at_s, attempt=attempt, placed=placed)
        yield ev.AttemptStarted(at_s=at_s, attempt=attempt)
        for rank in range(min(workers * RANKS_PER_NODE, max(1, size // 8))):
            worker = rank // RANKS_PER_NODE
            yield ev.RankStarted(at_s=at_s, attempt=attempt, worker=worker, rank=rank, pid=1000 + rank)
        for _ in range(size // attempts):
            at_s, step = at_s + 1.0, step + 1
            yield ev.StepReached(at_s=at_s, attempt=attempt, step=step)
        if attempt > failures:
            break
        for event in _failure(dice, attempt, workers, at_s, last=attempt == failures):
            at_s = event.at_s
            yield event
    for worker in range(workers):
        yield ev.WorkerExited(at_s=at_s + 1.0, attempt=failures + 1, worker=worker, code=0)
    yield ev.AttemptStopped(at_s=at_s + 2.0, attempt=failures + 1)


def _failure(
    dice: random.Random, attempt: int, workers: int, at_s: float, *, last: bool
) -> Iterator[ev.AnyEvent]:
    """`last`: half of these end the job."""
    rank = dice.randrange(workers * RANKS_PER_NODE)
    category, class_, title, first = dice.choices(FAILURES, WEIGHTS)[0]
    verdict = Verdict(
        category=category,
        class_=class_,
        title=title.format(rank=rank, device=rank % RANKS_PER_NODE),
        confidence=0.9,
        culprits=(Culprit(rank=rank, worker=rank // RANKS_PER_NODE),),
        first_error=Evidence(
            text=first, file=f"attempt-{attempt:03}/worker-0/rank-{rank}.log", line=812, at_s=at_s
        ),
        raised=f"{category} at train.py:{40 + dice.randrange(3)}",
    )
    yield ev.RankExited(at_s=at_s, attempt=attempt, worker=rank // RANKS_PER_NODE, rank=rank, code=1)
    ends = last and dice.random() < 0.5
    yield ev.VerdictReached(
        at_s=at_s + 2.0,
        incident=attempt,
        verdict=verdict,
        problem=verdict.raised,
        user_code=ends,
        environment=not ends,
    )
    yield ev.AttemptStopped(at_s=at_s + 5.0, attempt=attempt)


def _write_book(folder: Path, jobs: int, nodes: int) -> None:
    """Where attempts ran, and a failure of every second job."""
    dice, book = random.Random(3), NodeBook(folder)
    for start in range(0, jobs, 1_000):
        lines, ran = [], []
        for number in range(start, min(start + 1_000, jobs)):
            at_s, run = BEGIN_S + number * 600.0, f"{job_name(number)}@{number}"
            places = tuple(f"gpu-{dice.randrange(nodes):04}" for _ in range(4))
            ran.append(AttemptRan(run=run, attempt=1, nodes=places, started_s=at_s, hours=4.0))
            if number % 2:
                category, _, title, _ = dice.choices(FAILURES, WEIGHTS)[0]
                line = IncidentLine(
                    at_s=at_s,
                    node=places[0],
                    run=run,
                    attempt=1,
                    incident=1,
                    category=category,
                    title=title,
                    weighs="node",
                    confidence=0.9,
                )
                lines.append((f"incident/{run}/1", line))
        book.note(lines, ran)
    everywhere = tuple(f"gpu-{number:04}" for number in range(nodes))
    book.note([], [AttemptRan(run="burn-in@0", attempt=1, nodes=everywhere, started_s=BEGIN_S, hours=1.0)])
    book.close()
