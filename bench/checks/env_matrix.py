"""Faults of a run's environment, one at a time, each to be found by its check; and sound ones, with no finding.

    python -m bench.checks.env_matrix

Each case is a small world in a folder of its own (tests/checks/env): a Python environment with a fabricated torch, a
script, a shell profile, devices below a root. The checks are the real ones, and so are the Python, the shell, the
sockets and the files. Prints a matrix; exits with 1 where a fault was missed or a sound case was blamed.
"""

import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2] / "tests"
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from checks.env.faults import FAULTS  # noqa: E402
from checks.env.healthy import HEALTHY  # noqa: E402
from checks.env.judging import blamed, found, odd_node  # noqa: E402


def main() -> int:
    missed = 0
    with tempfile.TemporaryDirectory() as top:
        for number, fault in enumerate(FAULTS):
            wrong = found(Path(top) / f"fault-{number}", fault)
            missed += bool(wrong)
            print(f"{'MISSED' if wrong else 'found':<7} {fault.check:<15} {fault.name}  {wrong}")
        told = odd_node(Path(top))
        is_right = told == ["node-2: torch 2.5.1"]
        missed += not is_right
        print(
            f"{'found' if is_right else 'MISSED':<7} {'env-versions':<15} another torch on one of three nodes  {told}"
        )
        for number, (name, change) in enumerate(HEALTHY.items()):
            said = blamed(Path(top) / f"healthy-{number}", change)
            missed += bool(said)
            print(f"{'BLAMED' if said else 'healthy':<7} {'':<15} {name}  {'; '.join(said)}")
    print(f"{len(FAULTS) + 1} faults, {len(HEALTHY)} healthy, {missed} wrong")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
