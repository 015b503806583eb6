"""Checks the environment variables of the training against the hardware and files of this node."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import structs

from holdfast.checks.env.run import gpu_count
from holdfast.checks.registry import Check, Seen
from holdfast.checks.training_python.run import run_of
from holdfast.core.checks.asked import Asked
from holdfast.core.checks.env.variable_rules import FILES
from holdfast.core.checks.env.variables import Place, facts, of_variables
from holdfast.model.checks import BOOT, LIGHT, MANUAL, ON_FAILURE, PROLOG, Scene, Spec
from holdfast.model.signatures import Words
from holdfast.parsers.log_lines.secrets import masked

_BINDERS = ("srun", "mpirun", "mpiexec", "orterun", "numactl", "taskset")
_CONF_LINE = re.compile(r"\s*(NCCL_\w+)\s*=\s*([^\s#]+)")


def variables(scene: Scene) -> Iterator[Seen]:
    run = run_of(scene)
    env = run.prepared.env or {**(scene.env or os.environ), **run.launch.env}
    presets = _from_files(scene.root, env)
    from_files = {name: file for name, (_, file) in presets.items() if name not in env}
    env = without_secrets({**{name: value for name, (value, _) in presets.items()}, **env})
    binds = any(wrapper in _BINDERS for wrapper in run.launch.wrappers)
    asked = run.asked if scene.ranks is None else _with_ranks(run.asked, scene.ranks)
    yield from facts(env)
    yield from of_variables(env, asked, _place(scene, env, from_files, binds))


def without_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """Returns a copy of environment variables in which values that look like secrets are masked."""
    return {name: masked(f"{name}={value}")[len(name) + 1 :] for name, value in env.items()}


def _with_ranks(asked: Asked, ranks: int) -> Asked:
    return structs.replace(asked, ranks=ranks)


def _place(scene: Scene, env: Mapping[str, str], from_files: Mapping[str, str], binds: bool) -> Place:
    root = Path(scene.root)
    rdma = _names(root / "sys/class/infiniband", absent=())
    return Place(
        gpus=gpu_count(scene.root),
        gpu_models=_models(root),
        npus=len([name for name in _names(root / "dev") or () if re.fullmatch(r"davinci\d+", name)]),
        interfaces=_names(root / "sys/class/net"),
        rdma=rdma,
        rdma_up=any("ACTIVE" in _text(path) for path in root.glob("sys/class/infiniband/*/ports/*/state")),
        cores=_cores(root),
        absent=frozenset(_absent(env)),
        stubs=_stubs(env.get("LD_LIBRARY_PATH", "")),
        from_files=from_files,
        binds=binds,
    )


def _names(folder: Path, absent: tuple[str, ...] | None = None) -> tuple[str, ...] | None:
    """Returns the sorted names in a folder; `absent` if it does not exist, None if it cannot be read."""
    try:
        return tuple(sorted(path.name for path in folder.iterdir()))
    except FileNotFoundError:
        return absent
    except OSError:
        return None


def _models(root: Path) -> tuple[str, ...]:
    """Returns the model name of each NVIDIA GPU.

    source: /proc/driver/nvidia/gpus/ADDRESS/information
    """
    texts = [_text(path) for path in sorted(root.glob("proc/driver/nvidia/gpus/*/information"))]
    found = [re.search(r"^Model:\s*(.+)$", text, re.MULTILINE) for text in texts]
    return tuple(one[1].strip() for one in found if one)


def _cores(root: Path) -> float:
    """Returns the number of CPUs that processes here may use: the least of CPUs online, CPU affinity and
    cgroup quota.
    """
    online = _count_of(_text(root / "sys/devices/system/cpu/online"))
    ours = float(len(os.sched_getaffinity(0))) if root == Path("/") else 0.0
    quota, _, period = _text(root / "sys/fs/cgroup/cpu.max").partition(" ")
    paid = int(quota) / int(period) if quota.isdigit() and period.strip().isdigit() and int(period) else 0.0
    return min((count for count in (online, ours, paid) if count), default=0.0)


def _count_of(text: str) -> float:
    """Returns the number of CPUs in a CPU list: 5 for `0-3,8`. 0 if the text is not such a list."""
    total = 0
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            return 0.0
        total += int(last or first) - int(first) + 1
    return float(total)


def _absent(env: Mapping[str, str]) -> Iterator[str]:
    named = [env[name] for name in FILES if env.get(name)]
    named += [
        path for path in re.split(r"[:\s]+", env.get("LD_PRELOAD", "")) if "/" in path and "$" not in path
    ]
    for path in named:
        if not os.path.exists(path):
            yield path


def _stubs(library_path: str) -> tuple[str, ...]:
    """Returns the first folder of LD_LIBRARY_PATH with a libcuda.so.1, if it is a folder of CUDA stubs;
    else nothing.
    """
    for place in filter(None, library_path.split(":")):
        if os.path.exists(os.path.join(place, "libcuda.so.1")):
            return (place,) if "stubs" in place.rstrip("/").split("/") else ()
    return ()


def _from_files(root: str, env: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Returns the variables that NCCL reads from its configuration files: name -> (value, file).

    source: NCCL, Environment Variables, nccl.conf
    """
    own = env.get("NCCL_CONF_FILE") or (os.path.join(env["HOME"], ".nccl.conf") if env.get("HOME") else "")
    found: dict[str, tuple[str, str]] = {}
    for path in (str(Path(root) / "etc/nccl.conf"), own):
        for line in _text(Path(path)).splitlines() if path else ():
            if match := _CONF_LINE.match(line):
                found[match[1]] = (match[2], path)
    return found


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""


CHECKS = (
    Check(
        Spec(
            name="env-variables",
            area="env",
            what=Words(
                en="environment variables of NCCL, CUDA, OpenMP, Gloo, UCX, and proxies",
                zh="NCCL、CUDA、OpenMP、Gloo、UCX 与代理的环境变量",
            ),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            cost=LIGHT,
            timeout_s=18.0,
            quick=True,
        ),
        variables,
    ),
)
