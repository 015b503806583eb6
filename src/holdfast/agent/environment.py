"""Builds the environment variables of an attempt's command: names, counters, a new rendezvous address,
diagnostics.

Never overrides variables that the user has set, except Holdfast's own. Never starts a process.
"""

import re
import socket
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from holdfast.agent.part import LOOPBACK, Part
from holdfast.core.kubernetes.wrapped import Place, numbers
from holdfast.parsers.commands import Launcher

SHIM = Path(__file__).parent.parent / "shim"
OWN = (
    "HOLDFAST_JOB",
    "HOLDFAST_ATTEMPT",
    "HOLDFAST_STATE_DIR",
    "HOLDFAST_WORKER_DIR",
    "HOLDFAST_SHIM",
    "HOLDFAST_RANK_OWNER",
    "HOLDFAST_CONTROLLER",
    "HOLDFAST_JOB_FOLDER",
    "HOLDFAST_SECRET_FILE",
    "HOLDFAST_GATE",
    "HOLDFAST_PRELOAD",
    "HOLDFAST_RANKS",
    "HOLDFAST_HELD",
    "HOLDFAST_DETERMINISTIC_SEED",
    "HOLDFAST_LEARNS",
    "HOLDFAST_FORK_SERVER",
    "HOLDFAST_FORK_PROGRAM",
    "HOLDFAST_ZYGOTE_FD",
    "HOLDFAST_CHECKPOINT_EVERY_S",
    "HOLDFAST_CHECKPOINT_FILE",
    "HOLDFAST_RAM_CHECKPOINT",
)
SEED = "0"  # of a deterministic run; ranks add their number
# Variables of a deterministic run, read before the training could set them.
# source: PyTorch notes on reproducibility; cuBLAS and NCCL documentation; Transformer Engine; HCCL
DETERMINISTIC = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "PYTHONHASHSEED": SEED,
    "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0",
    "HCCL_DETERMINISTIC": "true",
}
ADVICE = "checkpoint-every-s"  # in the job's folder: seconds, as `holdfast advise` computes them


class Given(Struct, frozen=True, kw_only=True):
    """The environment of an attempt's command: all variables, those that Holdfast added, and those that it
    would have added but that the user had set.
    """

    env: Mapping[str, str]
    added: Mapping[str, str]
    kept: tuple[str, ...]


class Names(Struct, frozen=True, kw_only=True):
    """The names that the environment of a command contains. `node`: the node's name in a multi-node job;
    empty: one machine.
    """

    job: str
    attempt: int
    part: Part
    state_dir: Path
    worker_dir: Path
    node: str = ""


