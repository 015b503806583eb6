"""Checks the Python interpreter that the command will use, its packages, the script and the script's imports.

No code of the script is executed.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.checks.registry import Check, Seen
from holdfast.checks.training_python.run import answer_of, run_of, which
from holdfast.core.checks.env.python import of_environment, of_versions, python_facts, version_facts
from holdfast.core.checks.env.script import of_imports, of_script, of_shadows
from holdfast.core.checks.env.shell_text import is_known
from holdfast.model.checks import (
    ASKED,
    BOOT,
    ENVIRONMENT_FAULT,
    FAIL,
    LIGHT,
    MANUAL,
    ON_FAILURE,
    PROLOG,
    SKIP,
    Finding,
    Scene,
    Spec,
)
from holdfast.model.signatures import Words

NO_COMMAND = "no command was given: holdfast check -- COMMAND"
_DRIVER = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)")
_COMPAT = ("usr/local/cuda/compat", "usr/local/cuda/compat/lib", "usr/local/cuda/compat/lib.real")


def python(scene: Scene) -> Iterator[Seen]:
    if scene.quick and not scene.command:
        yield _skip(NO_COMMAND)  # some Python or other is not worth its start
        return
    run = run_of(scene)
    interpreter, launch = run.interpreter, run.launch
    if interpreter.absent and scene.command:
        outside = which(interpreter.absent, dict(scene.env), scene.cwd)
        beside = f"; outside the shell of the command it is {outside}" if outside else ""
        yield Finding(
            status=FAIL,
            measured=f"{interpreter.absent}: not found",
            expected="an existing program",
            whence=ASKED,
            why=(
                f"{interpreter.absent} is in no folder of PATH (working folder: "
                f"{run.prepared.folder}){beside}"
            ),
            advice=Words(
                en=(
                    f"Activate the environment that contains {interpreter.absent} in the same shell, or use "
                    "its absolute path."
                ),
                zh=f"请在同一 shell 中激活包含 {interpreter.absent} 的环境，或使用其完整路径。",
            ),
            fault=ENVIRONMENT_FAULT,
            category="launcher_config",
        )
        return
    answer = answer_of(scene)
    if answer.said is None:
        yield _silent(answer.broken, " ".join(interpreter.words)) if answer.broken else _skip(answer.why_not)
        return
    yield from python_facts(answer.said)
    if not scene.command:
        yield _skip(NO_COMMAND)
        return
    yield of_environment(*_resolved(answer.said, run.prepared.env), launch.program)


def _resolved(said: dict[str, Any], env: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Replaces symbolic links in the paths of environments, so that one folder has one name in all
    comparisons.
    """
    python = {**said["python"], "prefix": os.path.realpath(said["python"]["prefix"])}
    active = {name: os.path.realpath(env[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if env.get(name)}
    return {**said, "python": python}, {**env, **active}


def _silent(error: str, python: str) -> Finding:
    return Finding(
        status=FAIL,
        measured=error,
        expected="a Python interpreter that starts",
        whence=ASKED,
        why=f"{python} does not start: {error}",
        advice=Words(
            en=f"Run `{python} -c pass` by hand; repair or install that Python again.",
            zh=f"请手动运行 `{python} -c pass`，修复或重装该 Python。",
        ),
        fault=ENVIRONMENT_FAULT,
        category="launcher_config",
    )


def _skip(why: str) -> Finding:
    return Finding(status=SKIP, why=why)


def versions(scene: Scene) -> Iterator[Seen]:
    if scene.quick and not scene.command:
        yield _skip(NO_COMMAND)
        return
    answer = answer_of(scene)
    if answer.said is None:
        yield _skip(answer.why_not)
        return
    run = run_of(scene)
    torch = answer.said["torch"]
    driver = driver_version(scene.root)
    yield from version_facts(torch, driver)
    yield from of_versions(
        torch,
        driver,
        run.prepared.env,
        str(answer.said["python"]["machine"]),
        gpus=gpu_count(scene.root),
        has_compat=_has_compat(scene.root, run.prepared.env.get("LD_LIBRARY_PATH", "")),
        is_run=bool(scene.command),
    )


def driver_version(root: str) -> str:
    """Returns the version of the loaded NVIDIA driver; empty if none is loaded. source:
    /proc/driver/nvidia/version
    """
    try:
        text = (Path(root) / "proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = _DRIVER.search(text)
    return found[1] if found else ""


def gpu_count(root: str) -> int:
    """Returns the number of NVIDIA device files (/dev/nvidia0, ...) that this node or container has."""
    try:
        names = [path.name for path in (Path(root) / "dev").iterdir()]
    except OSError:
        return 0
    return sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in names)


def _has_compat(root: str, library_path: str) -> bool:
    places = [Path(root) / place for place in _COMPAT]
    places += [Path(place) for place in library_path.split(":") if "compat" in place]
    for place in places:
        try:
            if any(place.glob("libcuda.so*")):
                return True
        except OSError:
            continue
    return False


def script(scene: Scene) -> Iterator[Seen]:
    """Checks that the training script exists and can be compiled by the Python that will run it. Yields findings."""
    said = _of_script(scene)
    if isinstance(said, Finding):
        yield said
        return
    launch = run_of(scene).launch
    yield of_script(said["script"], launch.script or launch.module, run_of(scene).prepared.folder)


def _of_script(scene: Scene) -> dict[str, Any] | Finding:
    """Returns what the run's Python reports of the script, or a finding if it cannot be queried."""
    launch = run_of(scene).launch
    name = launch.script or launch.module
    if not scene.command or not name or not is_known(name):
        return _skip(NO_COMMAND if not scene.command else _unnamed(name, launch.unclear))
    answer = answer_of(scene)
    if answer.said is None or "script" not in answer.said:
        return _skip(answer.why_not or "the Python of the training reported nothing about the script")
    return answer.said


def _unnamed(name: str, unclear: str) -> str:
    return unclear or (f"{name} is only known at run time" if name else "the command names no Python script")


def imports(scene: Scene) -> Iterator[Seen]:
    """Checks that the modules imported by the script exist, and that no file beside the script shadows one
    of them.
    """
    said = _of_script(scene)
    if isinstance(said, Finding):
        yield said
        return
    if said["script"]["problem"]:
        yield _skip("the script cannot be read or does not compile (env-script)")
        return
    yield of_imports(said["missing"], said["doubts"], said["files"], said["imported"])
    uses_torch = "torch" in said["imported"] or run_of(scene).launch.launcher != "python"
    yield from of_shadows(said["shadows"], uses_torch)


_CONTEXTS = (BOOT, PROLOG, ON_FAILURE, MANUAL)
_HANGS = Words(
    en="The folders of the Python interpreter or of the script respond slowly: check their mounts.",
    zh="Python 或脚本所在目录响应过慢，请检查其挂载。",
)


def _spec(name: str, en: str, zh: str) -> Spec:
    return Spec(
        name=name,
        area="env",
        what=Words(en=en, zh=zh),
        contexts=_CONTEXTS,
        cost=LIGHT,
        timeout_s=18.0,
        quick=True,
        hang_advice=_HANGS,
    )


CHECKS = (
    Check(_spec("env-python", "the Python that the command runs", "命令所用的 Python"), python),
    Check(
        _spec(
            "env-versions",
            "versions of torch, CUDA, cuDNN, NCCL and the driver",
            "torch、CUDA、cuDNN、NCCL 与驱动版本",
        ),
        versions,
    ),
    Check(_spec("env-script", "the script exists and compiles", "训练脚本存在且可编译"), script),
    Check(_spec("env-imports", "the modules that the script imports exist", "脚本的导入均可解析"), imports),
)
