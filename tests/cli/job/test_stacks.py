"""`holdfast stacks` on real processes that a journal names as ranks."""

import json
import os
import signal
import socket
import subprocess
import sys

import msgspec
import pytest

from cli.journals import COMMAND, START_S, started, submitted, write_job
from holdfast.journal.store import Store
from holdfast.model.events import RankExited, RankStarted

HANGS = """def train_step(): hang()
def hang():
    print("ready", flush=True)
    input()
train_step()
"""
OTHER = "import threading\nthreading.Thread(target=input, daemon=True).start()\n" + HANGS.replace(
    "train_step", "load"
)


@pytest.fixture
def python():
    """python(program): the pid of a process of it that has printed "ready"."""
    processes = []

    def start(program):
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        processes.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process.pid

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def job(state):
    """job({0: pid, 1: pid}): a running job with these ranks."""

    def write(pids, *more, host=None):
        events = [
            submitted(),
            *started(START_S + 1, 1)[:2],
            *(
                RankStarted(at_s=START_S + 3, attempt=1, worker=0, rank=rank, pid=pid)
                for rank, pid in pids.items()
            ),
            *more,
        ]
        found = write_job(state, "llama", events)
        store = Store.open(found.journal_path)
        facts = {"name": "llama", "command": COMMAND, "host": host or socket.gethostname()}
        store.set_meta("job", msgspec.json.encode(facts))
        store.close()
        return found

    return write


def last(frames):
    return [frame.rpartition(" ")[2] for frame in frames]


def test_equal_stacks_are_one_and_the_odd_one_comes_first(stacks, job, python):
    job({0: python(HANGS), 1: python(HANGS), 2: python(OTHER), 3: python(HANGS)})
    code, out, err = stacks("llama")
    assert (code, err) == (0, "")
    head, _, first, *rest = out.splitlines()
    assert head.startswith("job llama, attempt 1, ") and head.endswith(": 4 ranks in 2 stacks")
    assert first.startswith("rank 2: waits at <string>:6 in hang (S, ") and first.endswith(", by py-spy)")
    assert rest[:4] == ["    <string>:6 hang", "    <string>:3 load", "    <string>:7 <module>", ""]
    assert rest[4].startswith("ranks 0-1,3 (3): waits at <string>:4 in hang (S, ")


def test_json_has_all_of_it(stacks, job, python):
    pids = {0: python(HANGS), 1: python(OTHER)}
    job(pids, RankExited(at_s=START_S + 9, attempt=1, worker=0, rank=7, code=1))
    answer = json.loads(stacks("--json", "--all-threads", "--lang", "zh")[1])
    assert (answer["job"], answer["attempt"], answer["missing"]) == ("llama", 1, [])
    first, second = answer["groups"]
    assert (first["ranks"], second["ranks"]) == ([0], [1])
    assert (first["state"], first["source"], first["doing"]) == ("S", "py-spy", "waits")
    assert last(first["frames"]) == ["hang", "train_step", "<module>"]
    assert [thread["main"] for thread in second["threads"]] == [True, False]
    assert second["threads"][0]["id"] == pids[1]


def test_some_ranks_and_some_that_are_not_to_be_had(stacks, job, python):
    stopped, gone = python(HANGS), subprocess.Popen(["true"])
    gone.wait()
    os.kill(stopped, signal.SIGSTOP)
    os.waitid(os.P_PID, stopped, os.WSTOPPED)
    job(
        {0: python(HANGS), 1: stopped, 2: gone.pid, 3: python(HANGS)},
        RankExited(at_s=START_S + 9, attempt=1, worker=0, rank=3, code=-9),
    )
    answer = json.loads(stacks("--json", "--rank", "1-3,9")[1])
    assert [(group["ranks"], group["state"]) for group in answer["groups"]] == [([1], "T")]
    assert answer["missing"] == [
        {"rank": 2, "why": "the process has ended"},
        {"rank": 3, "why": "the rank has ended with -9"},
        {"rank": 9, "why": "job llama has no such rank"},
    ]


def test_native_frames_of_one_rank_of_each_group(stacks, job, python):
    job({0: python(HANGS), 1: python(HANGS)})
    answer = json.loads(stacks("--json", "--native")[1])
    assert [(group["ranks"], group["source"]) for group in answer["groups"]] == [([0, 1], "native")]
    assert ":native " in answer["groups"][0]["frames"][0]
    assert stacks("--native", "--rank", "1")[0] == 0


def test_in_chinese(stacks, job, python):
    job({0: python(HANGS), 1: python(HANGS)})
    out = stacks("--lang", "zh")[1]
    assert "2 个 rank 的调用栈全部相同" in out
    assert "rank 0-1（2 个）：等待，位于 <string>:4 in hang (S, " in out


@pytest.mark.parametrize("ranks", ["x", "3-1", "1,,2", "-1", "0-99999999"])
def test_what_is_no_list_of_ranks(stacks, job, ranks):
    job({0: 1})
    code, out, err = stacks(f"--rank={ranks}")
    assert (code, out) == (2, "")
    assert f"--rank: {ranks!r} is not a list of ranks such as 0,4-6" in err


def test_a_job_without_running_ranks(stacks, job, state):
    assert stacks()[0] == 1
    job({})
    code, out, err = stacks()
    assert (code, out) == (1, "")
    assert "job llama has no ranks yet" in err


def test_a_job_whose_ranks_have_ended(stacks, job):
    job({0: 4242}, RankExited(at_s=START_S + 9, attempt=1, worker=0, rank=0, code=0))
    code, out, err = stacks("llama")
    assert (code, out) == (1, "")
    assert "all ranks of job llama, attempt 1, have ended" in err


def test_a_job_of_another_machine(stacks, job):
    job({0: 4242}, host="gpu-03")
    assert stacks()[2] == "holdfast: job llama runs on gpu-03: its stacks can be collected there only\n"


def test_facts_of_the_reaper_count_and_those_from_before_the_machine_started_do_not(stacks, job, python):
    folder = job({0: python(HANGS)}).worker(1, 0)
    folder.mkdir(parents=True)
    facts = [
        {"n": 1, "t": 1e9, "kind": "rank-started", "pid": 4242, "rank": 1},
        {"n": 2, "t": 2e9, "kind": "rank-started", "pid": python(HANGS), "rank": 2},
        {"n": 3, "t": 2e9, "kind": "rank-started", "pid": 4243, "rank": 3},
        {"n": 4, "t": 2e9, "kind": "rank-exited", "pid": 4243, "rank": 3, "code": 1},
    ]
    (folder / "reaper.jsonl").write_text("".join(json.dumps(fact) + "\n" for fact in facts) + '{"kind')
    answer = json.loads(stacks("--json")[1])
    assert [group["ranks"] for group in answer["groups"]] == [[0, 2]]
    assert answer["missing"] == [
        {"rank": 1, "why": "the rank has ended"},
        {"rank": 3, "why": "the rank has ended with 1"},
    ]
