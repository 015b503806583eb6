"""Measures what the shim costs a rank: at its start, and at each step while it is asked how far it is.

    python -m bench.job.shim_overhead [--pairs 60] [--step-ms 20]

Steps: one real rank (gloo) does steps of half Python, half matrix products, and an all_reduce; blocks of half a
second in which it is asked take turns with blocks in which it is not. The shim wraps nothing of the training, so
being asked is all that it can cost a step. Asked 50 times a second, which makes the cost of one question visible,
and divided by 50 for the one a second that the agent asks. The ratio's 95 % interval is from resampled pairs.
Start: `python -c pass` and `import torch.distributed` with and without the shim, taking turns.
Prints one line of JSON.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import holdfast
from holdfast.observe.processes.worker_server import GroupStatusReader

SHIM = Path(holdfast.__file__).parent / "shim"
BLOCK_S = 0.5
QUESTIONS_PER_S = 50
RESAMPLES = 4000
RANK = """import sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
small, a = torch.ones(64), torch.ones(128, 128)
def step(rounds):
    for _ in range(rounds):
        sum(range(2000))
        a @ a
    dist.all_reduce(small)
rounds, taken_s = 10, 0.0
while taken_s < float(sys.argv[1]):
    rounds = int(rounds * 1.2) + 1
    began_s = time.perf_counter()
    step(rounds)
    taken_s = time.perf_counter() - began_s
with open(sys.argv[2], "w", buffering=1) as out:
    print("up", flush=True)
    while True:
        began_s, cpu_s = time.monotonic(), time.thread_time()
        step(rounds)
        out.write(f"{began_s:.7f} {time.monotonic():.7f} {time.thread_time() - cpu_s:.7f}\\n")
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=60, help="of blocks")
    parser.add_argument("--step-ms", type=float, default=20.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        found = steps(Path(folder), given.pairs, given.step_ms)
        found["start_python_ms"] = start(Path(folder), "pass", 40)
        found["start_torch_distributed_ms"] = start(Path(folder), "import torch.distributed", 8)
    print(json.dumps(found))


def environment(folder: Path, *, shim: bool) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    ours = {"HOLDFAST_SHIM": "1", "HOLDFAST_WORKER_DIR": str(folder), "PYTHONPATH": str(SHIM)}
    return env | {"RANK": "1", "LOCAL_RANK": "0", "TORCH_FR_BUFFER_SIZE": "2000"} | (ours if shim else {})


# Steps


def steps(folder: Path, pairs: int, step_ms: float) -> dict[str, object]:
    times = folder / "steps"
    argv = [sys.executable, "-c", RANK, str(step_ms / 1000), str(times)]
    with subprocess.Popen(argv, env=environment(folder, shim=True), stdout=subprocess.PIPE) as rank:
        try:
            assert rank.stdout is not None
            rank.stdout.readline()
            return measured(folder, rank.pid, pairs, times)
        finally:
            rank.kill()


def measured(folder: Path, pid: int, pairs: int, times: Path) -> dict[str, object]:
    reader = GroupStatusReader(folder / "rank-1.sock", time.monotonic)
    thread = shim_thread(pid)
    before_s, own_s, questions = cpu_s(thread), 0.0, 0
    blocks: list[tuple[bool, float, float]] = []
    for number in range(2 * pairs):
        # asked first in every other pair, so that a drift of the machine falls on both alike
        asked = number % 4 in (0, 3)
        began_s = time.monotonic()
        while time.monotonic() < began_s + BLOCK_S:
            if asked:
                cpu_before_s = time.process_time()
                reader.read()
                reader.ask()
                own_s += time.process_time() - cpu_before_s
                questions += 1
            time.sleep(1 / QUESTIONS_PER_S)
        blocks.append((asked, began_s, time.monotonic()))
    reader.close()
    spent_s = cpu_s(thread) - before_s
    time.sleep(0.5)
    taken = read_steps(times)
    pairs_of_blocks = [blocks[i : i + 2] for i in range(0, 2 * pairs, 2)]
    return {
        "pairs": pairs,
        "step_ms": round(1000 * statistics.median(step.wall_s for step in taken), 2),
        "percent_of_step_time": added([block_medians(pair, taken, "wall_s") for pair in pairs_of_blocks]),
        "percent_of_main_threads_cpu": added(
            [block_medians(pair, taken, "cpu_s") for pair in pairs_of_blocks]
        ),
        "rank_cpu_us_per_question": round(1e6 * spent_s / questions, 1),
        "agent_cpu_us_per_question": round(1e6 * own_s / questions, 1),
    }


def shim_thread(pid: int) -> Path:
    """The one that blocks every signal."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        blocked = [line for line in (task / "status").read_text().splitlines() if line.startswith("SigBlk")]
        if int(blocked[0].split()[1], 16).bit_count() > 50:
            return task
    raise SystemExit(f"the shim has no thread in process {pid}: is HOLDFAST_SHIM taken away?")


def cpu_s(task: Path) -> float:
    return int((task / "schedstat").read_text().split()[0]) / 1e9


class Step(NamedTuple):
    began_s: float
    wall_s: float
    cpu_s: float


def read_steps(path: Path) -> list[Step]:
    lines = [[float(word) for word in line.split()] for line in path.read_text().splitlines()[:-1]]
    return [Step(began_s, end_s - began_s, cpu_s) for began_s, end_s, cpu_s in lines]


def block_medians(
    pair: Sequence[tuple[bool, float, float]], taken: Sequence[Step], what: str
) -> tuple[float, float]:
    """The middle step of the asked block and of the other."""
    found = {}
    for asked, since_s, until_s in pair:
        inside = [getattr(step, what) for step in taken if since_s <= step.began_s < until_s - step.wall_s]
        found[asked] = statistics.median(inside) if inside else math.nan
    return found[True], found[False]


def added(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """What being asked once a second adds, in per cent, with the ends of its 95 % interval."""
    per_question = 100 / QUESTIONS_PER_S
    found = [per_question * (asked / other - 1) for asked, other in pairs if asked > 0 and other > 0]
    dice = random.Random(1)
    medians = sorted(statistics.median(dice.choices(found, k=len(found))) for _ in range(RESAMPLES))
    ends = medians[RESAMPLES // 40], medians[-RESAMPLES // 40]
    return {"median": round(statistics.median(found), 4), "low": round(ends[0], 4), "high": round(ends[1], 4)}


# Start


def start(folder: Path, program: str, pairs: int) -> dict[str, float]:
    def once(shim: bool) -> float:
        began_s = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], env=environment(folder, shim=shim), check=True)
        return 1000 * (time.perf_counter() - began_s)

    found = [(once(True), once(False)) for _ in range(pairs)]
    return {
        "without": round(statistics.median(other for _, other in found), 2),
        "added": round(statistics.median(ours - other for ours, other in found), 2),
    }


if __name__ == "__main__":
    main()
