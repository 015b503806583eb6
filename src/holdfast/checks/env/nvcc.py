"""Checks the CUDA compiler nvcc and its tools for a training with DeepSpeed, which compiles kernels at
their first use.
"""

import os
from collections.abc import Iterator

from holdfast.checks.registry import Check, Seen
from holdfast.checks.training_python.run import answer_of, run_of, run_within, which
from holdfast.core.checks.env.nvcc import nvcc_version, of_tools
from holdfast.model.checks import BOOT, LIGHT, MANUAL, ON_FAILURE, PROLOG, SKIP, Fact, Finding, Scene, Spec
from holdfast.model.signatures import Words

NVCC_S = 5.0
USUAL_HOME = "/usr/local/cuda"


def nvcc(scene: Scene) -> Iterator[Seen]:
    run = run_of(scene)
    if not scene.command:
        yield Finding(status=SKIP, why="no command was given: holdfast check -- COMMAND")
        return
    said = answer_of(scene).said
    if said is None:
        yield Finding(status=SKIP, why=answer_of(scene).why_not)
        return
    if run.asked.framework != "deepspeed" and "deepspeed" not in said["imported"]:
        yield Finding(status=SKIP, why="the command does not use DeepSpeed")
        return
    if not said["builds_kernels"]:
        yield Finding(
            status=SKIP,
            why=(
                "DeepSpeed is not installed in the Python of the training, or its kernels are already "
                "compiled"
            ),
        )
        return
    cuda = str(said["torch"].get("cuda", ""))
    if not cuda:
        yield Finding(status=SKIP, why="the torch of the training is built without CUDA")
        return
    env, folder = run.prepared.env, run.prepared.folder
    path = _nvcc(env, folder, scene.root)
    version, says = "", ""
    if path:
        ran = run_within([path, "--version"], env, folder, NVCC_S)
        version = nvcc_version(ran.out.decode(errors="replace"))
        says = (
            "no answer"
            if ran.code is None
            else " ".join(ran.errors.split())[:200] or "no version in its output"
        )
    if version:
        yield Fact(name="nvcc", value=version, same=True)
    beside = {**env, "PATH": f"{said['python']['prefix']}/bin:{env.get('PATH', os.defpath)}"}
    compiler = env.get("CXX", "").split()[:1] or ["c++", "g++"]
    tools = {
        compiler[0]: any(which(name, env, folder) for name in compiler),
        "ninja": bool(which("ninja", beside, folder)),
    }
    yield from of_tools(path, version, cuda, tools, says)


def _nvcc(env: dict[str, str], folder: str, root: str) -> str:
    """Returns the path of nvcc, searched in the order that torch uses: CUDA_HOME, CUDA_PATH, PATH,
    /usr/local/cuda.
    """
    for home in (env.get("CUDA_HOME"), env.get("CUDA_PATH")):
        if home:
            return which(os.path.join(home, "bin/nvcc"), env, folder)
    return which("nvcc", env, folder) or which(os.path.join(root, USUAL_HOME[1:], "bin/nvcc"), env, folder)


CHECKS = (
    Check(
        Spec(
            name="env-nvcc",
            area="env",
            what=Words(en="the CUDA compiler nvcc, if DeepSpeed needs it", zh="DeepSpeed 所需的 nvcc"),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            cost=LIGHT,
            timeout_s=18.0,
            needs=("deepspeed",),
            quick=True,
        ),
        nvcc,
    ),
)
