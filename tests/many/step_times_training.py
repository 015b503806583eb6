"""One worker of a training that says how long each of its steps took: from step 30 on one of them is slower.

    step_times_training.py SLOW

`SLOW`: the rank, or "all". `$NOTES/go` ends it well.
"""

import os
import subprocess
import sys
import time

if "RANK" not in os.environ:
    env = os.environ | {
        "RANK": os.environ["NODE_RANK"],
        "LOCAL_RANK": "0",
        "WORLD_SIZE": os.environ["NNODES"],
    }
    sys.exit(subprocess.run([sys.executable, "-S", *sys.argv], env=env, check=False).returncode)

rank, notes, slow = int(os.environ["RANK"]), os.environ["NOTES"], sys.argv[1]
step = 0
while not os.path.exists(f"{notes}/go"):
    step += 1
    is_slow = step >= 30 and slow in (str(rank), "all")
    # Steps differ a little from each other, in every rank in another way.
    step_s = (0.8 if is_slow else 0.5) * (1 + 0.01 * ((step * 7 + rank * 3) % 5 - 2))
    sys.stdout.write(f"[rank{rank}] step {step}/100000 loss 0.5 step_time {step_s:.4f} s\n")
    sys.stdout.flush()
    time.sleep(0.05)
