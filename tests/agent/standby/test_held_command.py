"""Which commands can wait at a gate themselves: a Python that the shim has reached, not a shell script."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from agent.running import wait_for_environ
from holdfast.agent.launch import FACTS
from holdfast.agent.standby.held_command import (
    REACHED,
    are_reached,
    is_python,
    is_reached,
    own_rank_starts,
)
from holdfast.agent.standby.keeper import StandbyKeeper, may_hold
from holdfast.model.policy import Policy
from holdfast.model.settings import RunSettings
from holdfast.parsers.commands import recognise


@pytest.mark.parametrize(
    ("first", "is_one"),
    [
        ("#!/opt/venv/bin/python3.11", True),
        ("#!/usr/bin/env python3", True),
        ("#!/usr/bin/python -u", True),
        ("#!/bin/sh", False),
        ("#!/usr/bin/env bash", False),
        ("#!", False),
        ("echo python", False),
        ("", False),
    ],
)
def test_a_script_is_run_by_python_by_its_first_line(tmp_path, first, is_one):
    (tmp_path / "accelerate").write_text(f"{first}\nimport sys\n")
    assert is_python(str(tmp_path / "accelerate")) is is_one


def test_an_interpreter_is_known_by_its_name():
    assert is_python(sys.executable)
    assert not is_python("/bin/sh")
    assert not is_python("/usr/bin/pythonista")
    assert not is_python("")


def began(folder, pid):
    (folder / FACTS).write_text(json.dumps({"kind": "started", "pid": pid, "reaper": 1, "n": 1}) + "\n")


def test_the_shim_must_have_reached_the_command_itself(tmp_path):
    assert not is_reached(tmp_path)
    began(tmp_path, 77)
    assert not is_reached(tmp_path)
    (tmp_path / REACHED).write_text("78\n7\n")
    assert not is_reached(tmp_path)
    (tmp_path / REACHED).write_text("78\n77\n")
    assert is_reached(tmp_path)


def test_the_shim_must_have_reached_the_process_of_each_rank(tmp_path):
    (tmp_path / "rank-0.shim.json").write_text('{"pid": 7, "rank": 0, "stack_signal": 0}')
    assert not are_reached(tmp_path, {})
    assert not are_reached(tmp_path, {0: 7, 1: 8})
    (tmp_path / "rank-1.shim.json").write_text('{"pid": 9, "rank": 1, "stack_signal": 0}')
    assert not are_reached(tmp_path, {0: 7, 1: 8})  # 9 is a child of a shell script
    assert are_reached(tmp_path, {0: 7, 1: 9})


@pytest.mark.parametrize("words", [("--no-python",), ("--no_python", "--standalone")])
def test_a_program_of_the_users_own_is_known_by_the_command(words):
    assert not recognise(("torchrun", *words, "./train.sh"), {}).runs_python
    assert not recognise(("torchrun", "train.py"), {"PYTHON_EXEC": "/opt/run"}).runs_python
    assert recognise(("torchrun", "--standalone", "train.py", "--no-python"), {}).runs_python


@pytest.fixture
def command(tmp_path):
    """A running command that has started one rank, and the pid of the rank. The shim has reached the command."""
    env = {"RANK": "0", "LOCAL_RANK": "0", "HOLDFAST_WORKER_DIR": "/w"}
    here = {key: value for key, value in os.environ.items() if key not in env}
    with subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, os; print(subprocess.Popen(['sleep', '99'], env={env!r}).pid, flush=True); input()"],
        env={**here, "HOLDFAST_WORKER_DIR": "/w"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as command:  # fmt: skip
        rank = int(command.stdout.readline())
        wait_for_environ(rank)
        began(tmp_path, command.pid)
        (tmp_path / REACHED).write_text(f"{command.pid}\n")
        yield rank
        os.kill(rank, 9)
        command.stdin.write("\n")
        command.stdin.close()


def test_ranks_are_begun_ahead_only_if_the_command_itself_starts_them(tmp_path, command):
    (start,) = own_rank_starts(tmp_path, [command])
    assert start.argv == ("sleep", "99")
    began(tmp_path, os.getpid())
    assert own_rank_starts(tmp_path, [command]) == ()
    assert own_rank_starts(tmp_path, []) == ()


def test_ranks_that_are_found_after_their_first_step_are_waited_for(tmp_path, command):
    now = SimpleNamespace(s=0.0)
    keeper = StandbyKeeper(lambda number, part: None, lambda: now.s, is_wanted=True, holds_command=True)
    attempt = SimpleNamespace(
        number=1, folder=tmp_path, ranks={}, step=1, started_s=0.0, stopping=False, is_done=False,
        workers=1, world_size=None, local_size=None,
    )  # fmt: skip
    keeper.tend(attempt)
    now.s = 0.9
    attempt.ranks[0] = SimpleNamespace(pid=command, gone=False)
    keeper.tend(attempt)
    assert not keeper.starts_of_command
    now.s = 2.0
    keeper.tend(attempt)
    assert [one.argv for one in keeper.starts_of_command] == [("sleep", "99")]


def test_no_more_ranks_are_waited_for_than_the_job_has(tmp_path, command):
    keeper = StandbyKeeper(lambda number, part: None, lambda: 0.0, is_wanted=True, holds_command=True)
    keeper.tend(
        SimpleNamespace(
            number=1, folder=tmp_path, ranks={0: SimpleNamespace(pid=command, gone=False)}, step=1,
            started_s=0.0, stopping=False, is_done=False, workers=1, world_size=1, local_size=None,
        )
    )  # fmt: skip
    assert keeper.starts_of_command


def test_torchrun_is_held_itself_only_where_two_cannot_run(tmp_path):
    torchrun = tmp_path / "torchrun"
    torchrun.write_text("#!/usr/bin/python3\n")

    def held(*words):
        settings = RunSettings(
            command=words, state_dir=str(tmp_path), policy=Policy(max_restarts=3), zygote=True
        )
        return may_hold(settings, recognise(words, {}), str(torchrun))

    assert not held("torchrun", "--standalone", "train.py")
    assert held("torchrun", "--master-port", "29500", "train.py")
    assert held("accelerate", "launch", "train.py")
