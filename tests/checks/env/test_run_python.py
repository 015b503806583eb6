"""The Python of a run is found as the run finds it, within a deadline, and nothing is left behind."""

import os
import sys
import time

import msgspec
import psutil
import pytest

from checks.env.worlds import World, bash
from holdfast.checks.child import look
from holdfast.checks.registry import check_named
from holdfast.checks.runner import SuiteRun
from holdfast.checks.training_python.run import allowed_s, answer_of, run_of, run_within, shebang_python
from holdfast.model.checks import FAIL, PASS, SKIP, Scene

ENV = {"PATH": os.environ.get("PATH", os.defpath)}


@pytest.fixture
def world(tmp_path):
    one = World(tmp_path / "world")
    yield one
    one.close()


def python_of(world):
    answer = answer_of(world.scene())
    assert answer.said is not None, answer.why_not
    return answer.said["python"]["prefix"]


def test_a_program_that_does_not_end_is_killed_with_its_children():
    before = set(psutil.Process().children(recursive=True))
    began_s = time.monotonic()
    ran = run_within(["/bin/sh", "-c", "sleep 200 & sleep 200"], ENV, "/", 0.3)
    assert ran.code is None and time.monotonic() - began_s < 100
    left = [one for one in set(psutil.Process().children(recursive=True)) - before if one.is_running()]
    assert all(one.status() == psutil.STATUS_ZOMBIE for one in left)


def test_time_without_a_processor_does_not_count_up_to_three_times_the_deadline():
    assert allowed_s(2.0, 0.0) == 2.0
    assert allowed_s(2.0, 1.5) == 3.5
    assert allowed_s(2.0, 60.0) == 6.0


def test_what_a_check_has_started_ends_with_the_check(world):
    """The runner kills the process of a check that it cuts off; what that one waits for must not live on."""
    told = world.folder / "pid"
    world.program(
        world.folder / "slow/python",
        f"#!/bin/sh\necho $$ > {told}.new; mv {told}.new {told}; exec sleep 60\n",
    )
    world.command = (str(world.folder / "slow/python"), "train.py")
    run = SuiteRun([check_named("env-python").spec], world.scene(), time.monotonic() + 60)
    until_s = time.monotonic() + 60
    while not told.exists() and time.monotonic() < until_s:
        run.poll()
    process = psutil.Process(int(told.read_text()))
    run.close()
    assert process.wait(60) is None or not process.is_running()


def test_a_program_that_is_not_there_is_an_answer():
    assert run_within(["/no/such/program"], ENV, "/", 1.0).code == 127
    assert run_within(["/bin/true"], ENV, "/no/such/folder", 1.0).code == 127


def test_a_shell_that_never_becomes_ready_is_said(world):
    (world.home / ".bash_profile").write_text("exec sleep 60\n")
    world.command = bash("torchrun t.py", "-l")
    scene = msgspec.structs.replace(world.scene(), quick=True)
    outcome = look(check_named("env-python"), scene)
    assert (outcome.status, outcome.findings[0].why) == (SKIP, "bash was not ready within 2 s")


def test_a_profile_that_exits_is_said(world):
    (world.home / ".bash_profile").write_text("echo going >&2; exit 3\n")
    world.command = bash("conda activate x && torchrun train.py", "-l")
    outcome = look(check_named("env-shell"), world.scene())
    assert (outcome.status, outcome.findings[0].why) == (
        SKIP,
        "bash ended before it reported its environment: going",
    )


def test_torchrun_runs_in_the_python_of_its_first_line(world):
    other = world.python_environment("other")
    world.env |= {"PATH": f"{other}/bin:{world.env['PATH']}"}
    world.command = (f"{world.venv}/bin/torchrun", "train.py")
    assert python_of(world) == str(world.venv)
    world.command = ("torchrun", "train.py")
    assert python_of(world) == str(other)


def test_what_the_shell_activates_counts(world):
    hook = world.conda("llm")
    world.command = bash(f". {hook}; conda activate llm; torchrun train.py")
    assert python_of(world) == str(world.folder / "conda/envs/llm")


def test_variables_that_the_command_sets_count(world):
    other = world.python_environment("other")
    world.command = ("env", f"PATH={other}/bin", "python", "train.py")
    assert python_of(world) == str(other)


def test_a_long_path_that_pip_writes_is_read(tmp_path):
    script = tmp_path / "torchrun"
    script.write_text(f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\nimport torch\n")
    assert shebang_python(str(script), ENV, "/") == sys.executable


def test_a_shim_has_its_python_beside_it(world):
    shim = world.folder / "shims"
    world.program(shim / "torchrun", "#!/usr/bin/env bash\nexec pyenv exec torchrun\n")
    world.program(shim / "python", f'#!/bin/sh\nexec {world.venv}/bin/python "$@"\n')
    assert shebang_python(str(shim / "torchrun"), ENV, "/") == str(shim / "python")
    world.command = (str(shim / "torchrun"), "train.py")
    assert python_of(world) == str(world.venv)


def test_files_beside_the_script_do_not_disturb_the_asking(world):
    for name in ("json", "ast", "re", "importlib", "types", "sitecustomise", "warnings"):
        world.write(f"{name}.py", "raise RuntimeError('run')\n")
    world.env |= {"PYTHONPATH": str(world.work)}
    answer = answer_of(world.scene())
    assert answer.said is not None, answer.why_not
    assert {one["name"] for one in answer.said["shadows"]} >= {"json", "ast", "re", "types"}


def test_nothing_of_the_run_is_executed(world):
    """Each fabricated package raises when it is imported, and the script writes a file when it is run."""
    world.package("numpy")
    world.write("local.py", "open('was-run', 'w')\n")
    world.write("train.py", "import torch, numpy, local\nopen('was-run', 'w')\n")
    assert look(check_named("env-imports"), world.scene()).status == PASS
    assert not (world.work / "was-run").exists()
    assert not list(world.work.rglob("__pycache__"))


def test_a_folder_that_is_gone_is_an_answer(world):
    scene = Scene(command=("python", "t.py"), env=world.env, cwd=str(world.folder / "gone"))
    outcome = look(check_named("env-python"), scene)
    assert outcome.status in (SKIP, FAIL)


def test_without_a_command_there_are_facts_and_no_verdict(world):
    scene = Scene(env=world.env, cwd=str(world.work), root=str(world.root))
    outcome = look(check_named("env-versions"), scene)
    assert {fact.name: fact.value for fact in outcome.facts}["torch"] == "2.6.0"
    assert look(check_named("env-script"), scene).status == SKIP
    assert look(check_named("env-port"), scene).status == SKIP


def test_a_wrapper_file_is_read_for_its_launch(world):
    world.write("go", "#!/bin/bash\ntorchrun --standalone --nproc-per-node 3 train.py\n")
    world.command = ("./go",)
    assert run_of(world.scene()).asked.ranks == 3
    (world.work / "go").write_bytes(b"\x7fELF\0\0")
    assert run_of(Scene(command=("./go",), env=world.env, cwd=str(world.work), now_s=1.0)).asked.ranks is None


def test_a_python_with_an_odd_answer_is_said(world):
    world.program(world.folder / "odd/python", "#!/bin/sh\necho 'holdfast-says:{'\n")
    world.command = (str(world.folder / "odd/python"), "train.py")
    outcome = look(check_named("env-python"), world.scene())
    assert outcome.status == SKIP and "cannot be read" in outcome.findings[0].why
