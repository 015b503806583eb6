"""What metrics cost: the time of /metrics for a job of 16,384 ranks, its series, and the memory of an agent.

    python -m bench.metrics

The job has 2,048 nodes of eight ranks, a hang with 64 culprits, 1,000 stragglers, 200 incidents of 40 categories, and a step file.
A scrape is one GET over loopback, from the request to the last byte of the answer: the main loop waits in the main thread as a
controller's does, for a tenth of a second or until it is asked, hands over what it knows, and the text is made in a thread.
Memory: bench/metrics_memory.py.
"""

import argparse
import http.client
import select
import statistics
import subprocess
import sys
import threading
import time

from msgspec.structs import replace

from holdfast.core.job.decide import decide
from holdfast.core.metrics.job_samples import JobFacts, job_samples
from holdfast.core.metrics.ledger import Ledger
from holdfast.metrics.exporter import Exported, Exporter, Own
from holdfast.model.events import (
    AttemptStarted,
    AttemptStopped,
    JobSubmitted,
    Placed,
    RankExited,
    RankStarted,
    StepReached,
    VerdictReached,
    WorkersPlaced,
)
from holdfast.model.policy import Policy
from holdfast.model.state import HangFault, Incident, State, Worker
from holdfast.model.steps import StepNow, Straggler
from holdfast.model.verdicts import Culprit, Verdict

NODES, RANKS_A_NODE = 2_048, 8
INCIDENTS, CATEGORIES = 200, 40
SCRAPE_LIMIT_S, SERIES_LIMIT, MEMORY_LIMIT_MIB = 0.050, 2_000, 2.0
TURN_S = 0.1
POLICY = Policy(max_restarts=128, unconditional_restart=True, hang_restart=True)
OPEN = "application/openmetrics-text;version=1.0.0"


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--scrapes", type=int, default=200)
    options.add_argument("--processes", type=int, default=5, help="whose memory is looked at; 0: none")
    chosen = options.parse_args()
    is_good = report_scrapes(chosen.scrapes)
    if chosen.processes:
        is_good &= report_memory(chosen.processes)
    return 0 if is_good else 1


# Scrapes -------------------------------------------------------------------------------------------------


