"""Measures a real server with the data of a large fleet: documents, live viewers, memory. Prints a table.

    python -m bench.page.server                              10,000 jobs, 2,000 nodes, 5,000,000 events
    python -m bench.page.server --jobs 500 --events 100000   smaller
    python -m bench.page.server --data DIR                   keeps the data there, or uses what is there

Documents: each kind is asked many times over one connection, of random jobs. Viewers: so many event streams stay open
while one job changes several times a second; an event counts from before its row is written to its arrival.
"""

import asyncio
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import msgspec
import psutil

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from bench.page.data import fleet_parser, job_name, kept_fleet, wait_for_index
from holdfast.client import ApiError
from holdfast.controller.loop import row_of
from holdfast.core.job.decide import decide
from holdfast.journal.jobdir import StateDir
from holdfast.journal.store import Store
from holdfast.model import events as ev
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.web.access.tokens import TokenFile
from web.servers import Server

ASKED = 200
LIVE_EVENTS, LIVE_EVERY_S = 100, 0.2
SETTLES_S = 10.0
LIVE_JOB = "bench-live"


def main() -> None:
    parser = fleet_parser(__doc__)
    parser.add_argument("--viewers", type=int, default=500)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as temporary:
        root = asked.data or Path(temporary)
        kept_fleet(root, asked)
        tokens = TokenFile(root / "server")
        if tokens.named("bench", time.time()) is not None:
            tokens.revoke("bench")
        secret = tokens.create("bench", "viewer", time.time(), 86_400.0)
        live = Live(root)
        server = Server(root, "--rate", "100000")
        try:
            measure(server, secret, live, asked.jobs, asked.viewers)
        finally:
            server.stop()
            live.close()


def measure(server: Server, secret: str, live: "Live", jobs: int, viewers: int) -> None:
    process = psutil.Process(server.process.pid)
    with server.client(secret, timeout_s=60.0) as client:
        began_s = time.monotonic()
        wait_for_index(client, jobs + 1)  # and the live one
        print(f"index complete after {time.monotonic() - began_s:.0f} s")
    time.sleep(SETTLES_S)
    print(f"idle memory: {process.memory_info().rss / 2**20:.0f} MiB (with the index's helpers gone)")
    documents(server, secret, jobs)
    latencies = asyncio.run(watched(server, secret, live, viewers, process))
    latencies.sort()
    p95 = latencies[int(len(latencies) * 0.95)] if latencies else float("nan")
    print(f"event to viewer: median {latencies[len(latencies) // 2] * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms")


def documents(server: Server, secret: str, jobs: int) -> None:
    dice = random.Random(24)

    def job() -> str:
        return job_name(dice.randrange(jobs))

    kinds = {
        "jobs": lambda: "jobs?limit=100",
        "jobs, page 2 on": lambda: f"jobs?limit=100&search={dice.choice(['llama', 'qwen', 'eval'])}",
        "jobs, by cause": lambda: "jobs?group=cause",
        "jobs, failed": lambda: "jobs?state=failed",
        "job": lambda: f"jobs/{job()}",
        "incident": lambda: f"jobs/{job()}/incidents/1",
        "log": lambda: f"jobs/{job()}/log",
        "steps": lambda: f"jobs/{job()}/steps",
        "output": lambda: f"jobs/{job()}/output",
        "nodes": lambda: "nodes",
        "page of a job": lambda: f"../../jobs/{job()}",
    }
    headers = {"Authorization": f"Bearer {secret}", "Accept-Encoding": "gzip"}
    print(f"{'document':<18} {'median':>9} {'p95':>9} {'bytes':>9}")
    with httpx.Client(base_url=f"{server.url}api/v1/", headers=headers, timeout=60) as http:
        for name, path in kinds.items():
            took, size = [], 0
            for _ in range(ASKED):
                began_s = time.perf_counter()
                answer = http.get(path())
                took.append(time.perf_counter() - began_s)
                assert answer.status_code in (200, 404), (name, answer.status_code, answer.text[:200])
                size = max(size, len(answer.content))
            took.sort()
            print(
                f"{name:<18} {took[ASKED // 2] * 1e3:>6.1f} ms {took[int(ASKED * 0.95)] * 1e3:>6.1f} ms {size:>9}"
            )


