"""A job with a zygote: what is forked after a fault, what is left out, and that nothing is left at the end.

The launcher is a small one by the name of torchrun, which Python starts with the shim; `heavy` is an installed package.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from holdfast.agent import launch
from run.place import wait_for

READY_S = 250.0  # it imports at the lowest priority, beside all else that runs here
RESTARTS = ("--max-restarts", "3", "--unconditional-restart", "--zygote")
TORCHRUN = f"""#!{sys.executable}
import os, subprocess, sys, time
ranks = [
    subprocess.Popen(
        [{sys.executable!r}, "-u", *sys.argv[1:]],
        env=os.environ | {{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}},
        start_new_session=True,
    )
    for rank in range(2)
]
while any(rank.poll() is None for rank in ranks):
    if any(rank.poll() for rank in ranks):
        for rank in ranks:
            os.killpg(rank.pid, 9)
    time.sleep(0.01)
sys.exit(any(rank.returncode for rank in ranks))
"""
TRAIN = """
import json, os, sys, time
ahead = "heavy" in sys.modules
import heavy
rank, notes, attempt = os.environ["RANK"], os.environ["NOTES"], os.environ["HOLDFAST_ATTEMPT"]
with open(f"/proc/{os.getppid()}/comm") as file:
    parent = file.read().strip()
given = {"pid": os.getpid(), "parent": parent, "ahead": ahead, "argv": sys.argv[1:], "made": heavy.made}
with open(f"{notes}/given-{rank}", "a") as file:
    file.write(json.dumps(given) + "\\n")
while not all(os.path.exists(f"{notes}/given-{other}") for other in (0, 1)):
    time.sleep(0.01)
step = 0
while not os.path.exists(f"{notes}/go"):
    step += 1
    print(f"step {step} of attempt {attempt} loss 0.5", flush=True)
    time.sleep(0.02)