def environment(
    base: Mapping[str, str],
    names: Names,
    launcher: Launcher,
    *,
    counters: Mapping[str, str],
    shim: bool,
    old_torch: bool = False,
    deterministic: bool = False,
) -> Given:
    """Returns `base` plus the variables that this attempt needs. `counters`: MA_SCHEDULE_CNT and
    MA_PROC_START_CNT.

    `shim`: load the shim into the ranks. `old_torch`: see is_old_torch. `deterministic`: also set what makes
    a run repeatable.
    """
    ours = _names(names) | dict(counters)
    if names.node and "SLURM_JOB_ID" in base and names.part.workers > 1:
        ours |= _as_slurm_step(names.part)
    part = names.part
    ours |= numbers(
        base, Place(part.worker, part.workers, part.master_address, part.master_port, part.run_id)
    )
    if shim:
        ours |= {"HOLDFAST_SHIM": "1", "PYTHONPATH": _first(str(SHIM), base.get("PYTHONPATH", ""))}
    defaults = _address(names.part) | _diagnostics(names.worker_dir, old_torch=old_torch)
    if deterministic:
        defaults |= DETERMINISTIC
        ours |= {"HOLDFAST_DETERMINISTIC_SEED": SEED}
    if launcher.is_torchrun:
        defaults |= _for_torchrun(names.part, launcher.rendezvous)
        if launcher.restarts:
            defaults["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    kept = tuple(sorted(key for key in defaults if key in base))
    added = {key: value for key, value in defaults.items() if key not in base} | ours
    env = {key: value for key, value in base.items() if key not in OWN} | added
    return Given(env=env, added=added, kept=kept)


def checkpoint_advice(job_folder: Path) -> dict[str, str]:
    """Returns the environment variable with the advised checkpoint interval; empty if no interval was
    computed.
    """
    path = job_folder / ADVICE
    try:
        seconds = float(path.read_text().strip())
    except (OSError, ValueError):
        return {}
    return {"HOLDFAST_CHECKPOINT_EVERY_S": f"{seconds:.0f}", "HOLDFAST_CHECKPOINT_FILE": str(path)}


def free_port(besides: int = 0, address: str = LOOPBACK) -> int:
    """Returns a TCP port on which no process listens, from the kernel's ephemeral range.

    `besides`: a port to exclude, because it was just assigned. `address`: an address of this machine; "":
    all.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port if port != besides else free_port(besides, address)


def _names(names: Names) -> dict[str, str]:
    node = {"HOLDFAST_NODE": names.node} if names.node else {}
    return node | {
        "HOLDFAST_JOB": names.job,
        "HOLDFAST_ATTEMPT": str(names.attempt),
        "HOLDFAST_STATE_DIR": str(names.state_dir),
        "HOLDFAST_WORKER_DIR": str(names.worker_dir),
    }


def _address(part: Part) -> dict[str, str]:
    place = {"NNODES": str(part.workers), "NODE_RANK": str(part.worker)}
    if not part.master_address:
        return place
    return place | {"MASTER_ADDR": part.master_address, "MASTER_PORT": str(part.master_port)}


def _as_slurm_step(part: Part) -> dict[str, str]:
    """Returns Slurm environment variables as in one step over all workers.

    Each agent is a step of its own on one node, so Slurm's variables are equal on all nodes.
    """
    one, all_of_them = str(part.worker), str(part.workers)
    return {
        "SLURM_PROCID": one,
        "SLURM_NODEID": one,
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": all_of_them,
        "SLURM_NPROCS": all_of_them,
        "SLURM_NNODES": all_of_them,
        "SLURM_JOB_NUM_NODES": all_of_them,
    }


def _for_torchrun(part: Part, rendezvous: str) -> dict[str, str]:
    """Returns options of torchrun as environment variables PET_OPTION, which apply unless given on the
    command line.

    torchrun's default is the static rendezvous, in which each worker gets its number, and an endpoint would
    override an address on the command line. Other rendezvous backends (c10d) use only the endpoint. source:
    env and check_env of torch.distributed.argparse_util, get_rdzv_endpoint of torch.distributed.run, 2.13
    """
    defaults = {"PET_RDZV_ID": part.run_id}
    if part.master_address:
        defaults["PET_MASTER_PORT"] = str(part.master_port)
    if part.workers == 1:
        return defaults
    defaults |= {"PET_NNODES": str(part.workers), "PET_NODE_RANK": str(part.worker)}
    if not part.master_address:
        return defaults
    if rendezvous != "static":
        defaults["PET_RDZV_ENDPOINT"] = f"{part.master_address}:{part.master_port}"
    return defaults | {"PET_MASTER_ADDR": part.master_address}


def is_old_torch(python: str) -> bool:
    """Returns whether the interpreter's PyTorch is older than 2.8, by its version.py. False if unknown.

    From 2.8 on, the former environment variable for the size of the flight recorder makes every rank print a
    warning.
    """
    for path in Path(python).resolve().parent.parent.glob("lib/python3*/site-packages/torch/version.py"):
        found = re.search(r"__version__ = ['\"](\d+)\.(\d+)", path.read_text(errors="replace"))
        return found is not None and (int(found[1]), int(found[2])) < (2, 8)
    return False


def _diagnostics(folder: Path, *, old_torch: bool) -> dict[str, str]:
    """Switches of PyTorch, NCCL and Python that cost nothing until something is wrong.

    source: PyTorch 2.13 ProcessGroupNCCL.hpp and FlightRecorder.hpp, NCCL's environment variables
    """
    ring = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"} if old_torch else {}
    return ring | {
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(folder / "flight_"),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(folder / "flight_pipe_"),
        "NCCL_DEBUG": "WARN",
        "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p.log"),
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _first(path: str, others: str) -> str:
    rest = [other for other in others.split(":") if other and other != path]
    return ":".join((path, *rest))
