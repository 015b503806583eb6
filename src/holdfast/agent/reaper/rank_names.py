"""Determines from the environment variables of a process which rank it is: one table for all launchers.

Pure: reads no file and no process. Used by the shim inside a process (with `os.environ`) and by the reaper
from outside (with /proc/PID/environ), so both give the same answer. The shim runs under the training's Python
and loads this file by its path: syntax of Python 3.6, nothing imported at the top.

source: torchrun (torch.distributed.run), mpirun(1) of Open MPI, MPICH's Hydra, PMIx, MVAPICH, HPE Cray PALS,
flux-run(1), IBM's jsrun, horovodrun, paddle.distributed.launch, MindSpore's msrun and rank tables, JAX, Cloud
TPU, srun(1), TF_CONFIG of tf.distribute, and the subprocess launcher of PyTorch Lightning
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Get = Callable[[str], str]  # a variable's value; "" where it is not set

# Who sets them: rank, local rank, world size, ranks on this node. "": has none. The first family that names a rank counts.
FAMILIES = (
    ("torch", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("mvapich", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("horovod", "HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"),
    ("pmi", "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("pals", "PALS_RANKID", "PALS_LOCAL_RANKID", "PALS_SIZE", "PALS_LOCAL_SIZE"),
    ("flux", "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE", ""),
    ("jsm", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_SIZE", ""),
    ("pmix", "PMIX_RANK", "", "PMIX_SIZE", ""),
    ("paddle", "PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE", "PADDLE_TRAINERS_NUM", "PADDLE_LOCAL_SIZE"),
    ("ascend", "RANK_ID", "LOCAL_RANK_ID", "RANK_SIZE", "LOCAL_RANK_SIZE"),
    ("generic", "GLOBAL_RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("jax", "JAX_PROCESS_ID", "JAX_LOCAL_PROCESS_ID", "JAX_NUM_PROCESSES", ""),
)  # fmt: skip
SLURM = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE")
BATCH_STEPS_FROM = 0xFFFFFFF0  # batch, extern and interactive steps: no srun has started them
TENSORFLOW_CHIEFS = ("chief", "master")


def named(get):
    # type: (Get) -> dict[str, object] | None
    """Returns the rank that an environment names: its number, the sizes (None if not given), and the family
    of variables of its launcher. None if the environment names no rank.

    `get`: returns the value of a variable. `direct` in the result: the variables are those of a single
    process, as torchrun sets them, and not of all processes below a task.
    """
    for family, rank, local, size, here in FAMILIES:
        number = number_of(get(rank))
        if number is None:
            continue
        if family == "jax" and get("JAX_NUM_PROCESSES") in ("", "1"):
            continue
        direct = family in ("torch", "generic") and number_of(get(local)) is not None
        return _fields(get, family, number, get(local), get(size), get(here), direct=direct)
    return _of_slurm(get) or _of_lightning(get) or _of_tpu(get) or _of_tensorflow(get)


def number_of(text):
    # type: (str) -> int | None
    """Returns the rank number that `text` contains; None if it is not a valid number."""
    return int(text) if 0 < len(text) < 10 and all(one in "0123456789" for one in text) else None


def _fields(get, family, rank, local, size, here, direct=False):
    # type: (Get, str, int, str, str, str, bool) -> dict[str, object]
    return {
        "rank": rank,
        "local_rank": number_of(local),
        "world_size": number_of(size),
        "local_world_size": number_of(here),
        "master_addr": get("MASTER_ADDR"),
        "master_port": number_of(get("MASTER_PORT")),
        "source": family,
        "direct": direct,
    }


def _of_slurm(get):
    # type: (Get) -> dict[str, object] | None
    """Returns the rank of a task in a Slurm step of several tasks.

    A batch script itself has SLURM_PROCID=0 too.
    """
    rank, local, size, here = (get(name) for name in SLURM)
    step = get("SLURM_STEP_ID")
    if not step.isdigit() or int(step) >= BATCH_STEPS_FROM or number_of(rank) is None:
        return None
    size = size or get("SLURM_NTASKS")
    if (number_of(size) or 0) < 2:
        return None
    return _fields(get, "slurm", int(rank), local, size, here)


def _of_lightning(get):
    # type: (Get) -> dict[str, object] | None
    """Returns the rank from LOCAL_RANK, NODE_RANK and WORLD_SIZE, which Lightning sets for processes that
    it starts.
    """
    local, node, size = (number_of(get(name)) for name in ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE"))
    nodes = number_of(get("NNODES")) or 1
    if local is None or node is None or not size or size % nodes or node >= nodes:
        return None
    here = size // nodes
    return _fields(get, "lightning", node * here + local, str(local), str(size), str(here), direct=True)


def _of_tpu(get):
    # type: (Get) -> dict[str, object] | None
    """Returns the rank on Cloud TPU, where each host of a slice has one process."""
    number, hosts = number_of(get("TPU_WORKER_ID")), get("TPU_WORKER_HOSTNAMES").split(",")
    if number is None or number >= len(hosts):
        return None
    return _fields(get, "tpu", number, "0", str(len(hosts)), "1")


def _of_tensorflow(get):
    # type: (Get) -> dict[str, object] | None
    """Returns the rank from TF_CONFIG.

    Example: {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}}
    """
    text = get("TF_CONFIG")
    if not text:
        return None
    import json  # here only: it would cost every Python process of the job

    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        chiefs = sum(len(cluster.get(kind) or ()) for kind in TENSORFLOW_CHIEFS)
        workers = len(cluster.get("worker") or ())
        kind, index = task["type"], int(task["index"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if kind not in TENSORFLOW_CHIEFS + ("worker",) or index < 0:
        return None
    rank = index + (chiefs if kind == "worker" else 0)
    return _fields(get, "tensorflow", rank, "", str(chiefs + workers), "")
