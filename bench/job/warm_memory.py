"""What it costs to be ready for a restart: memory and processor time of the zygote, its fork servers and stubs, and of the
next attempt's processes, which wait at their gate.

    python -m bench.job.warm_memory [--ranks 8]

A job of that many ranks trains; once the next attempt waits, proportional memory (PSS) and processor time are read, and again
after a kill, once the attempt after that waits. For comparison: the processor time of one rank up to its first step.
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
STATE = "state"
STUB, OURS = "holdfast-stub", ("holdfast", "zygote")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=8)
    given = parser.parse_args()
    end_on_sigterm()
    folder = Path(tempfile.mkdtemp(prefix="warm-memory-"))
    command = [*holdfast_run(folder / STATE, "--zygote"), *torchrun(given.ranks)]
    trial = Trial([*command, *training(folder, steps=100_000)], folder)
    try:
        wait_for(lambda: any(moment.kind == "step" for moment in trial.moments()))
        imports = min(_cpu_s(pid) for pid in _rank_pids(trial))
        wait_for(lambda: waits(folder, 2, given.ranks))
        time.sleep(SETTLE_S)
        ready = costs(folder, 2)
        victim = _rank_pids(trial)[0]
        os.kill(victim, 9)
        wait_for(lambda: _is_stepping(trial, victim) and waits(folder, 3, given.ranks))
        time.sleep(SETTLE_S)
        after = costs(folder, 3)
        print(json.dumps({"ranks": given.ranks, "rank_start_cpu_s": imports, "ready": ready, "after": after}))
    finally:
        trial.clear()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def waits(folder: Path, attempt: int, ranks: int) -> bool:
    """Whether all ranks of that attempt wait at their gate, forked.

    The files alone may be those of a standby that waited until the zygote had begun.
    """
    files = list(folder.glob(f"{STATE}/jobs/*/attempt-{attempt:03d}/worker-0/rank-*.ready"))
    return len(files) == ranks and stubs(folder, attempt) == ranks


def stubs(folder: Path, attempt: int) -> int:
    """How many stubs of ranks of that attempt there are."""
    found = [
        _environ(one.pid).split(b"\0") for one in psutil.process_iter(["name"]) if one.info["name"] == STUB
    ]
    return sum(
        b"HOLDFAST_ATTEMPT=%d" % attempt in one
        and _is_below(folder, one)
        and any(v.startswith(b"RANK=") for v in one)
        for one in found
    )


def _is_below(folder: Path, variables: list[bytes]) -> bool:
    return any(os.fsencode(folder) in one for one in variables)


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


def costs(folder: Path, attempt: int) -> dict[str, float]:
    """PSS in MiB by kind, and processor seconds: of the zygote, and of all that waits for that attempt."""
    found = {"zygote_mib": 0.0, "servers_mib": 0.0, "stubs_mib": 0.0, "waiting_mib": 0.0}
    found |= {"cpu_s": 0.0, "waiting_cpu_s": 0.0}
    for process in psutil.process_iter(["pid", "name", "cmdline"]):
        pid, words = process.info["pid"], tuple(process.info["cmdline"] or ())
        variables = _environ(pid).split(b"\0")
        if not _is_below(folder, variables):
            continue
        is_waiting = b"HOLDFAST_ATTEMPT=%d" % attempt in variables
        kind = "waiting_mib" if is_waiting else ""
        if process.info["name"] == STUB:
            kind = "stubs_mib"
        elif words[:2] == OURS:
            kind = "servers_mib" if len(words) > 2 else "zygote_mib"
        if kind:
            found[kind] += _pss_mib(pid)
            found["cpu_s"] += _cpu_s(pid) if kind == "zygote_mib" else 0.0
            found["waiting_cpu_s"] += _cpu_s(pid) if is_waiting else 0.0
    return {key: round(value, 1) for key, value in found.items()}


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    raise SystemExit(main())