def large_job() -> Ledger:
    """A ledger that has heard of a job of 16,384 ranks with many incidents."""
    ledger, state, at_s = Ledger(POLICY), State(), 1_000.0
    ranks = [
        RankStarted(at_s=at_s, attempt=1, worker=rank // RANKS_A_NODE, rank=rank, pid=rank + 1)
        for rank in range(NODES * RANKS_A_NODE)
    ]
    placed = tuple(Placed(worker, f"node-{worker:04d}") for worker in range(NODES))
    events = [
        JobSubmitted(at_s=at_s, job="pretrain", workers=NODES, command=("train",)),
        WorkersPlaced(at_s=at_s, attempt=1, placed=placed),
        AttemptStarted(at_s=at_s, attempt=1),
        *ranks,
    ]
    for number in range(1, INCIDENTS + 1):
        at_s += 3_600.0
        verdict = Verdict(category=f"xid_{number % CATEGORIES}", class_="hardware", title="x", confidence=0.9)
        events += [
            StepReached(at_s=at_s, attempt=number, step=number * 1_000),
            RankExited(at_s=at_s + 10, attempt=number, worker=0, rank=0, code=-9),
            VerdictReached(at_s=at_s + 12, incident=number, verdict=verdict),
            AttemptStopped(at_s=at_s + 20, attempt=number),
            WorkersPlaced(at_s=at_s + 25, attempt=number + 1, placed=placed),
            AttemptStarted(at_s=at_s + 26, attempt=number + 1),
            StepReached(at_s=at_s + 60, attempt=number + 1, step=number * 1_000 - 20),
        ]
    for event in events:
        decision = decide(state, event, POLICY)
        state = decision.state
        ledger.hear(event, decision)
    return ledger


def with_a_hang(state: State) -> State:
    culprits = tuple(Culprit(rank=rank, worker=rank // RANKS_A_NODE) for rank in range(64))
    verdict = Verdict(
        category="process_stopped", class_="process", title="x", confidence=0.9, culprits=culprits
    )
    fault = HangFault(hang="stopped", culprits=tuple(range(64)), reason="x")
    incident = Incident(INCIDENTS + 1, state.job.attempt, 0.0, faults=(fault,), verdict=verdict)
    workers = tuple(Worker(f"node-{worker:04d}") for worker in range(NODES))
    return replace(state, job=replace(state.job, incident=incident, workers=workers))


def report_scrapes(count: int) -> bool:
    ledger = large_job()
    state = with_a_hang(ledger.state)
    slow = (Straggler(ranks=tuple(range(1_000)), node="node-0001", ratio=1.5, source="arrivals"),)
    facts = JobFacts(
        engine="slurm",
        version="1",
        max_restarts=128,
        agents=NODES,
        stragglers=slow,
        steps=StepNow(step=1, total=10**6, now_s=2.0, median_s=2.0, best_s=1.9, loss=2.5),
        last_output_s=1.0,
    )

    def collect():  # type: ignore[no-untyped-def]
        accounts = ledger.now(10_000_000.0)
        return lambda: job_samples(state, accounts, facts)

    exporter = Exporter(
        Exported(address="127.0.0.1:0"), "controller", ("1", "3"), collect, Own, lambda text: None
    )
    took: dict[str, list[float]] = {"text": [], "OpenMetrics": []}
    series: dict[str, int] = {}
    done = threading.Event()

    def scrape() -> None:
        port = int(exporter.address.rpartition(":")[2])
        for _ in range(count):
            for form, accept in (("text", ""), ("OpenMetrics", OPEN)):
                begun_s = time.perf_counter()
                body = get(port, accept)
                took[form].append(time.perf_counter() - begun_s)
                series[form] = sum(not line.startswith("#") for line in body.splitlines())
        done.set()

    threading.Thread(target=scrape, daemon=True).start()
    while not done.is_set():
        select.select(exporter.channels(), [], [], TURN_S)
        exporter.turn()
    exporter.close()
    is_good = True
    print(f"/metrics of {NODES * RANKS_A_NODE:,} ranks on {NODES:,} nodes, {count} scrapes of each form")
    for form, times in took.items():
        p95 = statistics.quantiles(times, n=20)[-1]
        print(
            f"  {form}: median {1000 * statistics.median(times):.1f} ms, p95 {1000 * p95:.1f} ms, "
            f"worst {1000 * max(times):.1f} ms (limit {1000 * SCRAPE_LIMIT_S:.0f}); "
            f"{series[form]} series (limit {SERIES_LIMIT:,})"
        )
        is_good &= p95 <= SCRAPE_LIMIT_S and series[form] <= SERIES_LIMIT
    return is_good


def get(port: int, accept: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics", headers={"Accept": accept} if accept else {})
    body = connection.getresponse().read().decode()
    connection.close()
    return body


# Memory --------------------------------------------------------------------------------------------------


def report_memory(runs: int) -> bool:
    """Each in a process of its own."""
    took = [run_alone() for _ in range(runs)]
    more = statistics.median(after - before for before, after in took)
    print(
        f"agent: {statistics.median(before for before, _ in took):.1f} MiB without metrics, {more:+.2f} MiB with them "
        f"(limit {MEMORY_LIMIT_MIB:.0f}), median of {runs} processes"
    )
    return more <= MEMORY_LIMIT_MIB


def run_alone() -> tuple[float, float]:
    words = [sys.executable, "-m", "bench.metrics_memory"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    before, after = done.stdout.split()
    return float(before), float(after)


if __name__ == "__main__":
    sys.exit(main())
