"""Thousands of faults of the control plane around healthy pods, in simulation: is any healthy job stopped?

Each run has a seed: dropped, doubled, reordered and late watch events, stale lists, a server that is away, refused writes, lost
answers, nodes and agents that are late, and the controller killed at its writes; a few pods really end. A run is wrong if a
healthy pod is removed or counts as lost, if the job is ended, or if the pods are not known as they are once faults stop.

    python -m bench.kubernetes.simulated --runs 1000 --faults 20
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from core.kubernetes.control_plane import run


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--faults", type=int, default=20, help="in each run")
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    options = parser.parse_args()
    begun_s = time.monotonic()
    wrong = {
        seed: found
        for seed in range(options.seed, options.seed + options.runs)
        if (found := run(seed, options.faults))
    }
    for seed, found in list(wrong.items())[:10]:
        print(f"seed {seed}: {'; '.join(found[:3])}", file=sys.stderr)
    row = {
        "runs": options.runs,
        "faults": options.runs * options.faults,
        "wrong": len(wrong),
        "seconds": round(time.monotonic() - begun_s, 1),
    }
    print(json.dumps(row))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
