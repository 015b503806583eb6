"""Faults of a run's environment, one at a time: how each is made, and which check is to say what of it."""

import os
from collections.abc import Callable
from typing import NamedTuple

from checks.env.worlds import SCRIPT, World, bash, cut, saved, saves_to, tensors, trainer_checkpoint
from holdfast.model.checks import FAIL, WARN


class Fault(NamedTuple):
    name: str
    check: str
    status: str
    says: str
    break_it: Callable[[World], None]


def _wrong_python(world: World) -> None:
    other = world.python_environment("other")
    world.torch("2.6.0", "12.4", "2.21.5", other)
    world.env |= {"VIRTUAL_ENV": str(other)}


def _launcher_missing(world: World) -> None:
    (world.venv / "bin/torchrun").unlink()


def _path_lost(world: World) -> None:
    """A login shell begins with a PATH of its own."""
    (world.home / ".bash_profile").write_text("PATH=/usr/bin:/bin\n")
    world.command = bash("torchrun --standalone --nproc-per-node 2 train.py", "-l")


def _python_broken(world: World) -> None:
    world.program(
        world.folder / "broken/python", "#!/bin/sh\necho 'libpython3.so: cannot open' >&2\nexit 127\n"
    )
    world.command = (str(world.folder / "broken/python"), "train.py")


def _missing_import(world: World) -> None:
    world.write("train.py", SCRIPT + "import einops\n")


def _missing_import_of_import(world: World) -> None:
    world.write("train.py", "from model.net import Net\nimport torch\n")
    world.write("model/__init__.py", "")
    world.write("model/net.py", "import torch\nfrom flash_attn import flash_attn_func\n")


def _missing_local_module(world: World) -> None:
    world.write("train.py", "from utils.data import loader\nimport torch\n")
    world.write("utils/__init__.py", "")


def _relative_import(world: World) -> None:
    world.write("train.py", "import torch\nfrom .model import Net\n")


def _syntax(world: World) -> None:
    world.write("train.py", "import torch\nfor x in range(3)\n    pass\n")


def _no_script(world: World) -> None:
    world.command = ("torchrun", "--standalone", "--nproc-per-node", "2", "trian.py")


def _script_of_module(world: World) -> None:
    world.command = ("torchrun", "--standalone", "-m", "project.train")


def _conda_not_in_plain_shell(world: World) -> None:
    hook = world.conda("llm")
    (world.home / ".bash_profile").write_text(f". {hook}\n")
    world.command = bash("conda activate llm && torchrun --standalone --nproc-per-node 2 train.py")


def _conda_not_in_login_shell(world: World) -> None:
    hook = world.conda("llm")
    (world.home / ".bashrc").write_text(f". {hook}\n")
    world.command = bash("conda activate llm && torchrun --standalone train.py", "-l")


def _conda_name(world: World) -> None:
    hook = world.conda("llm")
    (world.home / ".bash_profile").write_text(f". {hook}\n")
    world.command = bash("conda activate lm && torchrun --standalone train.py", "-l")


def _no_modules(world: World) -> None:
    world.write(
        "run.sh", "set -e\nmodule load cuda/12.4\ntorchrun --standalone --nproc-per-node 2 train.py\n"
    )
    world.command = ("bash", "run.sh")


def _no_activate(world: World) -> None:
    text = f"set -e\nsource {world.folder}/gone/bin/activate\ntorchrun --standalone --nproc-per-node 2 train.py\n"
    world.write("run.sh", text)
    world.command = ("bash", "run.sh")


def _port_taken(world: World) -> None:
    world.command = ("torchrun", "--nproc-per-node", "2", "--master-port", str(world.listen()), "train.py")


def _port_taken_in_script(world: World) -> None:
    world.write("run.sh", f"PORT={world.listen()}\ndeepspeed --num_gpus 2 --master_port $PORT train.py\n")
    world.command = ("bash", "run.sh")


