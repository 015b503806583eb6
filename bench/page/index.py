"""Measures the index of the server with the data of a large fleet, and prints a table.

    python -m bench.page.index                                        10,000 jobs, 2,000 nodes, 5,000,000 events, SQLite
    python -m bench.page.index --jobs 500 --events 200000             smaller
    python -m bench.page.index --database postgresql://USER@HOST/NAME
    python -m bench.page.index --data DIR                             keeps the data there, or uses what is there

Rebuild: all journals are read, replayed and written. Each query is asked many times, with other words each time.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import func, select

from bench.page.data import FAILURES, RESTARTS, begun, fleet_parser, job_name, write_fleet
from holdfast.archive.index.database import Database
from holdfast.archive.index.node_queries import node_incidents, node_jobs, nodes_page
from holdfast.archive.index.queries import JobsWanted, jobs_page, similar_incidents
from holdfast.archive.index.service import IndexService
from holdfast.archive.index.tables import SOURCES
from holdfast.archive.job import read
from holdfast.archive.places import Places
from holdfast.controller.loop import row_of
from holdfast.core.job.decide import decide
from holdfast.journal.jobdir import JobDir
from holdfast.model.documents.live import JobChanged
from holdfast.model.events import AnyEvent, AttemptStarted, JobSubmitted, Placed, StepReached, WorkersPlaced
from holdfast.model.state import State

BUILD_S_MAX = 1_800.0
IDLE_S = 10.0
MEMORY_SETTLES_S = 3.0
PROBES, PROBE_S_MAX = 40, 60.0


def main() -> None:
    parser = fleet_parser(__doc__)
    parser.add_argument("--database", default="")
    parser.add_argument("--times", type=int, default=200, help="how often each query is asked")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)  # the measured process itself
    asked = parser.parse_args()
    if asked.serve is not None:
        measure(asked.serve, asked.database, asked.times)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        root = asked.data or Path(folder, "state")
        if not (root / "jobs").is_dir():
            began_s = time.perf_counter()
            count = write_fleet(root, asked.jobs, asked.nodes, asked.events, os.cpu_count() or 1)
            row(
                "data written",
                f"{count:,} events of {asked.jobs:,} jobs",
                f"{time.perf_counter() - began_s:.0f} s",
            )
        # A process of its own: its memory is not that of who wrote the data.
        words = [sys.executable, "-m", "bench.page.index", "--serve", root, "--database", asked.database]
        sys.exit(subprocess.call([*map(str, words), "--times", str(asked.times)]))


def measure(root: Path, database: str, times: int) -> None:
    service = IndexService(Places([root]), database, fleet=root / "fleet", processes=os.cpu_count() or 1)
    began_s = time.perf_counter()
    service.start()
    try:
        built = service.wait(is_built, BUILD_S_MAX)
        took_s = time.perf_counter() - began_s
        if not built:
            raise SystemExit(f"the index was not built in {BUILD_S_MAX:.0f} s: {service.state}")
        count = events_in(service.database)
        row("rebuild", f"{count:,} events, {took_s:.1f} s", f"{count / took_s:,.0f} events/s")
        row(
            "database",
            service.database.engine.dialect.name,
            f"{(service.database.size_bytes() or 0) / 1e6:.0f} MB",
        )
        for name, query in queries(service.database, root).items():
            row(name, *times_of(query, times))
        row("entry written to row changed", *seen_after(root, service))
        time.sleep(MEMORY_SETTLES_S)
        cpu_s, began_s = time.process_time(), time.perf_counter()
        time.sleep(IDLE_S)
        share = (time.process_time() - cpu_s) / (time.perf_counter() - began_s)
        row("idle", f"{memory_mb():.0f} MiB", f"{share:.1%} of a core")
    finally:
        service.stop()
    began_s = time.perf_counter()
    again = IndexService(Places([root]), database, fleet=root / "fleet")
    again.start()
    try:
        again.wait(is_built, BUILD_S_MAX)
        row("start with the index there", f"{time.perf_counter() - began_s:.2f} s", "")
    finally:
        again.stop()


def events_in(database: Database) -> int:
    with database.reading() as connection:
        return int(connection.execute(select(func.sum(SOURCES.c.seq))).scalar_one())


def is_built(service: IndexService) -> bool:
    progress = service.state.progress
    return service.is_current and progress is not None and progress.jobs > 0


def queries(database: Database, root: Path) -> dict[str, Callable[[], object]]:
    """By name; each asks for something else each time."""
    dice = random.Random(11)
    total = jobs_page(database, JobsWanted(limit=1), 0.0).total
    causes = [group.cause for group in jobs_page(database, JobsWanted(grouped=True), 0.0).groups]
    nodes = [node.node for node in nodes_page(database, limit=200).nodes]
    words = [word for failure in FAILURES for word in failure[3].split() if len(word) > 4]
    cursors = list(some_cursors(database))
    names = [job_name(dice.randrange(total)) for _ in range(400)]

    def page(**wanted: object) -> object:
        return jobs_page(database, JobsWanted(**wanted), 0.0)  # type: ignore[arg-type]

    return {
        "list": lambda: page(),
        "list with causes": lambda: page(grouped=True),
        "failed jobs with causes": lambda: page(states=("failed",), grouped=True),
        "a later page": lambda: page(cursor=dice.choice(cursors)),
        "search": lambda: page(search=dice.choice(words)),
        "search with causes": lambda: page(search=dice.choice(words), grouped=True),
        "search without a find": lambda: page(search=f"nowhere {dice.random()}"),
        "jobs of one cause": lambda: page(cause=dice.choice(causes)),
        "similar incidents": lambda: similar_incidents(database, dice.choice(causes), "another", 1),
        "nodes": lambda: nodes_page(database, search=f"gpu-{dice.randrange(20):02}"),
        "jobs and incidents of a node": lambda: (
            node_jobs(database, name := dice.choice(nodes)),
            node_incidents(database, name),
        ),
        "document of a job": lambda: read(Places([root]).job(dice.choice(names))).document(),
    }


def some_cursors(database: Database) -> Iterator[str]:
    cursor = ""
    for _ in range(20):
        cursor = jobs_page(database, JobsWanted(cursor=cursor, limit=100), 0.0).next
        if not cursor:
            return
        yield cursor


def seen_after(root: Path, service: IndexService) -> tuple[str, str]:
    """Of a live job, from the append to its journal until the change can be sent to those who watch."""
    job = JobDir(root / "jobs" / f"probe-{os.getpid()}")
    store, found = begun(job, time.time(), RESTARTS), list[float]()
    try:
        with job.lock():
            state = State()
            for number in range(-3, PROBES):
                event: AnyEvent
                match number:
                    case -3:
                        event = JobSubmitted(at_s=time.time(), job=job.name, workers=1)
                    case -2:
                        event = WorkersPlaced(at_s=time.time(), attempt=1, placed=(Placed(0, "gpu-0001"),))
                    case -1:
                        event = AttemptStarted(at_s=time.time(), attempt=1)
                    case _:
                        event = StepReached(at_s=time.time(), attempt=1, step=number)
                decision = decide(state, event, RESTARTS)
                state = decision.state
                store.append([row_of(event, decision)])
                if number >= 0:
                    found.append(waited_ms(service, job.name, number))
                    time.sleep(random.random() / 2)  # anywhere between two looks
    finally:
        store.close()
        shutil.rmtree(job.path)
    return spread(found[1:])  # the first look at a new job is not one of a live one


def waited_ms(service: IndexService, name: str, step: int) -> float:
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < PROBE_S_MAX:
        for change in service.changes():
            if isinstance(change.data, JobChanged) and change.job == name:
                if change.data.row is not None and change.data.row.step == step:
                    return (time.perf_counter() - began_s) * 1000.0
        time.sleep(0.005)
    raise SystemExit(f"step {step} was not seen in {PROBE_S_MAX:.0f} s")


def times_of(query: Callable[[], object], times: int) -> tuple[str, str]:
    found = []
    for _ in range(times):
        began_s = time.perf_counter()
        query()
        found.append((time.perf_counter() - began_s) * 1000.0)
    return spread(found)


def spread(found: list[float]) -> tuple[str, str]:
    found.sort()
    return f"p50 {found[len(found) // 2]:.1f} ms", f"p95 {found[int(len(found) * 0.95)]:.1f} ms"


def memory_mb() -> float:
    """Resident, of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def row(name: str, first: str, second: str) -> None:
    print(f"{name:32}{first:>28}{second:>22}", flush=True)


if __name__ == "__main__":
    main()