class Live:
    """A job whose journal grows."""

    def __init__(self, root: Path) -> None:
        state = StateDir(root)
        try:
            job = state.job(LIVE_JOB)
        except LookupError:
            job = state.create(LIVE_JOB, time.time())
        self._store = Store.open(job.journal_path)
        self._policy, self._state = Policy(max_restarts=8), State()
        if not self._store.last_seq:
            self._store.set_meta("policy", msgspec.json.encode(self._policy))
            facts = {"name": LIVE_JOB, "command": ["train"], "host": "elsewhere"}
            self._store.set_meta("job", msgspec.json.encode(facts))
        placed = (ev.Placed(0, "n0"),)
        for event in (
            ev.JobSubmitted(at_s=time.time(), job=LIVE_JOB, workers=1, command=("train",)),
            ev.WorkersPlaced(at_s=time.time(), attempt=1, placed=placed),
            ev.AttemptStarted(at_s=time.time(), attempt=1),
        ):
            self._tell(event)
        self.step = int(time.time())  # higher than in any run before

    def change(self) -> int:
        self.step += 1
        self._tell(ev.StepReached(at_s=time.time(), attempt=1, step=self.step))
        return self.step

    def close(self) -> None:
        self._store.close()

    def _tell(self, event: ev.AnyEvent) -> None:
        decision = decide(self._state, event, self._policy)
        self._state = decision.state
        self._store.append([row_of(event, decision)])


async def watched(
    server: Server, secret: str, live: Live, viewers: int, process: psutil.Process
) -> list[float]:
    """Latencies of all events at all viewers; prints the server's share of a core meanwhile."""
    written: dict[int, float] = {}
    latencies: list[float] = []
    ready = asyncio.Event()
    state = {"ready": 0}

    async def view() -> None:
        reader, writer = await asyncio.open_connection(*server.address)
        head = f"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\r\n"
        writer.write(head.encode())
        try:
            while line := await reader.readline():
                if line.startswith(b"id:") and state["ready"] < viewers:
                    state["ready"] += 1
                    if state["ready"] == viewers:
                        ready.set()
                if line.startswith(b"data: ") and LIVE_JOB.encode() in line:
                    row = msgspec.json.decode(line[6:]).get("row") or {}
                    at_s = written.get(row.get("step"))
                    if at_s is not None:
                        latencies.append(time.perf_counter() - at_s)
        finally:
            writer.close()

    tasks = []
    for _ in range(viewers):
        tasks.append(asyncio.create_task(view()))
        await asyncio.sleep(0.002)
    await asyncio.wait_for(ready.wait(), 60)
    before, began_s = process.cpu_times(), time.perf_counter()

    def write() -> None:
        for _ in range(LIVE_EVENTS):
            at_s = time.perf_counter()
            written[live.step + 1] = at_s
            live.change()
            time.sleep(LIVE_EVERY_S)

    writing = threading.Thread(target=write)
    writing.start()
    while writing.is_alive():
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)
    after, took_s = process.cpu_times(), time.perf_counter() - began_s
    used_s = after.user + after.system - before.user - before.system
    print(
        f"{viewers} viewers, {LIVE_EVENTS / took_s:.1f} changes/s: {used_s / took_s:.2f} cores of the server"
    )
    print(f"events at viewers: {len(latencies)} (each of {viewers} viewers sees a step or a later one)")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return latencies


if __name__ == "__main__":
    try:
        main()
    except ApiError as error:
        sys.exit(f"{error.status}: {error}")
