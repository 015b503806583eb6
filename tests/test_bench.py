"""Tests that every module of bench can be imported."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Programs that a bench starts with arguments, in environments of their own.
PROGRAMS = {"launchers/scripts", "gpu/scripts"}
OTHERS = {ROOT / "bench" / name for name in PROGRAMS}
TRAININGS = {
    "warm_training.py",
    "warm_life.py",
    "warm_lightning.py",
    "warm_trainer.py",
    "torchft_training.py",
}
# One process imports all of them: PyTorch is then imported once.
IMPORTS = """
import importlib, sys, traceback
for name in sys.stdin.read().split():
    try:
        importlib.import_module(name)
    except Exception as error:
        print(f"{name}: {traceback.format_exception_only(error)[-1].strip()}")
"""


def test_every_module_of_bench_can_be_imported():
    paths = [
        path.relative_to(ROOT)
        for path in sorted((ROOT / "bench").rglob("*.py"))
        if not OTHERS.intersection(path.parents) and path.name not in TRAININGS
    ]
    names = [".".join(path.with_suffix("").parts) for path in paths]
    assert len(names) > 50
    env = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("src", "tests", "."))}
    words, given = [sys.executable, "-c", IMPORTS], "\n".join(names)
    done = subprocess.run(words, cwd=ROOT, env=env, input=given, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
