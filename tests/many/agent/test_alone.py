"""`srun holdfast agent -- COMMAND`: a plain wrapper, without a controller. The launcher's environment is written here."""

import os
import subprocess
import sys

import pytest

from kernel_log import reader
from many.agent.bench import HOLDFAST

SCRIPT = """
import os, sys, time
names = ("SLURM_PROCID", "NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "PET_NODE_RANK", "HOLDFAST_JOB")
print("given", *(os.environ.get(name) for name in names), flush=True)
what = os.environ.get("DO_" + os.environ["NODE_RANK"], "")
if what == "raise":
    raise RuntimeError("no such thing")
sys.exit(int(what or 0))
"""


class Wrapped:
    def __init__(self, path, cache):
        self.path = path
        self.cache = cache
        (path / "train.py").write_text(SCRIPT)

    def run(self, worker=None, workers=2, words=(), wait=True, **more):
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.path),
            "XDG_CACHE_HOME": str(self.cache),
            "HOLDFAST_STATE_DIR": str(self.path / "state"),
            "HOLDFAST_TROUBLESHOOT_WAIT": "0s",
        }
        if worker is not None:
            env |= {
                "SLURM_JOB_ID": "4242",
                "SLURM_STEP_ID": "0",
                "SLURM_PROCID": str(worker),
                "SLURM_NTASKS": str(workers),
                "SLURM_STEP_NODELIST": "node-[1-2]",
            }
        started = subprocess.Popen(
            [HOLDFAST, "agent", *words, "--", sys.executable, "train.py"],
            cwd=self.path,
            env=env | {key: str(value) for key, value in more.items()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return started if not wait else self.end_of(started)

    def end_of(self, started):
        out, err = started.communicate()
        return started.returncode, out, err


@pytest.fixture
def wrapped(tmp_path, cache_home):
    reader.begin()
    yield Wrapped(tmp_path, cache_home)
    reader.end()


def test_workers_of_one_step_share_a_folder_and_each_knows_its_place(wrapped):
    both = [wrapped.run(worker, wait=False) for worker in (0, 1)]
    ends = [wrapped.end_of(one) for one in both]
    assert [code for code, _, _ in ends] == [0, 0], ends
    ports = set()
    for worker, (_, out, err) in enumerate(ends):
        rank, *words = out.split()  # each task of a step is a rank
        assert rank == f"[rank{worker}]"
        assert words[:5] == ["given", str(worker), "2", str(worker), "node-1"], (out, err)
        assert words[7] == "slurm-4242.0"
        ports.add(words[5])
        folder = wrapped.path / "state/jobs/slurm-4242.0/attempt-001" / f"worker-{worker}"
        assert "given" in (folder / f"rank-{worker}.log").read_text()
        assert f"worker {worker}: " in err
        assert err.count("its record") == (worker == 0)
    assert len(ports) == 1
    again = wrapped.run(1)
    assert again[0] == 0 and "slurm-4242.0-2" in again[1]


def test_a_worker_that_fails_says_why_leaves_evidence_and_its_own_code(wrapped):
    code, _, err = wrapped.run(1, DO_1="raise")
    assert code == 1
    assert "worker 1: verdict: python_exception" in err and "no such thing" in err
    own = wrapped.path / "state/jobs/slurm-4242.0/nodes/worker-1"
    assert (own / "incidents/incident-001.tar.zst").exists() and (own / "journal.db").exists()
    assert wrapped.run(0, DO_0="7")[0] == 7


def test_nothing_is_restarted_whatever_the_settings_say(wrapped):
    code, out, _ = wrapped.run(0, DO_0="3", HOLDFAST_MAX_RESTARTS="5", HOLDFAST_UNCONDITIONAL_RESTART="yes")
    assert code == 3 and out.count("given") == 1


def test_alone_it_is_one_worker_of_one(wrapped):
    code, out, err = wrapped.run(words=("--job", "mine"))
    assert code == 0, err
    assert out.split()[2:5] == ["1", "0", "127.0.0.1"] and out.split()[-1] == "mine"
    assert (wrapped.path / "state/jobs/mine/journal.db").exists()
    code, _, err = wrapped.run()
    assert code == 0 and err.count("its record") == 1


def test_workers_without_a_job_get_advice(wrapped):
    code, _, err = wrapped.run(NODE_RANK="1", NNODES="2")
    assert code == 2 and "--job" in err


def test_without_command_and_controller_it_says_what_it_is_for(tmp_path):
    done = subprocess.run(
        [HOLDFAST, "agent"],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 2 and "srun holdfast agent -- COMMAND" in done.stderr
