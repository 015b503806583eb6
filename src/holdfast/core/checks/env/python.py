"""Judges whether Python, torch, CUDA, NCCL and the driver of a run are compatible. Pure.

source of the driver that a CUDA version needs: CUDA Compatibility, table of minor version compatibility (a
driver of the major version's first release runs programs of all its minor versions), and CUDA Toolkit release
notes, table 3.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from holdfast.core.plurals import counted
from holdfast.model.checks import (
    ASKED,
    ENVIRONMENT_FAULT,
    FAIL,
    PASS,
    RULE,
    SKIP,
    STATED,
    WARN,
    Fact,
    Finding,
)
from holdfast.model.signatures import Words

Version = tuple[int, ...]
# By major version of CUDA: the oldest Linux driver that runs its programs.
DRIVER_MIN: dict[int, Version] = {
    10: (410, 48),
    11: (450, 80, 2),
    12: (525, 60, 13),
    13: (580, 65, 6),
}


class BadNccl(Struct, frozen=True, kw_only=True):
    """A range of NCCL versions with a defect, from `first` up to, excluding, `fixed_in`.

    `machine`: the affected architecture; empty for all. `where`: an environment variable and its value that
    are required.
    """

    first: Version
    fixed_in: Version
    says: Words
    source: str
    machine: str = ""
    where: tuple[str, str] = ("", "")


NCCL_BAD = (
    BadNccl(
        first=(2, 19, 0),
        fixed_in=(2, 21, 0),
        says=Words(
            en='set-ups of several communicators at once can end with "Message truncated"',
            zh='并发建立多个通信域时可能以 "Message truncated" 失败',
        ),
        source="github.com/NVIDIA/nccl issues 1176 and 1273; release notes 2.21",
    ),
    BadNccl(
        first=(2, 29, 2),
        fixed_in=(2, 29, 3),
        says=Words(en="2.29.2 brought a hang", zh="2.29.2 引入了挂起问题"),
        source="github.com/pytorch/pytorch pull request 174338",
    ),
    BadNccl(
        first=(2, 14, 0),
        fixed_in=(2, 17, 1),
        says=Words(en="NCCL hangs under CUDA_LAUNCH_BLOCKING=1", zh="在 CUDA_LAUNCH_BLOCKING=1 下会挂起"),
        source="github.com/NVIDIA/nccl issue 750; github.com/pytorch/pytorch pull request 97843",
        where=("CUDA_LAUNCH_BLOCKING", "1"),
    ),
    BadNccl(
        first=(2, 28, 0),
        fixed_in=(2, 29, 3),
        says=Words(
            en="on ARM the NCCL proxy can lose operations and hang without an error",
            zh="在 ARM 上代理线程可能丢失操作并无报错挂起",
        ),
        source="NCCL release notes 2.29.3",
        machine="aarch64",
    ),
)


def version_of(text: str) -> Version:
    """Returns the numbers of a version: (2, 21, 5) for "2.21.5"; empty if there are none."""
    found = re.match(r"\d+(?:\.\d+)*", text.strip())
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def python_facts(said: Mapping[str, Any]) -> Iterator[Fact]:
    """Yields facts on the version and the path of Python.

    `said`: result of checks/training_python/inside.py.
    """
    python = said["python"]
    yield Fact(name="python", value=str(python["version"]), same=True)
    yield Fact(name="python-path", value=str(python["executable"]))


def of_environment(said: Mapping[str, Any], env: Mapping[str, str], program: str) -> Finding:
    """Returns the finding whether the run uses the Python of the active virtual environment."""
    python = said["python"]
    prefix, executable = str(python["prefix"]), str(python["executable"])
    measured = f"Python {python['version']}, {executable}"
    active = env.get("VIRTUAL_ENV") or env.get("CONDA_PREFIX") or ""
    both = {env.get(name, "").rstrip("/") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")} - {""}
    if "/" in program or not both or prefix.rstrip("/") in both or _is_alias(prefix, both):
        return Finding(status=PASS, measured=measured, expected="a Python that starts", whence=ASKED)
    return Finding(
        status=WARN,
        measured=measured,
        expected=f"the Python of {active}",
        whence=ASKED,
        why=f"{active} is active, but {program} runs in {executable}",
        advice=Words(
            en=f"Install what the run needs in {active}, put {active}/bin first in PATH, or name the Python by its path.",
            zh=f"请在 {active} 中安装所需软件，将 {active}/bin 放到 PATH 最前，或用完整路径指定 Python。",
        ),
        category="launcher_config",
    )


def _is_alias(prefix: str, active: set[str]) -> bool:
    """Returns whether a folder is another path of an active environment: /home/me/env and
    /mnt/home/me/env.
    """
    return any(prefix.rstrip("/").endswith(one) or one.endswith(prefix.rstrip("/")) for one in active)


def version_facts(torch: Mapping[str, Any], driver: str) -> Iterator[Fact]:
    """Yields facts about the known versions of torch, CUDA, NCCL and the driver; an unknown version is not compared
    between nodes.
    """
    for name, value in (
        ("torch", torch.get("version", "")),
        ("torch-cuda", torch.get("cuda", "")),
        ("torch-rocm", torch.get("hip", "")),
        ("cudnn", torch.get("cudnn", "")),
        ("nccl", torch.get("nccl", "")),
        ("driver", driver),
    ):
        if value:
            yield Fact(name=name, value=str(value), same=True)
    for name in ("deepspeed", "accelerate", "transformers", "flash-attn", "transformer-engine", "triton"):
        if value := torch.get("installed", {}).get(name):
            yield Fact(name=name, value=str(value), same=True)


def of_versions(
    torch: Mapping[str, Any],
    driver: str,
    env: Mapping[str, str],
    machine: str,
    *,
    gpus: int,
    has_compat: bool,
    is_run: bool,
) -> Iterator[Finding]:
    """Yields findings about versions that are incompatible.

    `driver`: version of NVIDIA's driver; empty if not loaded. `has_compat`: forward compatibility libraries exist.
    `is_run`: a run was given.
    """
    if not torch.get("found"):
        why = "torch is not installed in the Python of the run"
        yield Finding(status=SKIP, why=why)
        return
    version = str(torch.get("version", "")) or "of an unknown version"
    cuda, nccl = str(torch.get("cuda", "")), str(torch.get("nccl", ""))
    said = f"torch {version}" + (f", CUDA {cuda}" if cuda else "") + (f", NCCL {nccl}" if nccl else "")
    troubles = [
        *_of_driver(version, cuda, driver, has_compat),
        *(_of_processor_build(version, torch, driver, gpus) if is_run else ()),
        *(_of_nccl(nccl, env, machine) if gpus or driver else ()),
    ]
    yield from troubles
    if not troubles:
        beside = f"; driver {driver}" if driver else ""
        yield Finding(status=PASS, measured=said + beside, expected="compatible versions", whence=RULE)


def _of_driver(version: str, cuda: str, driver: str, has_compat: bool) -> Iterator[Finding]:
    numbers, loaded = version_of(cuda), version_of(driver)
    if not numbers or not loaded or numbers[0] not in DRIVER_MIN:
        return
    needed = DRIVER_MIN[numbers[0]]
    if loaded >= needed:
        return
    least = ".".join(f"{part:02d}" if place else str(part) for place, part in enumerate(needed))
    yield Finding(
        status=WARN if has_compat else FAIL,
        measured=f"driver {driver}",
        expected=f"driver {least} or newer for CUDA {cuda}",
        whence=STATED,
        why=f"driver {driver} is too old for torch {version}, built for CUDA {cuda}, which needs {least}"
        + (", unless its forward compatibility libraries are used" if has_compat else ""),
        advice=Words(
            en=f"Upgrade the driver to {least} or newer, or install a torch built for an older CUDA.",
            zh=f"请将驱动升级到 {least} 或更新，或安装为较旧 CUDA 编译的 torch。",
        ),
        fault="" if has_compat else ENVIRONMENT_FAULT,
        category="cuda_init_error",
    )


def _of_processor_build(version: str, torch: Mapping[str, Any], driver: str, gpus: int) -> Iterator[Finding]:
    is_known = bool(torch.get("version")) and bool(torch.get("has_native"))
    if not is_known or torch.get("cuda") or torch.get("hip") or not (gpus and driver):
        return
    yield Finding(
        status=WARN,
        measured=f"torch {version}, built without CUDA",
        expected=f"a torch that can use the {counted(gpus, 'GPU')} of this node",
        whence=STATED,
        why=f"torch {version} is built for CPUs only, so the {gpus} GPUs are not used",
        advice=Words(
            en="Install the torch built for the CUDA of this driver, unless the run is meant for CPUs.",
            zh="请安装与驱动 CUDA 匹配的 torch；若本就用于 CPU 训练可忽略。",
        ),
        category="version_mismatch",
    )


def _of_nccl(nccl: str, env: Mapping[str, str], machine: str) -> Iterator[Finding]:
    found = version_of(nccl)
    for bad in NCCL_BAD if found else ():
        name, value = bad.where
        if not bad.first <= found < bad.fixed_in or (bad.machine and bad.machine != machine):
            continue
        if name and env.get(name) != value:
            continue
        fixed_in = ".".join(map(str, bad.fixed_in))
        yield Finding(
            status=WARN,
            measured=f"NCCL {nccl}",
            expected=f"NCCL {fixed_in} or newer",
            whence=RULE,
            why=f"NCCL {nccl} has a known defect: {bad.says.en} ({bad.source})",
            advice=Words(
                en=f"Use NCCL {fixed_in} or newer: a newer torch, or pip install a newer nvidia-nccl wheel.",
                zh=f"NCCL {nccl} 存在已知缺陷：{bad.says.zh}。请使用 NCCL {fixed_in} 或更新（升级 torch 或 nvidia-nccl 包）。",
            ),
            category="nccl_bug",
        )
