"""What checks cost: the quick suite on a node with 8 GPUs, and the passive looks while a job trains.

    python -m bench.checks.cost --runs 5

NVML is the stand-in of the tests, compiled here, in which 8 GPUs are well. `quick`: `holdfast check --quick` from its
start to its end, with and without a command to be fit for; wall clock, and the largest sum of the PSS of it and all its
children, looked at every 10 ms. `continuous`: what the agent runs each --every seconds beside a training, as processor
time of it and its children, over that time. Limits: 5 s, 50 MiB, 0.2 % of a core.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from holdfast.agent.nodes.checks import CONTINUOUS_S
from holdfast.checks.registry import all_checks
from holdfast.checks.runner import SuiteRun
from holdfast.checks.scene import scene_for
from holdfast.core.checks.plan import while_training
from holdfast.model.checks import CONTINUOUS
from holdfast.model.settings import RunSettings

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from fake_nvml.node import Node, build

SECONDS_MAX, BYTES_MAX, SHARE_MAX = 5.0, 50 << 20, 0.002
GPUS = 8
LOOK_S = 0.01
TRAIN = "import json\nimport os\n\nprint(json.dumps(os.environ.get('RANK')))\n"


def main() -> int:
    options = read_options()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        node = Node(place, build(place / "library"))
        node.says(count=GPUS)
        script = place / "train.py"
        script.write_text(TRAIN)
        command = ["torchrun", f"--nproc-per-node={GPUS}", str(script)]
        cases = {"quick": [], "quick, with a command": ["--", *command]}
        rows = [
            {"case": name, **quick(more, node.env, place)}
            for _ in range(options.runs)
            for name, more in cases.items()
        ]
        rows += [{"case": "continuous", **continuous(node, place, command)} for _ in range(options.runs)]
    for row in rows:
        print(json.dumps(row), flush=True)
    return told(rows, options.every)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--every", type=float, default=RunSettings.__struct_defaults__[_every()])
    return parser.parse_args()


def _every() -> int:
    """Where the default of check_every_s stands among the defaults, which are those of the last fields."""
    fields = RunSettings.__struct_fields__
    return fields.index("check_every_s") - len(fields)


def quick(more: list[str], env: Mapping[str, str], place: Path) -> dict[str, Any]:
    words = [
        sys.executable,
        "-m",
        "holdfast",
        "check",
        "--quick",
        "--json",
        "--state-dir",
        str(place / "state"),
    ]
    began_s = time.monotonic()
    process = subprocess.Popen([*words, *more], env=dict(env), stdout=subprocess.PIPE, cwd=place)
    most: list[int] = []
    while process.poll() is None:
        parts = pss_bytes(process.pid)
        if sum(parts) > sum(most):
            most = parts
        time.sleep(LOOK_S)
    took_s = time.monotonic() - began_s
    assert process.stdout is not None, "it is a pipe"
    answer = json.loads(process.stdout.read())
    slowest = max(answer["checks"], key=lambda check: check["seconds"])
    ran = [check for check in answer["checks"] if check["status"] != "skip"]
    return {
        "seconds": round(took_s, 3),
        "suite_seconds": answer["seconds"],
        "peak_mib": round(sum(most) / (1 << 20), 1),
        "parts_mib": [round(part / (1 << 20), 1) for part in most],
        "checks": len(answer["checks"]),
        "not_skipped": len(ran),
        "slowest": f"{slowest['name']} {slowest['seconds']:.3f} s",
    }


def pss_bytes(pid: int) -> list[int]:
    """Of it and of each below it, shared pages counted by share."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return [_pss(one) for one in (pid, *(child.pid for child in process.children(recursive=True)))]
    return []


def _pss(pid: int) -> int:
    with suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) << 10
    return 0


def continuous(node: Node, place: Path, command: list[str]) -> dict[str, Any]:
    """One look, as the agent has it done: processor seconds, ours and the children's."""
    specs = while_training([check.spec for check in all_checks()])
    before, began_s = spent_s(), time.monotonic()
    scene = scene_for(command, node.env, str(place), context=CONTINUOUS, quick=True, training=True)
    run = SuiteRun(specs, scene, time.monotonic() + CONTINUOUS_S, env=node.env)
    outcomes = run.wait()
    return {
        "cpu_seconds": round(spent_s() - before, 4),
        "seconds": round(time.monotonic() - began_s, 3),
        "checks": len(outcomes),
    }


def spent_s() -> float:
    """Processor time of this process and of its children that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


def told(rows: list[dict[str, Any]], every_s: float) -> int:
    by_case: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_case.setdefault(str(row["case"]), []).append(row)
    is_kept = True
    print(
        f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; median and worst of {len(by_case['quick'])}\n"
    )
    print("| | wall clock | peak PSS | processor | limit |\n|---|---|---|---|---|")
    for name, runs in by_case.items():
        if name == "continuous":
            spent = [run["cpu_seconds"] for run in runs]
            share = statistics.median(spent) / every_s
            is_kept &= share <= SHARE_MAX
            print(
                f"| {name}, every {every_s:g} s | {_two([run['seconds'] for run in runs])} s | |"
                f" {_two(spent)} s, {share:.3%} of a core | {SHARE_MAX:.1%} |"
            )
            continue
        took, most = [run["seconds"] for run in runs], [run["peak_mib"] for run in runs]
        is_kept &= statistics.median(took) <= SECONDS_MAX and max(most) * (1 << 20) <= BYTES_MAX
        print(f"| {name} | {_two(took)} s | {_two(most)} MiB | | {SECONDS_MAX:g} s, {BYTES_MAX >> 20} MiB |")
    return 0 if is_kept else 1


def _two(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({max(values):.2f})"


if __name__ == "__main__":
    sys.exit(main())
