"""Real processes that register faulthandler as the shim does."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from holdfast.observe.processes import stacks

RANK = """import faulthandler, json, os, signal, sys
folder, rank = sys.argv[1:]
number = signal.SIGUSR2
faulthandler.register(number, file=open(f"{folder}/rank-{rank}.stacks", "ab"), all_threads=True, chain=False)
with open(f"{folder}/rank-{rank}.shim.json", "w") as note:
    json.dump({"pid": os.getpid(), "stack_signal": int(number), "torch": None}, note)
def wait_here():
    print("ready", flush=True)
    while sys.stdin.read(1): pass
wait_here()
"""


@pytest.fixture
def rank(tmp_path):
    started = []

    def start(number, program=RANK):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def gather(asked, *, within_s=60.0):
    return stacks.collect(asked, time.monotonic() + within_s, time.monotonic, time.sleep)


def test_every_rank_answers_and_the_newest_answer_counts(rank, tmp_path):
    pids = {number: rank(number).pid for number in (0, 1)}
    for _ in range(2):
        asked = [stacks.ask(tmp_path, number, pid) for number, pid in pids.items()]
        found = gather(asked)
        assert [one.rank for one in found] == [0, 1]
        assert all(any(frame.endswith(" wait_here") for frame in one.frames) for one in found)
    assert (tmp_path / "rank-0.stacks").read_bytes().count(b"Current thread") == 2


def test_a_stopped_rank_is_not_asked(rank, tmp_path):
    process = rank(0)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    assert stacks.ask(tmp_path, 0, process.pid) is None
    process.send_signal(signal.SIGCONT)


def test_a_rank_that_does_not_answer_costs_no_more_than_the_deadline(rank, tmp_path):
    answers, silent = rank(0), rank(1)
    asked = [stacks.ask(tmp_path, 0, answers.pid), stacks.Asked(1, tmp_path / "rank-1.stacks", 0)]
    now_s = [0.0]

    def wait(for_s):
        if (tmp_path / "rank-0.stacks").read_bytes().endswith(b" in <module>\n"):  # its answer is whole
            now_s[0] += 0.1
        time.sleep(for_s)

    found = stacks.collect(asked, 10.0, lambda: now_s[0], wait)
    assert [one.rank for one in found] == [0] and 10.0 <= now_s[0] < 10.2
    assert silent.poll() is None


def test_no_signal_goes_to_a_process_that_would_die_of_it(rank, tmp_path):
    process = rank(0, "print('ready', flush=True); input()")
    note = tmp_path / "rank-0.shim.json"
    assert stacks.ask(tmp_path, 0, process.pid) is None  # no shim
    for text in (
        json.dumps({"pid": process.pid, "stack_signal": 12}),  # nobody catches it
        json.dumps({"pid": process.pid, "stack_signal": 9}),
        json.dumps({"pid": process.pid + 1, "stack_signal": 12}),
        json.dumps({"pid": process.pid, "stack_signal": 1000}),
        json.dumps({"pid": process.pid}),
        '{"pid": ',
        "",
    ):
        note.write_text(text)
        assert stacks.ask(tmp_path, 0, process.pid) is None
    assert process.poll() is None


def test_an_ended_process_is_not_asked(rank, tmp_path):
    process = rank(0)
    process.kill()
    process.wait()
    assert stacks.ask(tmp_path, 0, process.pid) is None


def test_which_signals_are_caught():
    assert stacks.catches("Name:\tx\nSigCgt:\t0000000000000800\nCapInh:\t0\n", 12)
    assert not stacks.catches("SigCgt:\t0000000000000800\n", 11)
    assert not stacks.catches("Name:\tx\n", 12)
    assert not stacks.catches("SigCgt:\t\n", 12)
