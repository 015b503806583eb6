"""The benches' training: killed when its newest checkpoint is damaged, it goes on as if nothing had happened."""

import os
from pathlib import Path

import msgspec

from bench.job.ram_checkpoints import flip, is_copied
from run.place import wait_for

TRAINING = Path(__file__).parents[3] / "bench" / "job" / "training.py"
RESTARTS = ("--max-restarts", "2", "--unconditional-restart", "--ram-checkpoints", "64MiB", "--no-standby")
FAULT = "12:0:wait"
LONG_S = 250.0


def test_a_real_rank_goes_on_from_the_restored_checkpoint(place):
    place.env["OMP_NUM_THREADS"] = "1"
    words = ["--folder", place.path, "--steps", "20", "--checkpoint-every", "5", "--log-every", "1", "--sums"]
    run = place.real_ranks(1, TRAINING, *words, "--fault", FAULT, flags=RESTARTS)
    checkpoint = place.path / "checkpoint.pt"
    wait_for("the fault", (place.path / f"struck-{FAULT.replace(':', '-')}").exists, LONG_S)
    wait_for(lambda: f"the copy:\n{run.err}", lambda: is_copied(checkpoint, place.path), LONG_S)
    flip(checkpoint)
    (place.path / "go-on").touch()
    assert run.code(LONG_S) == 0, run.err
    findings = {one["finding"]: one["numbers"] for one in place.events("finding-noted")}
    outcomes = [
        one["numbers"]["outcome"]
        for one in place.events("finding-noted")
        if one["finding"] == "ram-checkpoint" and one["numbers"]["outcome"] not in ("copied", "left-out")
    ]
    assert outcomes == ["restored"]
    assert findings["resume-check"]["verdict"] == "exact"  # steps 11 and 12, made twice
    assert msgspec.json.decode((place.path / "result.json").read_bytes())["step"] == 20
    assert os.path.exists(place.path / ".checkpoint.pt.damaged-1")
    place.nothing_left()