def _meets_at_loopback(world: World) -> None:
    world.command = (
        *("torchrun", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:29400"),
        "train.py",
    )


def _unwritable(world: World) -> None:
    """Below /proc nothing can be made, by root neither."""
    saves_to(world, "/proc/holdfast/checkpoints")


def _no_folder(world: World) -> None:
    saves_to(world, "ckpt").write_text("a file")


def _cut_checkpoint(world: World) -> None:
    folder = saves_to(world, "ckpt")
    saved(folder / "step-1.pt")
    saved(folder / "step-2.pt")
    os.utime(folder / "step-1.pt", (1, 1))
    cut(folder / "step-2.pt")


def _megatron_lost(world: World) -> None:
    folder = saves_to(world, "ckpt")
    world.command = (*world.command, "--load", "ckpt")
    saved(folder / "iter_0000100/mp_rank_00/model_optim_rng.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text("200")


def _megatron_empty(world: World) -> None:
    folder = saves_to(world, "ckpt")
    world.command = (*world.command, "--load", "ckpt")
    folder.mkdir()
    (folder / "latest_checkpointed_iteration.txt").touch()


def _deepspeed_cut(world: World) -> None:
    folder = saves_to(world, "ckpt")
    saved(folder / "global_step10/mp_rank_00_model_states.pt")
    saved(folder / "global_step10/zero_pp_rank_0_mp_rank_00_optim_states.pt")
    cut(folder / "global_step10/zero_pp_rank_0_mp_rank_00_optim_states.pt")
    (folder / "latest").write_text("global_step10")


def _trainer_torn(world: World) -> None:
    folder = saves_to(world, "out")
    trainer_checkpoint(folder, 500)
    (trainer_checkpoint(folder, 1000) / "trainer_state.json").unlink()


def _tensors_cut(world: World) -> None:
    folder = saves_to(world, "out")
    tensors(trainer_checkpoint(folder, 500) / "model.safetensors", missing_bytes=100)


def _parts_without_list(world: World) -> None:
    folder = saves_to(world, "ckpt") / "step-100"
    folder.mkdir(parents=True)
    (folder / "__0_0.distcp").write_bytes(b"x")


def _sets(**variables: str) -> Callable[[World], None]:
    def set_them(world: World) -> None:
        world.gpus(8)
        world.env |= variables

    return set_them


def _fabric_off(world: World) -> None:
    world.gpus(8)
    world.rdma("mlx5_0", "mlx5_1")
    world.command = (
        "torchrun",
        "--nnodes",
        "2",
        "--rdzv-endpoint",
        "h1:29400",
        "--rdzv-backend",
        "c10d",
        "train.py",
    )
    world.env |= {"NCCL_IB_DISABLE": "1"}


def _wrong_devices_of_fabric(world: World) -> None:
    world.gpus(8)
    world.rdma("mlx5_4", "mlx5_5")
    world.env |= {"NCCL_IB_HCA": "mlx5_0,mlx5_1"}


def _preset_by_file(world: World) -> None:
    world.gpus(8)
    (world.home / ".nccl.conf").write_text("# of the image\nNCCL_P2P_DISABLE=1\n")


def _proxy(world: World) -> None:
    world.env |= {"http_proxy": "http://me:secret-word@proxy:3128", "no_proxy": "localhost,.corp"}
    world.command = (
        *("torchrun", "--nnodes", "2", "--rdzv-backend", "etcd-v2", "--rdzv-endpoint", "10.0.0.5:2379"),
        "train.py",
    )


def _one_thread(world: World) -> None:
    world.env |= {"OMP_NUM_THREADS": "1"}


def _too_many_threads(world: World) -> None:
    world.ranks = 8
    world.env |= {"OMP_NUM_THREADS": "64"}


def _few_devices(world: World) -> None:
    world.gpus(8)
    world.ranks = 8
    world.env |= {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}


def _same_device(world: World) -> None:
    world.gpus(8)
    world.env |= {"CUDA_VISIBLE_DEVICES": "0,0"}


def _beyond_devices(world: World) -> None:
    world.gpus(2)
    world.env |= {"CUDA_VISIBLE_DEVICES": "1,2"}


def _stub(world: World) -> None:
    world.gpus(8)
    stubs = world.folder / "cuda/lib64/stubs"
    stubs.mkdir(parents=True)
    (stubs / "libcuda.so.1").touch()
    world.env |= {"LD_LIBRARY_PATH": f"{stubs}:/usr/lib"}


def _local_torch(world: World) -> None:
    world.write("torch.py", "")


def _local_random(world: World) -> None:
    world.write("random.py", "")


def _module_on_path(world: World) -> None:
    extra = world.folder / "extra"
    extra.mkdir()
    (extra / "queue.py").touch()
    world.env |= {"PYTHONPATH": str(extra)}


def _needs_nvcc(world: World) -> None:
    world.gpus(8)
    world.package("deepspeed", "0.16.0")
    world.env |= {"CUDA_HOME": str(world.folder / "no-cuda")}
    world.command = ("deepspeed", "--num_gpus", "2", "train.py", "--deepspeed", "ds.json")


def _other_nvcc(world: World) -> None:
    _needs_nvcc(world)
    world.program(
        world.folder / "cuda-11/bin/nvcc",
        "#!/bin/sh\necho 'Cuda compilation tools, release 11.8, V11.8.89'\n",
    )
    world.program(world.venv / "bin/ninja", "#!/bin/sh\n")
    world.env |= {"CUDA_HOME": str(world.folder / "cuda-11")}


def _bad_nccl(world: World) -> None:
    world.gpus(8)
    world.torch("2.3.1", "12.1", "2.20.5")


def _old_driver(world: World) -> None:
    world.gpus(8, driver="470.82.01")


def _no_cuda_build(world: World) -> None:
    world.gpus(8)
    world.torch("2.6.0+cpu", "")


FAULTS = (
    Fault("another Python than the active one", "env-python", WARN, "is active, but", _wrong_python),
    Fault("torchrun not installed", "env-python", FAIL, "in no folder of PATH", _launcher_missing),
    Fault("a login shell sets PATH anew", "env-python", FAIL, "outside the shell", _path_lost),
    Fault("a Python that does not start", "env-python", FAIL, "cannot open", _python_broken),
    Fault("a module is not installed", "env-imports", FAIL, "einops", _missing_import),
    Fault(
        "a module of a module is not installed", "env-imports", FAIL, "flash_attn", _missing_import_of_import
    ),
    Fault("a module of one's own is missing", "env-imports", FAIL, "utils.data", _missing_local_module),
    Fault("a relative import in a script", "env-imports", FAIL, "relative import", _relative_import),
    Fault("torch.py beside the script", "env-imports", FAIL, "shadows the module torch", _local_torch),
    Fault("random.py beside the script", "env-imports", WARN, "shadows the module random", _local_random),
    Fault("queue.py on PYTHONPATH", "env-imports", WARN, "shadows the module queue", _module_on_path),
    Fault("a syntax error", "env-script", FAIL, "line 2", _syntax),
    Fault("a script that is not there", "env-script", FAIL, "does not exist", _no_script),
    Fault("a module that is not there", "env-script", FAIL, "project.train", _script_of_module),
    Fault("conda only in login shells", "env-shell", FAIL, "it works in bash -l", _conda_not_in_plain_shell),
    Fault("conda not in login shells", "env-shell", FAIL, "conda activate llm", _conda_not_in_login_shell),
    Fault("no conda environment of that name", "env-shell", FAIL, "EnvironmentNameNotFound", _conda_name),
    Fault("module is no command", "env-shell", FAIL, "module load", _no_modules),
    Fault("an environment that is gone", "env-shell", FAIL, "gone/bin/activate", _no_activate),
    Fault("the port is taken", "env-port", FAIL, "in use", _port_taken),
    Fault("the port of a script is taken", "env-port", FAIL, "in use", _port_taken_in_script),
    Fault("two nodes meet at localhost", "env-port", WARN, "localhost", _meets_at_loopback),
    Fault(
        "checkpoints cannot be written", "env-checkpoint", FAIL, "no checkpoint can be written", _unwritable
    ),
    Fault("the folder of checkpoints is a file", "env-checkpoint", FAIL, "not a folder", _no_folder),
    Fault(
        "the newest checkpoint is cut short",
        "env-checkpoint",
        WARN,
        "step-2.pt: it is truncated",
        _cut_checkpoint,
    ),
    Fault("Megatron's tracker names no checkpoint", "env-checkpoint", FAIL, "iter_0000200", _megatron_lost),
    Fault("Megatron's tracker is empty", "env-checkpoint", FAIL, "it is empty", _megatron_empty),
    Fault(
        "an optimizer of DeepSpeed is cut short", "env-checkpoint", WARN, "optim_states.pt", _deepspeed_cut
    ),
    Fault("trainer_state.json is missing", "env-checkpoint", WARN, "trainer_state.json", _trainer_torn),
    Fault("safetensors cut short", "env-checkpoint", WARN, "it is truncated", _tensors_cut),
    Fault(
        "a distributed checkpoint without .metadata", "env-checkpoint", WARN, ".metadata", _parts_without_list
    ),
    Fault("P2P turned off", "env-variables", WARN, "NCCL_P2P_DISABLE", _sets(NCCL_P2P_DISABLE="1")),
    Fault("P2P turned off by ~/.nccl.conf", "env-variables", WARN, ".nccl.conf", _preset_by_file),
    Fault("RDMA turned off", "env-variables", WARN, "NCCL_IB_DISABLE", _fabric_off),
    Fault("RDMA devices of another machine", "env-variables", WARN, "NCCL_IB_HCA", _wrong_devices_of_fabric),
    Fault("an interface that is not there", "env-variables", FAIL, "IFNAME", _sets(NCCL_SOCKET_IFNAME="ib0")),
    Fault("no interface for gloo", "env-variables", WARN, "GLOO", _sets(GLOO_SOCKET_IFNAME="ens5")),
    Fault("LL128 forced", "env-variables", WARN, "NCCL_PROTO", _sets(NCCL_PROTO="LL128")),
    Fault(
        "a topology file that is gone",
        "env-variables",
        WARN,
        "does not exist",
        _sets(NCCL_TOPO_FILE="/gone.xml"),
    ),
    Fault("kernels launched one by one", "env-variables", WARN, "slow", _sets(CUDA_LAUNCH_BLOCKING="1")),
    Fault(
        "failed collectives hang", "env-variables", WARN, "hang", _sets(TORCH_NCCL_ASYNC_ERROR_HANDLING="0")
    ),
    Fault("a proxy catches the rendezvous", "env-variables", WARN, "proxy", _proxy),
    Fault("one thread on many cores", "env-variables", WARN, "one thread", _one_thread),
    Fault("more threads than cores", "env-variables", WARN, "share 64 cores", _too_many_threads),
    Fault("threads that are no number", "env-variables", WARN, "not a number", _sets(OMP_NUM_THREADS="auto")),
    Fault(
        "all ranks tied to the first cores", "env-variables", WARN, "same first", _sets(OMP_PROC_BIND="true")
    ),
    Fault("fewer devices than ranks", "env-variables", FAIL, "8 ranks", _few_devices),
    Fault("a device twice", "env-variables", FAIL, "more than once", _same_device),
    Fault("a device that is not there", "env-variables", FAIL, "CUDA_VISIBLE", _beyond_devices),
    Fault("a stub of libcuda", "env-variables", FAIL, "stub", _stub),
    Fault("a preload that is gone", "env-variables", WARN, "LD_PRELOAD", _sets(LD_PRELOAD="/gone/libx.so")),
    Fault("DeepSpeed without nvcc", "env-nvcc", WARN, "nvcc is not installed", _needs_nvcc),
    Fault("nvcc of another CUDA", "env-nvcc", WARN, "nvcc is of CUDA 11.8", _other_nvcc),
    Fault("a known defect of NCCL", "env-versions", WARN, "Message truncated", _bad_nccl),
    Fault("a driver too old for torch", "env-versions", FAIL, "too old", _old_driver),
    Fault("a torch without CUDA", "env-versions", WARN, "for CPUs only", _no_cuda_build),
)
