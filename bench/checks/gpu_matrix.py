"""The GPU part of the fault matrix: faults put into a stand-in for NVML, and healthy nodes that must stay untold.

    python -m bench.checks.gpu_matrix [NAME...]

One line for each case, and a sum. Ends with 1 where a fault is missed, told by the wrong check or with the wrong
advice, or where a healthy node is told to be ill. Needs a C compiler; no GPU.
"""

import importlib
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2] / "tests"


def main(names: list[str]) -> int:
    sys.path.insert(0, str(TESTS))
    matrix = importlib.import_module("fake_nvml.matrix")
    healthy = importlib.import_module("fake_nvml.healthy")
    worker = importlib.import_module("fake_nvml.worker")
    node = importlib.import_module("fake_nvml.node")
    began_s = time.monotonic()
    missed = {"fault": 0, "healthy": 0}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        libraries = {old: node.build(place / f"library-{old}", old=old) for old in (False, True)}
        workers = {old: worker.Worker(library) for old, library in libraries.items()}
        chosen = [
            (kind, case)
            for kind, cases in (("fault", matrix.FAULTS), ("healthy", healthy.HEALTHY))
            for case in cases
            if not names or any(name in case.name for name in names)
        ]
        for number, (kind, case) in enumerate(chosen):
            made = matrix.prepared(case, place / str(number), libraries[case.old])
            wrong = matrix.tried(case, made, workers[case.old])
            missed[kind] += bool(wrong)
            by = f"{case.found.check}: {case.found.status}" if case.found else "nothing told"
            print(f"{'MISSED' if wrong else 'ok':6} {kind:8} {case.name:55} {wrong or by}")
        for one in workers.values():
            one.close()
    counts = {kind: sum(one == kind for one, _ in chosen) for kind in missed}
    print(
        f"{counts['fault'] - missed['fault']} of {counts['fault']} faults found by the right check with the right"
        f" advice; {missed['healthy']} of {counts['healthy']} healthy nodes told to be ill;"
        f" {time.monotonic() - began_s:.0f} s"
    )
    return 1 if any(missed.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
