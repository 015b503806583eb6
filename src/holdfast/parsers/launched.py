"""Determines worker number and worker count of a process from the environment variables that its launcher set. Pure.

    SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_STEP_NODELIST=n[1-8] SLURM_JOB_ID=4242 SLURM_STEP_ID=0      of srun
    OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8                                                   of Open MPI's mpirun
    PMI_RANK=3 PMI_SIZE=8                                                            of MPICH, Intel MPI and Cray's aprun
    NODE_RANK=3 NNODES=8                                                   of platforms, and of people who set it by hand

source: srun(1), OUTPUT ENVIRONMENT VARIABLES; mpirun(1) of Open MPI; PMI_RANK of MPICH's Hydra
"""

import zlib
from collections.abc import Mapping

from msgspec import Struct

from holdfast.slurm_names import BadNodeList, expanded

LOOPBACK = "127.0.0.1"
PORTS_FROM, PORTS = 20_000, 12_000  # below the kernel's range of ephemeral ports
BATCH_STEPS_FROM = 0xFFFFFFF0  # batch, extern and interactive steps, which srun did not start
# By launcher, the variables with the worker's index, the number of workers, and the number on this node.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_NTASKS", ""),
    ("NODE_RANK", "NNODES", ""),
)
_JOB_IDS = ("PBS_JOBID", "LSB_JOBID", "JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")


class Launched(Struct, frozen=True, kw_only=True):
    """The position of a worker among those that a launcher started: worker `worker` of `workers`.

    `job`: name of the job, equal in all workers; empty if unknown. `address`: address of worker 0; empty if unknown.
    `port`: equal in all workers, derived from the job's id.
    """

    worker: int = 0
    workers: int = 1
    job: str = ""
    address: str = LOOPBACK
    port: int = PORTS_FROM


def launched(env: Mapping[str, str]) -> Launched:
    """Returns the worker that the environment describes; without such variables, one worker of one."""
    job = _job(env)
    for index, count, here in _LAUNCHERS:
        worker, workers = _number(env.get(index)), _number(env.get(count))
        if worker is None or workers is None or worker >= workers:
            continue
        if index == "SLURM_PROCID" and not _in_step(env):
            continue
        return Launched(
            worker=worker,
            workers=workers,
            job=job,
            address=LOOPBACK if workers in (1, _number(env.get(here))) else _first_node(env),
            port=PORTS_FROM + zlib.crc32(job.encode()) % PORTS,
        )
    return Launched(job=job if _in_step(env) else "")


def _job(env: Mapping[str, str]) -> str:
    job = env.get("SLURM_JOB_ID", "")
    if _number(job) is not None:
        step, again = env.get("SLURM_STEP_ID", ""), env.get("SLURM_RESTART_COUNT", "0")
        name = f"slurm-{job}.{step}" if _in_step(env) else f"slurm-{job}"
        return f"{name}-{again}" if again not in ("", "0") else name
    found = next((env[name] for name in _JOB_IDS if env.get(name)), "")
    found = found or ":".join(filter(None, (env.get("MASTER_ADDR"), env.get("MASTER_PORT"))))
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in found)
    return f"job-{plain[:56]}" if plain.strip("-") else ""


def _in_step(env: Mapping[str, str]) -> bool:
    step = _number(env.get("SLURM_STEP_ID"))
    return step is not None and step < BATCH_STEPS_FROM


def _first_node(env: Mapping[str, str]) -> str:
    """Returns the first node of the step or host list, on which srun and mpirun start task 0."""
    try:
        names = expanded(env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or "")
    except BadNodeList:
        return ""
    return names[0] if names else ""


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and len(text) < 12 else None
