"""Every fault of the check bench is found by its check alone, and nothing in its sound nodes."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bench.checks.node_faults import FAULTS
from bench.checks.node_real_faults import REAL
from bench.checks.node_sound import SOUND

# A small process: checks fork, and a copy of one that has collected all tests takes ten times as long.
SERVE = """
import json, pathlib, sys, traceback
from bench.checks.node_matrix import cases
from bench.checks.node_real_faults import NotHere
runs = {(kind, name): run for kind, name, run in cases("", True)}
answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    kind, name, folder = json.loads(line)
    try:
        wrong, lacking = runs[kind, name](pathlib.Path(folder)), ""
    except NotHere as error:
        wrong, lacking = "", str(error)
    except Exception:
        wrong, lacking = traceback.format_exc(), ""
    print(json.dumps([wrong, lacking]), file=answers, flush=True)
"""
MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def ask():
    """ask(kind, case, folder): what was wrong; skips a fault that cannot be made here."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", SERVE]
    apart = ["unshare", "--mount"]  # the checks of other tests would wait for the dead mounts, too
    if shutil.which("unshare") and subprocess.run([*apart, "true"], capture_output=True).returncode == 0:
        words = [*apart, *words]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
    ) as process:

        def one(kind, case, folder):
            process.stdin.write(json.dumps([kind, case.name, str(folder)]) + "\n")
            process.stdin.flush()
            wrong, lacking = json.loads(process.stdout.readline())
            if lacking:
                pytest.skip(lacking)
            return wrong

        yield one


@pytest.fixture
def folder(tmp_path):
    """In memory, where there is such a folder: a check finds a disk slow that other work keeps busy, and is right."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as name:
        yield name


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_a_made_up_fault_is_found(case, folder, ask):
    assert ask("made up", case, folder) == ""


@pytest.mark.parametrize("case", REAL, ids=lambda case: case.name)
def test_a_real_fault_is_found(case, tmp_path, ask):
    assert ask("real", case, tmp_path) == ""


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case.name)
def test_nothing_is_found_on_a_sound_node(case, folder, ask):
    assert ask("sound", case, folder) == ""


def test_there_are_enough_of_each():
    assert len(FAULTS) + len(REAL) >= 60 and len(REAL) >= 20 and len(SOUND) >= 20
