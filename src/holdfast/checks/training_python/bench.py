"""Runs the benchmarks of `burn/` with the training's Python: one process for each device, each with a time limit.

The processes stay in the session of the check process, so they are killed with it.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.checks.parting import how_it_ended, part_with
from holdfast.checks.training_python.run import run_of
from holdfast.model.checks import Scene

BURN = str(Path(__file__).with_name("burn") / "__main__.py")
ASK = "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if u.find_spec(n)))"
ASK_S = 20.0
LOOK_S = 0.2
REAP_S = 0.5
ERROR_CHARS_MAX = 300
SINGLE = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# What a launcher sets for its ranks, and would bind or slow what we measure.
_NOT_OURS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONSTARTUP", "PYTHONINSPECT")


class Burnt(Struct, frozen=True, kw_only=True):
    """The result of one benchmark process.

    `unable`: why the benchmark could not start; `error`: what failed while it ran; both are empty if `answer`
    is valid.
    """

    answer: dict[str, Any] = {}
    unable: str = ""
    error: str = ""
    is_late: bool = False


class _Run:
    """A running benchmark process."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str], until_s: float) -> None:
        self.until_s = until_s
        self.out = os.memfd_create("out", os.MFD_CLOEXEC)
        self.errors = os.memfd_create("errors", os.MFD_CLOEXEC)
        try:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.errors, env=dict(env), cwd="/"
            )
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        os.close(self.out)
        os.close(self.errors)


def burnt(
    python: str,
    scene: Scene,
    asks: Sequence[Mapping[str, Any]],
    within_s: float,
    *,
    one_by_one: bool = False,
    more_env: Mapping[str, str] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[Burnt]:
    """Runs benchmark processes, and returns their results in the order of `asks`.

    `within_s`: time limit of each. `one_by_one`: one at a time instead of all at once. `meanwhile`: called a
    few times a second.
    """
    env = {name: value for name, value in (scene.env or os.environ).items() if name not in _NOT_OURS}
    env |= {"PYTHONDONTWRITEBYTECODE": "1", **(more_env or {})}
    waiting = list(enumerate(asks))
    running: dict[int, _Run] = {}
    answers = [Burnt(unable="the benchmark was not started")] * len(asks)
    try:
        while waiting or running:
            while waiting and not (one_by_one and running):
                place, ask = waiting.pop(0)
                words = [python, BURN, msgspec.json.encode(dict(ask)).decode()]
                try:
                    running[place] = _Run(words, env, time.monotonic() + within_s)
                except OSError as error:
                    answers[place] = Burnt(unable=f"{python} cannot be started: {error}")
            for place, run in list(running.items()):
                if (answer := _over(run, within_s)) is not None:
                    answers[place] = answer
                    del running[place]
            if running:
                meanwhile()
                time.sleep(LOOK_S)
    finally:
        for run in running.values():
            run.process.kill()
            part_with(run.process)
            run.close()
    return answers


def _over(run: _Run, within_s: float) -> Burnt | None:
    if run.process.poll() is None:
        if time.monotonic() < run.until_s:
            return None
        run.process.kill()
        part_with(run.process, REAP_S)
        run.close()
        return Burnt(error=f"no result within {within_s:.0f} s", is_late=True)
    text = os.pread(run.out, 1 << 20, 0)
    said = os.pread(run.errors, 1 << 20, 0).decode(errors="replace")
    run.close()
    try:
        answer = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        last = " ".join(said.split())[-ERROR_CHARS_MAX:]
        return Burnt(
            error=f"the benchmark process {how_it_ended(run.process.returncode)}"
            + (f": {last}" if last else "")
        )
    return Burnt(
        answer=answer,
        unable=str(answer.get("unable", "")),
        error=" ".join(str(answer.get("error", "")).split())[:ERROR_CHARS_MAX],
    )


def python_with(scene: Scene, check: str, *wanted: str) -> tuple[str, str]:
    """Returns the path of a Python interpreter that has one of these modules (the first is preferred), and
    "".

    If there is none, returns "" and the reason. Candidates: the run's own interpreter, those of its
    environment, and the one of Holdfast; the option `CHECK.python=PATH` names another.
    """
    seen: list[tuple[str, set[str]]] = []
    for path in _pythons(scene, check):
        modules = _modules(path, scene, wanted)
        if wanted[0] in modules:
            return path, ""
        seen.append((path, modules))
    for name in wanted[1:]:
        for path, modules in seen:
            if name in modules:
                return path, ""
    asked = ", ".join(path for path, _ in seen) or "no Python"
    return (
        "",
        f"{' and '.join(wanted)} are required, and none is in {asked} (--option {check}.python=PATH)",
    )


def _pythons(scene: Scene, check: str) -> Iterator[str]:
    asked = scene.options.get(f"{check}.python")
    if asked:
        yield asked
        return
    env = scene.env or dict(os.environ)
    found = [*_of_command(scene)]
    found += [f"{env[name]}/bin/python" for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if env.get(name)]
    found += [sys.executable, shutil.which("python3", path=env.get("PATH")) or ""]
    yield from (path for path in dict.fromkeys(found) if path and os.access(path, os.X_OK))


def _of_command(scene: Scene) -> Iterator[str]:
    """Yields the Python interpreter that the command uses, unless a program such as `conda run` chooses
    it.
    """
    words = run_of(scene).interpreter.words if scene.command else ()
    if len(words) == 1:
        yield words[0]


def _modules(path: str, scene: Scene, wanted: Sequence[str]) -> set[str]:
    try:
        done = subprocess.run(
            [path, "-c", ASK, *wanted],
            env=scene.env or None,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return set()
    return set(done.stdout.decode(errors="replace").split()) & set(wanted)