"""
# It sets a variable, as torch._inductor does.
HEAVY = "import os\nmade = os.getpid()\nos.environ.setdefault('TORCHINDUCTOR_CACHE_DIR', '/cache')\n"


class Job:
    def __init__(self, place):
        self.place = place
        self.packages = place.path / "site-packages"
        self.packages.mkdir()
        (self.packages / "heavy.py").write_text(HEAVY)
        (place.path / "train.py").write_text(TRAIN)
        self.launcher = place.path / "torchrun"
        self.launcher.write_text(TORCHRUN)
        self.launcher.chmod(0o755)

    def run(self, name="t"):
        words = ("--job", name, *RESTARTS, "--", self.launcher, "train.py", "--lr", "1")
        return self.place.start("run", *words, PYTHONPATH=self.packages)

    def kill(self, run, attempt):
        """A rank of an attempt that trains: one that is gone before its first step has the next attempt not forked."""
        run.prints(f"step 3 of attempt {attempt} ")
        self.place.kill_rank(1, attempt)

    def known(self):
        return [json.loads(path.read_text()) for path in self.place.state.glob("imports/*.json")]

    def is_ready(self):
        return any("heavy" in known["cost_s"] for known in self.known())

    def ends_well(self, run):
        self.place.go()
        assert run.code() == 0, run.err
        self.place.nothing_left()


@pytest.fixture
def job(place):
    return Job(place)


def test_ranks_of_each_further_attempt_are_forked(job):
    run = job.run()
    wait_for("the zygote", job.is_ready, READY_S)
    assert not job.place.given(0, 1)["ahead"]
    made = set()
    for attempt in (2, 3):
        job.kill(run, attempt - 1)
        for rank in (0, 1):
            given = job.place.given(rank, attempt)
            assert (given["parent"], given["ahead"], given["argv"]) == (
                "holdfast-zygote",
                True,
                ["--lr", "1"],
            )
            made.add(given["made"])
    assert len(made) == 1  # one process has imported it for all
    job.ends_well(run)
    assert not list(job.place.state.glob("jobs/*/attempt-*/worker-*/not-forked"))


def test_ranks_are_forked_that_have_a_variable_by_an_import_of_their_launcher(job):
    """As under DeepSpeed: the launcher imports what its ranks import, and that sets a variable where it is missing."""
    (job.packages / "sets.py").write_text(
        "import os\nos.environ.setdefault('TORCH_CACHE', '/cache')\nimport colorsys\n"
    )
    (job.packages / "heavy.py").write_text("import os, sets\nmade = os.getpid()\n")
    job.launcher.write_text(TORCHRUN.replace("import os,", "import sets, os,"))
    run = job.run()
    wait_for("the zygote", job.is_ready, READY_S)
    for attempt in (2, 3):
        job.kill(run, attempt - 1)
        for rank in (0, 1):
            given = job.place.given(rank, attempt)
            assert (given["parent"], given["ahead"]) == ("holdfast-zygote", True)
    job.ends_well(run)
    assert not list(job.place.state.glob("jobs/*/attempt-*/worker-*/not-forked"))


def test_the_next_attempt_waits_at_its_gate(job):
    run = job.run()
    wait_for("the zygote", job.is_ready, READY_S)
    job.place.given(0, 1)
    for attempt in (2, 3):
        folder = job.place.worker(attempt)
        ready = [folder / f"rank-{rank}.ready" for rank in (0, 1)]
        wait_for(f"attempt {attempt} to wait", lambda ready=ready: all(map(Path.exists, ready)), READY_S)
        waiting = set(launch.marked({"HOLDFAST_WORKER_DIR": str(folder)}))
        job.kill(run, attempt - 1)
        given = [job.place.given(rank, attempt) for rank in (0, 1)]
        assert {one["pid"] for one in given} <= waiting
        assert {one["parent"] for one in given} == {"holdfast-zygote"}
    job.ends_well(run)


def test_a_second_run_is_ready_from_its_start(job):
    run = job.run()
    wait_for("the zygote", job.is_ready, READY_S)
    job.ends_well(run)
    (job.place.path / "go").unlink()
    path = next(job.place.state.glob("imports/*.json"))
    path.write_text(path.read_text().replace('"heavy":', '"gone":'))
    again = job.run("again")
    wait_for("the zygote of the second run", job.is_ready, READY_S)
    job.ends_well(again)


def test_a_module_that_breaks_a_rule_is_left_out_and_named_once(job):
    (job.packages / "heavy.py").write_text(
        HEAVY + "import _thread, time\n_thread.start_new_thread(time.sleep, (999,))\n"
    )
    run = job.run()
    wait_for("its name", lambda: "heavy is not preloaded: it starts threads" in run.err, READY_S)
    job.place.given(1, 1)
    wait_for("the second zygote", lambda: any(known["cost_s"] for known in job.known()), READY_S)
    job.kill(run, 1)
    given = job.place.given(1, 2)
    assert (given["parent"], given["ahead"]) == ("holdfast-zygote", False)
    job.ends_well(run)
    assert run.err.count("is not preloaded") == 1


def test_a_rank_that_is_killed_by_its_stub_is_seen_and_the_job_goes_on(job):
    run = job.run()
    wait_for("the zygote", job.is_ready, READY_S)
    job.kill(run, 1)
    pid = job.place.given(0, 2)["pid"]
    os.kill(stub_of(pid), signal.SIGKILL)
    assert job.place.given(0, 3)["pid"] != pid
    job.ends_well(run)


def stub_of(pid):
    """By the variables, which are the same."""
    wanted = Path(f"/proc/{pid}/environ").read_bytes()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_stub = (path / "comm").read_text() == "holdfast-stub\n"
            if is_stub and set((path / "environ").read_bytes().split(b"\0")) == set(wanted.split(b"\0")):
                return int(path.name)
        except OSError:
            continue
    raise AssertionError("there is no stub")


ALONE = """
import json, os, sys, time
ahead = "heavy" in sys.modules
import heavy
print("begun", flush=True)
notes, attempt = os.environ["NOTES"], os.environ["HOLDFAST_ATTEMPT"]
with open(f"{notes}/begun-{attempt}", "a") as file:
    file.write("once\\n")
