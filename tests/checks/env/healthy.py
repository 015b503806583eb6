"""Environments that are sound, however unusual: the checks are to say nothing against them."""

from collections.abc import Callable, Mapping

from checks.env.worlds import World, bash, saved, saves_to, trainer_checkpoint


def _plain(world: World) -> None:
    return


def _gpu_node(world: World) -> None:
    world.gpus(8)
    world.ranks = 8
    world.env |= {
        **{"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "OMP_NUM_THREADS": "8", "NCCL_DEBUG": "INFO"},
        **{"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_IB_HCA": "mlx5", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"},
    }


def _launcher_default(world: World) -> None:
    world.gpus(8)
    world.env |= {"OMP_NUM_THREADS": "1"}


def _plain_cards(world: World) -> None:
    """Frameworks ask to set it on these cards."""
    world.gpus(2, model="NVIDIA GeForce RTX 4090")
    world.env |= {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}


def _proxy_for_downloads(world: World) -> None:
    world.env |= {"http_proxy": "http://proxy:3128", "https_proxy": "http://proxy:3128"}
    world.command = (
        "torchrun",
        "--nnodes",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "h9:29400",
        "train.py",
    )


def _processors_on_purpose(world: World) -> None:
    world.gpus(8)
    world.env |= {"CUDA_VISIBLE_DEVICES": ""}


def _old_driver_same_major(world: World) -> None:
    world.gpus(8, driver="535.104.05")
    world.torch("2.7.0", "12.8", "2.26.2")


def _guarded_imports(world: World) -> None:
    world.write(
        "train.py",
        "import torch\ntry:\n    import apex\nexcept ImportError:\n    apex = None\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import nowhere\n"
        "def later():\n    import wandb\n",
    )


def _own_path(world: World) -> None:
    world.write("train.py", "import os, sys\nsys.path.insert(0, os.path.join('..', 'lib'))\nimport mylib\n")
    (world.folder / "lib").mkdir()


def _own_modules(world: World) -> None:
    world.write(
        "train.py", "import torch\nfrom model.net import Net\nfrom configs import base\nimport data\n"
    )
    world.write("model/__init__.py", "from .net import Net\n")
    world.write("model/net.py", "from . import layers\nimport torch.nn as nn\n")
    world.write("model/layers.py", "")
    world.write("configs/base.py", "")
    world.write("data.py", "")
    world.write("test.py", "")
    world.write("profile.py", "")


def _as_module(world: World) -> None:
    world.command = ("torchrun", "--standalone", "--nproc-per-node", "2", "-m", "project.train")
    world.write("project/__init__.py", "")
    world.write("project/train.py", "import torch\nfrom . import model\nfrom .model import Net\n")
    world.write("project/model.py", "import logging\n")
    world.write("project/logging.py", "")


def _conda_in_login_shell(world: World) -> None:
    hook = world.conda("llm")
    (world.home / ".bash_profile").write_text(f"echo welcome\n. {hook}\n")
    world.command = bash("conda activate llm && torchrun --standalone --nproc-per-node 2 train.py", "-l")


def _conda_by_hook(world: World) -> None:
    hook = world.conda("llm")
    world.write(
        "run.sh", f"source {hook}\nconda activate llm\ntorchrun --standalone --nproc-per-node 2 train.py\n"
    )
    world.command = ("bash", "run.sh")


def _script_of_megatron(world: World) -> None:
    world.gpus(8)
    folder = world.work / "ckpt"
    saved(folder / "iter_0000200/mp_rank_00/model_optim_rng.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text("200\n")
    world.write(
        "scripts/run.sh",
        '#!/bin/bash\nGPUS=8\nSAVE=${1:-ckpt}\nARGS=(--nproc_per_node $GPUS --standalone)\ncd "$(dirname "$0")/.."\n'
        "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
        "torchrun ${ARGS[@]} train.py \\\n    --save $SAVE --load $SAVE 2>&1 | tee log\n",
    )
    world.command = ("bash", "scripts/run.sh")


def _whole_trainer(world: World) -> None:
    folder = saves_to(world, "out")
    trainer_checkpoint(folder, 500)
    trainer_checkpoint(folder, 1000)
    (folder / "tmp-checkpoint-1500").mkdir()


def _whole_deepspeed(world: World) -> None:
    folder = saves_to(world, "ckpt")
    saved(folder / "global_step10/mp_rank_00_model_states.pt")
    (folder / "latest").write_text("global_step10")


def _first_start(world: World) -> None:
    saves_to(world, "not/there/yet")


def _old_format(world: World) -> None:
    folder = saves_to(world, "ckpt")
    folder.mkdir()
    (folder / "model.pt").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + b"x" * 100)


def _other_container(world: World) -> None:
    world.command = ("docker", "run", "--gpus", "all", "image", "torchrun", "train.py")


def _not_a_training(world: World) -> None:
    world.command = ("sleep", "5")


def _no_torch(world: World) -> None:
    world.write("job.py", "import json\n")
    world.command = ("/usr/bin/env", "A=1", "python", "job.py")


def _named_interpreter(world: World) -> None:
    other = world.python_environment("other")
    world.torch("2.6.0", "12.4", "2.21.5", other)
    world.env |= {"VIRTUAL_ENV": str(other)}
    world.command = (f"{world.venv}/bin/python", "-u", "train.py")


def _named_by_srun(world: World) -> None:
    world.gpus(8)
    world.command = (
        "srun",
        "-N",
        "2",
        "--ntasks-per-node",
        "8",
        "--cpu-bind=cores",
        "python",
        "-u",
        "train.py",
    )
    world.env |= {"OMP_PROC_BIND": "true", "OMP_NUM_THREADS": "8"}


def _deepspeed_ready(world: World) -> None:
    world.gpus(8)
    world.package("deepspeed", "0.16.0")
    world.program(
        world.folder / "cuda/bin/nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 12.6, V12.6.20'\n"
    )
    world.program(world.venv / "bin/ninja", "#!/bin/sh\n")
    world.program(world.venv / "bin/c++", "#!/bin/sh\n")
    world.env |= {"CUDA_HOME": str(world.folder / "cuda")}
    world.command = (
        "deepspeed",
        "--num_gpus",
        "2",
        "--master_port",
        "0",
        "train.py",
        "--deepspeed",
        "ds.json",
    )


def _deepspeed_built_with_kernels(world: World) -> None:
    world.gpus(8)
    module = world.package("deepspeed", "0.16.0")
    (module / "git_version_info_installed.py").write_text(
        "installed_ops={'fused_adam': True, 'aio': False}\n"
    )
    world.env |= {"CUDA_HOME": str(world.folder / "no-cuda")}
    world.command = (
        "deepspeed",
        "--num_gpus",
        "2",
        "--master_port",
        "0",
        "train.py",
        "--deepspeed",
        "ds.json",
    )


def _other_name_of_the_folder(world: World) -> None:
    (world.folder / "alias").symlink_to(world.venv)
    world.env |= {"VIRTUAL_ENV": str(world.folder / "alias")}


def _object_store(world: World) -> None:
    world.command = (
        *world.command,
        "--output-dir",
        "s3://bucket/run",
        "--resume-from-checkpoint",
        "s3://bucket/old",
    )


def _shared_script(world: World) -> None:
    """Written for several clusters, this one among them."""
    world.write(
        "run.sh",
        "#!/bin/bash\nset -e\nmodule load cuda/12.4 2>/dev/null || true\n"
        "if [ -f /etc/profile.d/gone.sh ]; then source /gone/conda.sh; conda activate llm; fi\n"
        '[ -z "$NPROC" ] && NPROC=2\n'
        "torchrun --standalone --nproc-per-node $NPROC train.py\n",
    )
    world.command = ("bash", "run.sh")


def _open_driver(world: World) -> None:
    world.gpus(8)
    text = (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)\n"
    )
    (world.root / "proc/driver/nvidia/version").write_text(text)


def _excluded_interfaces(world: World) -> None:
    world.gpus(8)
    world.networks("docker0", "ens5")
    world.env |= {"NCCL_SOCKET_IFNAME": "^lo,docker", "GLOO_SOCKET_IFNAME": "ens5", "UCX_NET_DEVICES": "all"}


def _instances(world: World) -> None:
    world.gpus(1)
    world.env |= {"CUDA_VISIBLE_DEVICES": "MIG-aaaa-1,MIG-aaaa-2"}


HEALTHY: Mapping[str, Callable[[World], None]] = {
    "nothing special": _plain,
    "eight GPUs, tuned": _gpu_node,
    "OMP_NUM_THREADS=1 beside GPUs, as torchrun sets it": _launcher_default,
    "cards without direct copies": _plain_cards,
    "a proxy for downloads": _proxy_for_downloads,
    "GPUs hidden on purpose": _processors_on_purpose,
    "an older driver of the same major CUDA": _old_driver_same_major,
    "imports that may fail": _guarded_imports,
    "a script that sets its own path": _own_path,
    "modules of one's own": _own_modules,
    "a module, and logging.py inside it": _as_module,
    "conda in a login shell": _conda_in_login_shell,
    "conda by its hook": _conda_by_hook,
    "a script of Megatron that goes on": _script_of_megatron,
    "checkpoints of Hugging Face": _whole_trainer,
    "checkpoints of DeepSpeed": _whole_deepspeed,
    "no checkpoints yet": _first_start,
    "a checkpoint of the old format": _old_format,
    "in a container": _other_container,
    "no training": _not_a_training,
    "a Python without torch's use": _no_torch,
    "a Python named by its path": _named_interpreter,
    "srun that binds": _named_by_srun,
    "DeepSpeed with all it needs": _deepspeed_ready,
    "DeepSpeed built with its kernels": _deepspeed_built_with_kernels,
    "an environment by another name": _other_name_of_the_folder,
    "checkpoints in an object store": _object_store,
    "a script for several clusters": _shared_script,
    "the open kernel modules": _open_driver,
    "interfaces excluded": _excluded_interfaces,
    "MIG": _instances,
}
