"""Measures the output view of a job with a very large log: open it, jump to a second, search a pattern. Prints a table.

    python -m bench.page.big_output                  10 GB, in a temporary folder that is removed afterwards
    python -m bench.page.big_output --gb 2           smaller
    python -m bench.page.big_output --folder DIR     where the temporary folder is made; needs that much room

A real server answers over HTTP, as it answers the page. Open: the last 200 lines. Jump: 200 lines around a random second.
Search: pages of one pattern, from the beginning to its only line near the end, as the page follows their cursors.
Reference in the same run: `holdfast diagnose` of the same file, in turns with the search.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from cli.journals import one_failure_and_on, write_job
from holdfast.journal.jobdir import StateDir
from holdfast.observe.logs.index import IndexWriter
from web.servers import Server

JOB = "bench-output"
BLOCK_BYTES = 16 << 20
BEGIN_S, EVERY_S = 1_767_280_800.0, 0.5  # of the records of the time index
RECORDS = 172_800  # a day
NEEDLE = "needle-4711"
NEEDLE_AT = 0.98
ASKED = 200


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gb", type=float, default=10.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3, help="searches and diagnoses")
    asked = parser.parse_args()
    size_bytes = int(asked.gb * 1e9)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=asked.folder) as folder:
        if shutil.disk_usage(folder).free < size_bytes * 1.1:
            sys.exit(f"{folder} has no room for {asked.gb:g} GB: choose another --folder, or fewer --gb")
        root = Path(folder, "state")
        log = written(root, size_bytes)
        server = Server(root, "--rate", "100000")
        try:
            measure(server, log, asked.rounds)
        finally:
            server.stop()


def written(root: Path, size_bytes: int) -> Path:
    """A job with one log of this size, and its time index."""
    job = write_job(StateDir(root), JOB, one_failure_and_on())
    log = job.worker(1, 0) / "rank-0.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    needle_bytes = int(size_bytes * NEEDLE_AT)
    block = lines(random.Random(7))
    done_bytes, has_needle = 0, False
    with log.open("wb") as file:
        while done_bytes < size_bytes:
            done_bytes += file.write(block)
            if done_bytes >= needle_bytes and not has_needle:
                has_needle = True
                done_bytes += file.write(f"RuntimeError: {NEEDLE}\n".encode())
    index = IndexWriter(log, print)
    for number in range(1, RECORDS + 1):
        index.append(BEGIN_S + number * EVERY_S, done_bytes * number // RECORDS)
    index.close()
    return log


def lines(dice: random.Random) -> bytes:
    """Lines of a training, BLOCK_BYTES of them."""
    found, size_bytes = [], 0
    while size_bytes < BLOCK_BYTES:
        line = (
            f"2026-01-01 {dice.randrange(24):02}:{dice.randrange(60):02}:{dice.randrange(60):02},{dice.randrange(1000):03} "
            f"INFO trainer: step {dice.randrange(10**6)} loss {dice.random() * 9:.4f} lr {dice.random():.2e} "
            f"grad_norm {dice.random() * 3:.3f} tokens/s {dice.randrange(10**5)}\n"
        )
        found.append(line)
        size_bytes += len(line)
    return "".join(found).encode()


def measure(server: Server, log: Path, rounds: int) -> None:
    size_bytes = log.stat().st_size
    dice = random.Random(24)
    print(f"{size_bytes / 1e9:.1f} GB in one log, {RECORDS:,} records of its time index")
    path, file = f"api/v1/jobs/{JOB}/output", f"attempt-001/worker-0/{log.name}"
    with server.http(timeout=120.0) as http:
        wait(lambda: http.get(path).status_code == 200)

        def open_() -> None:
            assert len(http.get(path).raise_for_status().json()["lines"]) == 200

        def jump() -> None:
            at_s = BEGIN_S + dice.random() * RECORDS * EVERY_S
            found = http.get(path, params={"at_s": at_s, "file": file}).raise_for_status().json()["lines"]
            assert any(abs(one["at_s"] - at_s) <= 2 * EVERY_S for one in found), (at_s, found[0], found[-1])

        row("open", times_of(open_))
        row("jump to a second", times_of(jump))
        search_s, diagnose_s = [], []
        for _ in range(rounds):
            search_s.append(searched(http, path))
            diagnose_s.append(diagnosed(log))
    for name, times in (("search", search_s), ("holdfast diagnose", diagnose_s)):
        bytes_ = size_bytes * (NEEDLE_AT if name == "search" else 1.0)
        speed = bytes_ / statistics.median(times) / 1e9
        print(f"{name:<20} {statistics.median(times):8.1f} s  {speed:6.2f} GB/s  ({len(times)} times)")


def searched(http: httpx.Client, path: str) -> float:
    """Seconds until the page with the line is there; its cursors are followed as the page does."""
    began_s, cursor = time.perf_counter(), ""
    while True:
        query = {"pattern": NEEDLE, "direction": "after", **({"cursor": cursor} if cursor else {})}
        page = http.get(path, params=query).raise_for_status().json()
        if page["lines"]:
            assert NEEDLE in page["lines"][0]["text"]
            return time.perf_counter() - began_s
        assert page["after"] and page["after"] != cursor, "the search does not go on"
        cursor = page["after"]


def diagnosed(log: Path) -> float:
    words = [sys.executable, "-m", "holdfast", "diagnose", "--json", str(log)]
    began_s = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    took_s = time.perf_counter() - began_s
    assert NEEDLE in json.dumps(json.loads(done.stdout)), done.stderr[-500:]
    return took_s


def times_of(do: Callable[[], None]) -> list[float]:
    found = []
    for _ in range(ASKED):
        began_s = time.perf_counter()
        do()
        found.append(time.perf_counter() - began_s)
    return sorted(found)


def row(name: str, times: list[float]) -> None:
    print(
        f"{name:<20} {len(times)} times: median {times[len(times) // 2] * 1e3:.1f} ms, "
        f"p95 {times[int(len(times) * 0.95)] * 1e3:.1f} ms, longest {times[-1] * 1e3:.1f} ms"
    )


def wait(done: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 60.0
    while not done():
        assert time.monotonic() < until_s, "the server does not show the job"
        time.sleep(0.2)


if __name__ == "__main__":
    main()
