"""Defines a system of the benchmark: its command, its environment, and how its findings are read from its output."""

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from bench.job.trial import Trial

RESTARTS = ("--max-restarts", "3")
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # without it torchrun's restarts meet stale keys
VENVS = Path(__file__).parents[3] / "out" / "venvs"
FAILED = re.compile(r"failed \(exitcode: (-?\d+)\)(?: local_rank: (\d+))?")
# What an elastic agent's exit code names. A positive code names no cause.
BY_SIGNAL = {-9: "process_killed", -11: "segfault", -15: "terminated"}


class Found(Struct, frozen=True):
    """One finding of a system.

    `ranks`: those that it blames. `category`: a category of docs/words.md; empty: none named. `is_warning`: the system
    reports it without acting on it; where the training failed, it is not the system's statement about the failure.
    """

    at_s: float
    ranks: tuple[int, ...] = ()
    category: str = ""
    is_warning: bool = False


class System(Struct, frozen=True, kw_only=True):
    """A system under test.

    `command`: words that start it, from the folder for its state; the training's words follow. `found`: its findings
    in order of time. `again`: the complete command with which a service manager would start it again after its first
    process was killed, from the state folder and the first command. `started`: replaces `command` where the benchmark
    kills that first process.
    """

    name: str
    command: Callable[[Path], list[str]]
    found: Callable[[Trial], list[Found]]
    again: Callable[[Path, list[str]], list[str]] = lambda _, command: command
    started: Callable[[Path], list[str]] | None = None
    env: Mapping[str, str] = {}


class NotHere(Exception):
    """The system is not installed or does not start here; the text says why and how to install it."""


def said(trial: Trial) -> list[Found]:
    """Returns the failures that an elastic agent of PyTorch, or of a system built on it, has logged."""
    return [one for at_s, line in trial.lines if (one := failure_in(at_s, line))]


def failure_in(at_s: float, line: str) -> Found | None:
    """Returns the finding in a line such as `failed (exitcode: -9) local_rank: 2 (pid: 71) of binary: python`."""
    match = FAILED.search(line)
    if match is None:
        return None
    code, rank = int(match[1]), match[2]
    return Found(at_s, () if rank is None else (int(rank),), BY_SIGNAL.get(code, "unknown"))


def own_environment(name: str, packages: tuple[str, ...], program: str) -> Path:
    """Returns the path of a program, from a virtual environment under `out/` that also sees this PyTorch.

    Packages are installed without their dependencies, so that PyTorch is never replaced. raises: NotHere
    """
    venv = VENVS / name
    path = venv / "bin" / program
    if not path.exists():
        _tried([sys.executable, "-m", "venv", "--without-pip", str(venv)])
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        ours = Path(find_spec("torch").origin).parents[1]
        (venv / "lib" / version / "site-packages" / "beside.pth").write_text(f"{ours}\n")
        pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--quiet"]
        _tried([*pip, "--no-deps", *packages])
    _tried([str(path), "--help"])
    return path


def _tried(command: list[str]) -> None:
    """raises: NotHere"""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHere(f"{command[0]}: {error}") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise NotHere(f"{' '.join(command)} ended with {done.returncode}: {' '.join(last)}")
