"""Which worker a launcher has made of a process."""

import pytest

from holdfast.parsers.launched import LOOPBACK, PORTS, PORTS_FROM, launched

STEP = {
    "SLURM_JOB_ID": "4242",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NODELIST": "gpu-[007-014]",
    "SLURM_JOB_NODELIST": "gpu-[001-014]",
}


def test_a_task_of_srun():
    one = launched(STEP)
    assert (one.worker, one.workers, one.job, one.address) == (3, 8, "slurm-4242.0", "gpu-007")
    assert PORTS_FROM <= one.port < PORTS_FROM + PORTS
    assert launched(STEP | {"SLURM_PROCID": "0"}).port == one.port
    assert launched(STEP | {"SLURM_RESTART_COUNT": "2"}).job == "slurm-4242.0-2"
    assert launched(STEP | {"SLURM_STEP_ID": "1"}).job == "slurm-4242.1"


def test_a_batch_script_is_no_task():
    """Its environment has a task's names, too, but nobody has started it several times."""
    for step in ("", "4294967291"):
        one = launched(STEP | {"SLURM_STEP_ID": step})
        assert (one.worker, one.workers, one.job) == (0, 1, "")


def test_open_mpi_inside_a_slurm_job_is_the_nearer_one():
    one = launched(STEP | {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})
    assert (one.worker, one.workers, one.address) == (1, 2, "gpu-007")
    near = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    assert launched(near).address == LOOPBACK


def test_others():
    one = launched({"PMI_RANK": "0", "PMI_SIZE": "4", "PBS_JOBID": "77.server"})
    assert (one.worker, one.workers, one.job, one.address) == (0, 4, "job-77-server", "")
    by_hand = {"NODE_RANK": "1", "NNODES": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    assert (launched(by_hand).worker, launched(by_hand).job) == (1, "job-10-0-0-1-29500")
    assert (launched({}).worker, launched({}).workers, launched({}).address) == (0, 1, LOOPBACK)


@pytest.mark.parametrize(
    "env",
    [
        {"SLURM_PROCID": "x", "SLURM_NTASKS": "8", "SLURM_STEP_ID": "0"},
        {"SLURM_PROCID": "8", "SLURM_NTASKS": "8", "SLURM_STEP_ID": "0"},
        {"NODE_RANK": "-1", "NNODES": "2"},
        {"PMI_RANK": "9" * 5000, "PMI_SIZE": "4"},
        {"SLURM_JOB_ID": "\n", "SLURM_STEP_ID": "0"},
    ],
)
def test_nonsense_makes_one_worker_of_one(env):
    assert launched(env).workers == 1


def test_a_list_of_nodes_that_cannot_be_read_leaves_the_address_open():
    assert launched(STEP | {"SLURM_STEP_NODELIST": "n[1-"}).address == ""
