"""The systems that the recovery bench compares: how each is started, and how it says that it has noticed.

`ft_launcher` (NVIDIA's) gets an environment of its own under `out/` that sees this one's PyTorch, so that
nothing of it is installed beside Holdfast.
"""

import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.job.trial import Trial, holdfast_run, torchrun
from holdfast.controller.loop import decisions
from holdfast.core.job.story import Story, Summary
from holdfast.journal.jobdir import StateDir
from holdfast.journal.store import open_reader
from holdfast.model.policy import Policy

RESTARTS = ("--max-restarts", "3")
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # without it torchrun's restarts meet stale keys
FT_VENV = Path(__file__).parents[2] / "out" / "venv-nvrx"
FT_PACKAGES = ("nvidia-resiliency-ext==0.4.1", "defusedxml")
FAILED = re.compile(r"failed \(exitcode")


class System(Struct, frozen=True, kw_only=True):
    """`command`: from a folder for its state. `noticed_s`: when, after a moment, it noticed trouble."""

    name: str
    command: Callable[[Path], list[str]]
    noticed_s: Callable[[Trial, float], float | None]
    env: Mapping[str, str] = {}


class NotHere(Exception):
    """The system cannot be had on this machine; the text says why."""


def said(trial: Trial, after_s: float) -> float | None:
    """The first line after that moment which says that a rank failed."""
    return next((at_s for at_s, line in trial.lines if at_s > after_s and FAILED.search(line)), None)


def journaled(trial: Trial, after_s: float) -> float | None:
    """When the job's journal has the first incident opened after that moment."""
    summary = summary_of(trial.folder / "state")
    found = [incident.found_at_s for incident in summary.incidents] if summary else []
    return min((at_s for at_s in found if at_s > after_s), default=None)


def summary_of(state: Path) -> Summary | None:
    """What the record of the only job in a state folder says."""
    jobs = StateDir(state).jobs()
    if not jobs or not jobs[0].journal_path.exists():
        return None
    reader = open_reader(jobs[0].journal_path)
    try:
        policy = msgspec.json.decode(reader.meta("policy") or b"{}", type=Policy)
        story = Story(policy)
        for event, decision in decisions(reader.read_raw(), policy):
            story.hear(event, decision)
        return story.summary()
    finally:
        reader.close()


def ft_launcher(ranks: int) -> list[str]:
    """raises: NotHere"""
    program = FT_VENV / "bin" / "ft_launcher"
    if not program.exists():
        _install_ft_launcher()
    _tried([str(program), "--help"])
    how = ("--standalone", "--ignore-missing-fault-tol-cfg", "--nproc-per-node", str(ranks))
    return [str(program), *how, *RESTARTS]


def _install_ft_launcher() -> None:
    _tried([sys.executable, "-m", "venv", "--without-pip", str(FT_VENV)])
    python = FT_VENV / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    ours = sysconfig.get_path("purelib")
    (FT_VENV / "lib" / version / "site-packages" / "beside.pth").write_text(f"{ours}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    _tried([*pip, *FT_PACKAGES])


def _tried(command: list[str]) -> None:
    """raises: NotHere"""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHere(f"{command[0]}: {error}") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise NotHere(f"{' '.join(command)} ended with {done.returncode}: {' '.join(last)}")


def system(name: str, ranks: int) -> System:
    """raises: NotHere, for a system that is not known or cannot be installed"""
    match name:
        case "holdfast" | "holdfast-cold" | "holdfast-zygote":
            flags = {"holdfast-cold": ("--no-standby",), "holdfast-zygote": ("--zygote",)}.get(name, ())
            return System(
                name=name,
                command=lambda state: [*holdfast_run(state, *flags), *torchrun(ranks)],
                noticed_s=journaled,
            )
        case "torchrun":
            command = [*torchrun(ranks), *RESTARTS]
            return System(name=name, command=lambda _: command, noticed_s=said, env=OWN_STORE)
        case "ft_launcher":
            command = ft_launcher(ranks)
            return System(name=name, command=lambda _: command, noticed_s=said, env=OWN_STORE)
        case _:
            raise NotHere(
                "it is not known; there are holdfast, holdfast-zygote, holdfast-cold, torchrun and ft_launcher"
            )
