"""Starts a lighthouse, and torchrun for each replica group of one rank: `torchft_job.py RANKS TRAINING WORDS...`.

It stands for a scheduler: it restarts nothing itself, and what it has started ends with it.
"""

import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # this script is started by its path

from bench.faults.beside import drop, free_port, start

BIN = Path(sys.executable).parent
TRAINING = Path(__file__).with_name("torchft_training.py")
RESTARTS = "3"
LIGHTHOUSE = ("--min_replicas", "1", "--quorum_tick_ms", "100", "--join_timeout_ms", "10000")


def tell(group: int, process: subprocess.Popen[str]) -> None:
    for line in process.stdout or ():
        print(f"[replica {group}] {line}", end="", flush=True)


def main() -> int:
    ranks, words = int(sys.argv[1]), sys.argv[3:]  # the second word is the training of the other systems
    port = free_port()
    lighthouse = start([str(BIN / "torchft_lighthouse"), "--bind", f"[::]:{port}", *LIGHTHOUSE])
    threading.Thread(target=drop, args=(lighthouse,), daemon=True).start()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    command = [*launcher, "--max-restarts", RESTARTS, str(TRAINING), *words]
    groups = [
        start(
            command,
            TORCHFT_LIGHTHOUSE=f"http://localhost:{port}",
            REPLICA_GROUP_ID=str(group),
            NUM_REPLICA_GROUPS=str(ranks),
        )
        for group in range(ranks)
    ]
    threads = [threading.Thread(target=tell, args=(group, one)) for group, one in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    code = max(abs(one.wait()) for one in groups)
    lighthouse.terminate()
    lighthouse.wait()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
