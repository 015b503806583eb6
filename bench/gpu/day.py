"""Runs every part of the GPU day within its time limit. Started by bench/gpu_day.py.

A part is skipped when no GPU is there and it needs one, or when less time is left than it usually takes. The reports are
written after each part, so that a run that is cut off keeps what it has.
"""

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from bench.gpu import measures, report, trials
from bench.gpu.report import Part
from bench.job.trial import compile_holdfast, end_on_sigterm


class Plan(Struct, frozen=True):
    """One part of the day. `usual_s`: its usual time; `needs_gpu`: False if it also runs on the CPU."""

    name: str
    run: Callable[[Path], Part]
    usual_s: float
    needs_gpu: bool = True


def plans() -> list[Plan]:
    """In order of importance: what the time limit cuts off is at the end."""
    faults = [
        Plan(f"fault {name}", lambda raw, one=fault: trials.fault(one, raw), fault.usual_s, fault.needs_gpu)  # type: ignore[misc]
        for name, fault in trials.FAULTS.items()
    ]
    return [
        Plan("machine", measures.machine, 5, needs_gpu=False),
        Plan("checks", measures.checks, 30),
        Plan("healthy, two ranks over gloo", trials.healthy, 20, needs_gpu=False),
        *faults,
        Plan("healthy, one rank over NCCL", trials.healthy_nccl, 20),
        Plan("signals while training and in an endless kernel", trials.signals, 25),
        Plan("CUDA context and fork", measures.context_and_fork, 25),
        Plan("Hugging Face Trainer through four faults", trials.trainer, 70, needs_gpu=False),
        Plan("another process computes on the GPU", trials.shared_gpu, 25),
        Plan("benchmarks of the checks", measures.bench_checks, 90),
    ]


def main() -> None:
    given = arguments()
    end_on_sigterm()
    compile_holdfast()
    raw = given.out / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    has_gpu, begun_s = measures.has_gpu(), time.monotonic()
    parts: list[Part] = []
    for plan in plans():
        if given.only and plan.name not in given.only:
            continue
        left_s = given.limit_s - (time.monotonic() - begun_s)
        part = carried_out(plan, raw, has_gpu, left_s)
        parts.append(part)
        print(report.line(part), flush=True)
        report.write(given.out, parts)
    shutil.make_archive(str(given.out / "raw"), "gztar", raw)
    print(report.summary(parts), flush=True)
    sys.exit(any(part.problems for part in parts))


def carried_out(plan: Plan, raw: Path, has_gpu: bool, left_s: float) -> Part:
    """The result of the part. An error of the bench is a problem of its part, and ends no other part."""
    if plan.needs_gpu and not has_gpu:
        return Part(plan.name, skipped="no GPU here")
    if left_s < plan.usual_s:
        return Part(plan.name, skipped=f"{left_s:.0f} s are left, it usually takes {plan.usual_s:.0f} s")
    folder = raw / plan.name.replace(" ", "-").replace(",", "")
    folder.mkdir(parents=True, exist_ok=True)
    begun_s = time.monotonic()
    try:
        part = plan.run(folder)
    except Exception:  # noqa: BLE001  one part must not end the day: its traceback is its result
        part = Part(plan.name, problems=[f"the bench failed: {traceback.format_exc(limit=-3)}"])
    part.name, part.took_s = plan.name, round(time.monotonic() - begun_s, 1)
    return part


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "gpu-day")
    parser.add_argument("--limit-s", type=float, default=540.0, help="of all parts together")
    parser.add_argument("--only", action="append", help="name of a part; repeatable")
    given = parser.parse_args()
    given.out = given.out.absolute()
    return given


if __name__ == "__main__":
    main()
