"""What it costs to be ready for a restart: memory and processor time of the zygote, its fork servers and stubs.

    python -m bench.job.warm_memory [--ranks 8]

A job of that many ranks trains; once its zygote is ready, its proportional memory (PSS) and its processor time are read, and
again after a kill, with the fork server and the stubs. For comparison: the processor time of one rank up to its first step.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import psutil

from bench.job.trial import Trial, end_on_sigterm, holdfast_run, torchrun, training

LIMIT_S = 300.0
SETTLE_S = 3.0
STUB, OURS = "holdfast-stub", ("holdfast", "zygote")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=8)
    given = parser.parse_args()
    end_on_sigterm()
    folder = Path(tempfile.mkdtemp(prefix="warm-memory-"))
    state = folder / "state"
    command = [*holdfast_run(state, "--zygote"), *torchrun(given.ranks)]
    trial = Trial([*command, *training(folder, steps=100_000)], folder)
    try:
        wait_for(lambda: any(moment.kind == "step" for moment in trial.moments()))
        imports = min(_cpu_s(pid) for pid in _rank_pids(trial))
        wait_for(lambda: any(json.loads(path.read_text())["cost_s"] for path in state.glob("imports/*.json")))
        time.sleep(SETTLE_S)
        ready = costs(folder)
        victim = _rank_pids(trial)[0]
        os.kill(victim, 9)
        wait_for(lambda: _is_stepping(trial, victim))
        time.sleep(SETTLE_S)
        print(
            json.dumps(
                {"ranks": given.ranks, "rank_start_cpu_s": imports, "ready": ready, "after": costs(folder)}
            )
        )
    finally:
        trial.clear()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def wait_for(is_true: object) -> None:
    assert callable(is_true)
    until_s = time.monotonic() + LIMIT_S
    while not is_true():
        if time.monotonic() > until_s:
            raise SystemExit("it did not happen")
        time.sleep(0.2)


def _rank_pids(trial: Trial) -> list[int]:
    pids = {moment.rank: moment.pid for moment in trial.moments()}
    return [pids[rank] for rank in sorted(pids)]


def _is_stepping(trial: Trial, victim: int) -> bool:
    moments = trial.moments()
    ended_s = max(moment.at_s for moment in moments if moment.pid == victim)
    return any(
        moment.kind == "step" and moment.at_s > ended_s + 0.1 and moment.pid != victim and moment.rank == 0
        for moment in moments
    )


def costs(folder: Path) -> dict[str, float]:
    """PSS in MiB by kind, and processor seconds of the zygote."""
    found = {"zygote_mib": 0.0, "servers_mib": 0.0, "stubs_mib": 0.0, "cpu_s": 0.0}
    for process in psutil.process_iter(["pid", "name", "cmdline"]):
        words = tuple(process.info["cmdline"] or ())
        kind = "stubs_mib" if process.info["name"] == STUB else ""
        if words[:2] == OURS:
            kind = "servers_mib" if len(words) > 2 else "zygote_mib"
        if kind and _is_of(process.info["pid"], folder):
            found[kind] += _pss_mib(process.info["pid"])
            if kind == "zygote_mib":
                found["cpu_s"] += _cpu_s(process.info["pid"])
    return {key: round(value, 1) for key, value in found.items()}


def _is_of(pid: int, folder: Path) -> bool:
    try:
        return str(folder) in Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return False


def _pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    raise SystemExit(main())
