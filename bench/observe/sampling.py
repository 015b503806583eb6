"""What it costs to sample ranks once a second: `python -m bench.observe.sampling [RANKS] [SECONDS] [CHILDREN]`.

Each rank is a real Python process with 20 threads and 2 children, or as many as are asked for.
The target is 0.4 % of a core for 8 ranks.
"""

import statistics
import subprocess
import sys
import time

from holdfast.observe.processes.procs import RankReader

TARGET_SHARE = 0.004

RANK = """
import os, sys, threading
read, write = os.pipe()
for _ in range(int(sys.argv[1])):
    if not os.fork():
        os.close(write)
        os.read(read, 1)  # until the rank has gone
        os._exit(0)
quiet = threading.Event()
for _ in range(19):
    threading.Thread(target=quiet.wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


def main(ranks: int, seconds: int, children: int) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(children)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(ranks)
    ]
    try:
        for process in processes:
            process.stdout.readline()
        measure([RankReader(process.pid, rank) for rank, process in enumerate(processes)], seconds)
    finally:
        for process in processes:
            process.stdin.close()
            process.wait()


def measure(readers: list[RankReader], seconds: int) -> None:
    spent_s = []
    for _ in range(seconds):
        time.sleep(1)  # as the agent does: files of /proc are cold each time
        before_s = time.process_time()
        for reader in readers:
            reader.sample(time.time())
        spent_s.append(time.process_time() - before_s)
    share = sum(spent_s) / seconds
    print(f"{len(readers)} ranks at 1 Hz, {seconds} s: {100 * share:.3f} % of a core ", end="")
    print(f"(target for 8: {100 * TARGET_SHARE:.1f} %)")
    print(f"one rank: {1e3 * share / len(readers):.3f} ms; per second: ", end="")
    print(f"median {1e3 * statistics.median(spent_s):.2f} ms, most {1e3 * max(spent_s):.2f} ms")
    for reader in readers:
        reader.close()


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*(numbers + [8, 30, 2][len(numbers) :]))
