"""Submits a job to Slurm: writes its batch script, and notes it in the state folder.

    slurm/<job>/batch.sh, out, err      what Slurm runs, and its output
    slurm/<job>/id                      the id of the Slurm job

The script runs `holdfast run` with the same arguments: inside the allocation that is the controller.
"""

import os
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from holdfast.engines.slurm.run_command import asked, plain_environment
from holdfast.journal.jobdir import check_name
from holdfast.model.settings import RunSettings

FOLDER = "slurm"
SUBMIT_WITHIN_S = 60.0
_LETTERS = "bcdfghjkmnpqrstvwxz23456789"
_NAME_TRIES_MAX = 100
# Flags of sbatch that say how much of a node is asked for; without any, all of it is.
_SHARES = ("--exclusive", "--cpus-per", "-c", "--mem", "--ntasks", "-n", "--oversubscribe", "-s")
# Slurm's signals reach the script alone (--signal=B:…), or it and Holdfast (an end): only the former are passed on. A
# controller that something kills is started again; one that ends by itself says with what the job ends.
SCRIPT = """#!/bin/sh
# Written by holdfast run: the controller of job {name}.
stop=; kept=0
trap 'kill -USR1 "$child"' USR1
trap 'kill -USR2 "$child"' USR2
trap 'stop=1' TERM INT HUP
while :; do
  {command} &
  child=$!
  while :; do
    wait "$child"; code=$?
    kill -0 "$child" 2>/dev/null || break
  done
  if [ -n "$stop" ] || [ "$code" -ne 137 -a "$code" -ne 139 -a "$code" -ne 134 ] || [ "$kept" -ge 20 ]; then
    exit "$code"
  fi
  kept=$((kept + 1)); sleep 1
done
"""
_ARRAY = ("--array", "-a")


class NotSubmitted(Exception):
    """Error: Slurm rejected the job, or its files cannot be written. The message says why."""


class Submission(Struct, frozen=True):
    """One job submitted to Slurm. `folder`: with its script and output."""

    name: str
    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def errors(self) -> Path:
        return self.folder / "err"

    @property
    def slurm_job(self) -> str:
        """Returns the id that Slurm assigned; empty if it was not submitted."""
        with suppress(OSError):
            return (self.folder / "id").read_text().strip()
        return ""


def submission(state_dir: str, name: str) -> Submission:
    return Submission(name, Path(state_dir) / FOLDER / name)


def submitted_jobs(state_dir: str) -> list[Submission]:
    """Returns all jobs submitted from this state folder, newest first."""
    found = []
    with suppress(OSError):
        found = [
            Submission(path.name, path) for path in (Path(state_dir) / FOLDER).iterdir() if path.is_dir()
        ]
    return sorted(
        (one for one in found if one.slurm_job), key=lambda one: _written_s(one.folder), reverse=True
    )


def _written_s(folder: Path) -> float:
    with suppress(OSError):
        return (folder / "id").stat().st_mtime
    return 0.0


def submit(
    settings: RunSettings, flags: Sequence[str], argv: Sequence[str], env: Mapping[str, str], now_s: float
) -> Submission:
    """Submits the job to Slurm. Raises NotSubmitted.

    `flags`: flags for sbatch. `argv`: arguments of this `holdfast`, from `run` on.
    """
    if any(flag.startswith(_ARRAY) for flag in flags):
        raise NotSubmitted(
            "--array is not supported: all its members would be the same Holdfast job; submit each by itself, or call holdfast run "
            "in a batch script of your own, where each member is a separate job"
        )
    try:
        one = _folder(settings, now_s)
        words = [sys.executable, "-P", "-m", "holdfast", *_again(argv, one.name, settings.state_dir)]
        script = one.folder / "batch.sh"
        script.write_text(SCRIPT.format(name=one.name, command=shlex.join(words)))
    except (OSError, ValueError) as error:
        raise NotSubmitted(f"the job's record cannot be written in {settings.state_dir}: {error}") from error
    answer = asked(_sbatch(one, settings, flags, script), plain_environment(env), SUBMIT_WITHIN_S)
    if not answer.is_good:
        with suppress(OSError):
            script.unlink()
            one.folder.rmdir()
        raise NotSubmitted(f"Slurm rejected the job: {answer.why}")
    (one.folder / "id").write_text(answer.text.strip().partition(";")[0] + "\n")
    return one


def _sbatch(one: Submission, settings: RunSettings, flags: Sequence[str], script: Path) -> list[str]:
    whole = [] if any(flag.startswith(_SHARES) for flag in flags) else ["--exclusive", "--mem=0"]
    return [
        "sbatch",
        "--parsable",
        f"--job-name={one.name}",
        f"--nodes={settings.nnodes + settings.spares}",
        "--ntasks-per-node=1",
        "--no-kill",
        "--requeue",
        "--open-mode=append",
        f"--output={one.out}",
        f"--error={one.errors}",
        f"--chdir={os.getcwd()}",
        *whole,
        *flags,
        str(script),
    ]


def _again(argv: Sequence[str], name: str, state_dir: str) -> list[str]:
    """Returns the arguments for the controller on the first node, with the job's name."""
    assert argv and argv[0] == "run"
    place = str(Path(state_dir).absolute())
    return ["run", "--engine", "slurm", "--state-dir", place, "--job", name, *argv[1:]]


def _folder(settings: RunSettings, now_s: float) -> Submission:
    if settings.job is not None:
        check_name(settings.job)
        one = submission(settings.state_dir, settings.job)
        one.folder.mkdir(parents=True, exist_ok=True)
        return one
    day = datetime.fromtimestamp(now_s).astimezone()
    for _ in range(_NAME_TRIES_MAX):
        suffix = "".join(secrets.choice(_LETTERS) for _ in range(3))
        one = submission(settings.state_dir, f"{day:%m%d-%H%M}-{suffix}")
        with suppress(FileExistsError):
            one.folder.mkdir(parents=True)
            return one
    raise FileExistsError("no free job name was found")
