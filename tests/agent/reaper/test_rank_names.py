"""Which rank an environment names, for each launcher as its documents have it."""

import json

import pytest

from holdfast.agent.reaper.rank_names import named

SLURM = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_ID": "0"}
TENSORFLOW = {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}}

NAMED = {
    "torchrun": ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2"}, 3, 1, 8),
    "RANK alone": ({"RANK": "3"}, 3, None, None),
    "Open MPI": (
        {
            "OMPI_COMM_WORLD_RANK": "3",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "8",
            "PMIX_RANK": "3",
        },
        3,
        1,
        8,
    ),
    "MPICH": ({"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1"}, 3, 1, 8),
    "MVAPICH": (
        {"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_SIZE": "8", "MV2_COMM_WORLD_LOCAL_RANK": "1"},
        3,
        1,
        8,
    ),
    "PALS": ({"PALS_RANKID": "3"}, 3, None, None),
    "Flux": ({"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "8", "FLUX_TASK_LOCAL_ID": "1"}, 3, 1, 8),
    "jsrun": (
        {"JSM_NAMESPACE_RANK": "3", "JSM_NAMESPACE_SIZE": "8", "JSM_NAMESPACE_LOCAL_RANK": "1"},
        3,
        1,
        8,
    ),
    "Horovod": ({"HOROVOD_RANK": "3", "HOROVOD_SIZE": "8", "HOROVOD_LOCAL_RANK": "1"}, 3, 1, 8),
    "Ascend": ({"RANK_ID": "3", "RANK_SIZE": "8"}, 3, None, 8),
    "Paddle": ({"PADDLE_TRAINER_ID": "3", "PADDLE_TRAINERS_NUM": "8"}, 3, None, 8),
    "JAX": ({"JAX_PROCESS_ID": "3", "JAX_NUM_PROCESSES": "8"}, 3, None, 8),
    "srun": (SLURM, 3, 1, 8),
    "Lightning": ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2", "NNODES": "1"}, 1, 1, 2),
    "Lightning, second node": (
        {"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "4", "NNODES": "2"},
        3,
        1,
        4,
    ),
    "TPU": ({"TPU_WORKER_ID": "3", "TPU_WORKER_HOSTNAMES": "a,b,c,d"}, 3, 0, 4),
    "TF_CONFIG": ({"TF_CONFIG": json.dumps(TENSORFLOW)}, 2, None, 3),
}


def of(env):
    return named(lambda key: env.get(key, ""))


@pytest.mark.parametrize(("env", "rank", "local_rank", "size"), NAMED.values(), ids=NAMED.keys())
def test_a_launcher_names_the_rank(env, rank, local_rank, size):
    found = of(env)
    assert (found["rank"], found["local_rank"], found["world_size"]) == (rank, local_rank, size)


NOT_NAMED = {
    "nothing": {},
    "nonsense": {"RANK": "first"},
    "negative": {"RANK": "-1"},
    "long": {"RANK": "9" * 50},
    "a batch script": SLURM | {"SLURM_STEP_ID": str(0xFFFFFFFB)},
    "one task": SLURM | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"},
    "what Holdfast sets": {"NNODES": "1", "NODE_RANK": "0", "MASTER_PORT": "29500"},
    "JAX alone": {"JAX_PROCESS_ID": "0"},
    "broken TF_CONFIG": {"TF_CONFIG": "{"},
    "strange TF_CONFIG": {"TF_CONFIG": '["a"]'},
    "a parameter server": {"TF_CONFIG": json.dumps(TENSORFLOW | {"task": {"type": "ps", "index": 0}})},
}


@pytest.mark.parametrize("env", NOT_NAMED.values(), ids=NOT_NAMED.keys())
def test_no_rank_is_named(env):
    assert of(env) is None


def test_torchruns_variables_win_over_those_of_mpi_around_it():
    env = NAMED["Open MPI"][0] | {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "16"}
    assert (of(env)["rank"], of(env)["source"], of(env)["direct"]) == (5, "torch", True)
    assert not of(NAMED["Open MPI"][0])["direct"]
