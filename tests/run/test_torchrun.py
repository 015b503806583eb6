"""The real torchrun, as users call it: logs by rank, and both switches that turn things off."""

import os
import signal

import pytest

from run.place import wait_for

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

SCRIPT = """
import os, sys, time
rank, notes = os.environ["RANK"], os.environ["NOTES"]
print("hello from", rank, flush=True)
print("warning from", rank, file=sys.stderr, flush=True)
with open(f"{notes}/pids-{rank}", "a") as file:
    file.write(f"{os.getpid()} {os.environ.get('HOLDFAST_SHIM')} {sys.argv[1:]}\\n")
step = 0
while not os.path.exists(f"{notes}/go"):
    step += 1
    if rank == "0":
        print(f"step {step} loss 0.5", flush=True)
    time.sleep(0.05)
"""
LONG_S = 120  # importing torch on a busy machine


@pytest.fixture
def script(place):
    (place.path / "train.py").write_text(SCRIPT)
    return "train.py"


def test_the_short_form_gives_each_rank_its_log(place, script):
    run = place.run("--nproc-per-node", "2", script, "--lr", "0.1").prints("step 3 ", wait_s=LONG_S)
    (place.path / "go").touch()
    assert run.code(LONG_S) == 0, run.err
    for rank in (0, 1):
        log = (place.worker() / f"rank-{rank}.log").read_text()
        assert f"hello from {rank}\n" in log
        assert f"warning from {rank}\n" in log
        assert f"[rank{rank}] hello from {rank}\n" in run.out
        assert place.note(f"pids-{rank}").endswith("['--lr', '0.1']")
    told = [
        finding for finding in place.findings() if finding != "ranks-unknown"
    ]  # of an import that takes a minute
    assert told == ["environment", "command-running"]
    place.nothing_left()


def test_without_shim_and_standby_a_killed_rank_is_found_all_the_same(place, script):
    run = place.run(
        "--no-shim",
        "--no-standby",
        "--max-restarts",
        "2",
        "--unconditional-restart",
        "--nproc-per-node",
        "2",
        script,
    )
    run.prints("step 3 ", wait_s=LONG_S)
    wait_for("the ranks, found without a shim", lambda: _ranks_found(place) == {0, 1})
    pid, shim, _ = place.notes("pids-1")[0].split(maxsplit=2)
    assert shim == "None"
    os.kill(int(pid), signal.SIGKILL)
    run.says("attempt 2 starts")
    place.go()
    assert run.code(LONG_S) == 0, run.err
    assert not list(place.worker().glob("rank-*.log"))
    assert [culprit["rank"] for culprit in place.events("verdict-reached")[0]["verdict"]["culprits"]] == [1]
    place.nothing_left()


def _ranks_found(place):
    return {fact["rank"] for fact in place.facts() if fact["kind"] == "rank-started"}