os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
gates = [key for key in os.environ if key in ("HOLDFAST_GATE", "HOLDFAST_HOLDS", "HOLDFAST_RANKS")]
given = {"pid": os.getpid(), "ahead": ahead, "argv": sys.argv[1:], "gates": gates, "count": os.environ["MA_SCHEDULE_CNT"]}
with open(f"{notes}/given-0", "a") as file:
    file.write(json.dumps(given) + "\\n")
step = 0
while not os.path.exists(f"{notes}/go"):
    step += 1
    print(f"step {step} of attempt {attempt} loss 0.5", flush=True)
    time.sleep(0.02)
"""


def test_a_plain_command_waits_before_its_first_line(job):
    place = job.place
    (place.path / "train.py").write_text(ALONE)
    command = (*RESTARTS, "--", sys.executable, "-u", "train.py", "--lr", "1")
    run = place.run(*command, PYTHONPATH=job.packages)
    for attempt in (2, 3):
        before = place.given(0, attempt - 1)["pid"]
        wait_for(f"attempt {attempt} to wait", (place.worker(attempt) / "gate.ready").exists, READY_S)
        waiting = set(launch.marked({"HOLDFAST_WORKER_DIR": str(place.worker(attempt))}))
        assert not place.notes(f"begun-{attempt}")
        os.kill(before, signal.SIGKILL)
        given = place.given(0, attempt)
        assert given["pid"] in waiting
        assert (given["ahead"], given["argv"], given["gates"]) == (True, ["--lr", "1"], [])
        assert given["count"] == str(attempt)
    job.ends_well(run)
    assert [place.notes(f"begun-{attempt}") for attempt in (1, 2, 3)] == [["once"]] * 3
    assert not place.worker(4).exists()


# As accelerate does: by the class of torchrun, in its own process.
ACCELERATE = f"""#!{sys.executable}
import sys, time
from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler
place = {{"WORLD_SIZE": "2", "ACCELERATE_MIXED_PRECISION": "no"}}
ranks = [
    subprocess_handler.SubprocessHandler(
        {sys.executable!r}, ("-u", *sys.argv[1:]), {{**place, "RANK": str(rank), "LOCAL_RANK": str(rank)}},
        stdout=None, stderr=None, local_rank_id=rank, numa_options=None,
    )
    for rank in range(2)
]
while any(rank.proc.poll() is None for rank in ranks):
    if any(rank.proc.poll() for rank in ranks):
        for rank in ranks:
            rank.proc.kill()
    time.sleep(0.01)
sys.exit(any(rank.proc.returncode for rank in ranks))
"""


def test_another_launcher_waits_with_the_ranks_that_it_starts_itself(job):
    place = job.place
    accelerate = place.path / "accelerate"
    accelerate.write_text(ACCELERATE)
    accelerate.chmod(0o755)
    run = place.run(*RESTARTS, "--", accelerate, "train.py", "--lr", "1", PYTHONPATH=job.packages)
    ready = [place.worker(2) / name for name in ("gate.ready", "rank-0.ready", "rank-1.ready")]
    wait_for("attempt 2 to wait", lambda: all(path.exists() for path in ready), READY_S)
    waiting = set(launch.marked({"HOLDFAST_WORKER_DIR": str(place.worker(2))}))
    place.kill_rank(1)
    given = [place.given(rank, 2) for rank in (0, 1)]
    assert {one["pid"] for one in given} <= waiting
    assert {one["parent"] for one in given} == {"holdfast-zygote"}
    assert all(one["ahead"] for one in given)
    job.ends_well(run)


def test_a_shell_script_does_not_run_ahead(job):
    place = job.place
    script = place.path / "train.sh"
    script.write_text(f"echo line >> $NOTES/lines\n{job.launcher} train.py --lr 1\n")
    run = place.run(*RESTARTS, "--", "sh", script, PYTHONPATH=job.packages)
    wait_for("the zygote", job.is_ready, READY_S)
    wait_for("more steps", lambda: "step 300 of attempt 1" in run.out)
    assert not place.worker(2).exists()
    place.kill_rank(1)
    assert place.given(0, 2)["parent"] == "holdfast-zygote"
    assert place.notes("lines") == ["line", "line"]
    job.ends_well(run)
