"""What a command launches and asks: launchers, wrappers, shells and the scripts they read."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.checks.asked import Meeting, asked_of
from holdfast.core.checks.env.command import launch_of
from holdfast.core.checks.env.shell_text import expanded, is_known, simple_commands

MEGATRON = """#!/bin/bash -l
#SBATCH -N 2
set -euo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
MASTER_ADDR=${MASTER_ADDR:-localhost}
NNODES=${SLURM_NNODES:=1}
source /opt/x/bin/activate   # a comment's quote
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
    --master_addr "$MASTER_ADDR" --master_port 6000
)
ARGS="--save $1 \\
 --load $1 "
if [ -z "$X" ]; then
  python prepare.py
fi
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\
    $ARGS --data 'a b' > log 2>&1
"""


def asked(text, env=None):
    return asked_of(tuple(shlex.split(text)), env or {})


def launch(text, env=None, texts=None):
    return launch_of(tuple(shlex.split(text)), env or {}, texts)


@pytest.mark.parametrize(
    ("command", "launcher", "script", "module"),
    [
        ("torchrun --nproc-per-node 2 train.py --lr 1", "torchrun", "train.py", ""),
        ("/opt/py/bin/torchrun --standalone --nproc_per_node=8 a/train.py", "torchrun", "a/train.py", ""),
        ("python3.11 -u -m torch.distributed.run --nnodes=2 train.py", "torchrun", "train.py", ""),
        ("python -m torch.distributed.launch --use_env t.py", "torchrun", "t.py", ""),
        ("torchrun --nproc-per-node 2 -m pkg.train --lr 1", "torchrun", "", "pkg.train"),
        ("deepspeed --num_gpus=4 --master_port 29601 t.py --deepspeed ds.json", "deepspeed", "t.py", ""),
        ("deepspeed --no_local_rank --module pkg.t", "deepspeed", "", "pkg.t"),
        ("python -m deepspeed.launcher.runner t.py", "deepspeed", "t.py", ""),
        ("accelerate launch --multi_gpu --num_processes 8 t.py", "accelerate", "t.py", ""),
        ("accelerate launch --config_file c.yaml --use_fsdp t.py", "accelerate", "t.py", ""),
        ("python -X faulthandler -W ignore -u t.py -x", "python", "t.py", ""),
        ("python -m pkg.train", "python", "", "pkg.train"),
        ("nohup env -u A B=2 timeout -k 10 5h torchrun t.py", "torchrun", "t.py", ""),
        ("srun -N 2 --ntasks-per-node 8 --export ALL python t.py", "python", "t.py", ""),
        ("mpirun -np 8 -x NCCL_DEBUG=INFO -H a:4,b:4 python t.py", "python", "t.py", ""),
        ("numactl --cpunodebind=0 nice -n 5 python t.py", "python", "t.py", ""),
        ("nsys profile -t cuda,nvtx -o out torchrun --standalone t.py", "torchrun", "t.py", ""),
        ("conda run -n x --no-capture-output torchrun t.py", "torchrun", "t.py", ""),
        ("bash -c 'cd /w && A=1 exec torchrun t.py'", "torchrun", "t.py", ""),
        ("bash -c 'python prepare.py && torchrun t.py | tee log'", "torchrun", "t.py", ""),
        ("sh -c 'set -e; python t.py'", "python", "t.py", ""),
        ("./t.py --x", "python", "./t.py", ""),
    ],
)
def test_the_launcher_and_its_script(command, launcher, script, module):
    found = launch(command)
    assert (found.launcher, found.script, found.module) == (launcher, script, module)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("docker run image torchrun t.py", "docker runs the command on another host or in a container"),
        ("srun --container-image=x torchrun t.py", "container"),
        ("uv run torchrun t.py", "uv chooses"),
        ("torchrun --no-python ./binary", "a program other than Python"),
        ("bash", "from its input"),
        ("", "command is empty"),
    ],
)
def test_what_cannot_be_determined_is_said(command, why):
    assert why in launch(command).unclear


def test_a_shell_says_how_it_starts_and_what_it_does_first():
    found = launch("bash -lc 'conda activate llm && cd /w && OMP_NUM_THREADS=4 torchrun t.py'")
    assert found.shell is not None and found.shell.login and not found.shell.interactive
    assert [(one.raw, one.kind, one.must) for one in found.shell.preparations] == [
        ("conda activate llm", "conda", True)
    ]
    assert (found.env, found.folder) == ({"OMP_NUM_THREADS": "4"}, "/w")


def test_a_file_that_is_sourced_is_only_run_where_it_is_known_to_be_harmless():
    found = launch(
        "bash -c '. ./setup.sh; source ~/x/bin/activate; eval \"$(conda shell.bash hook)\"; python t.py'"
    )
    assert found.shell is not None
    assert [one.kind for one in found.shell.preparations] == ["unknown", "source", "eval"]


def test_what_runs_a_program_of_its_own_is_not_run_to_look():
    found = launch("bash -c 'A=$(rm -rf x); export B=`reboot`; C=1; eval \"$(curl x)\"; python t.py'")
    assert found.shell is not None
    assert [one.raw for one in found.shell.preparations] == ["C=1"]


def test_a_script_is_asked_for_and_then_read():
    command = ("srun", "-N", "2", "bash", "train.sh", "/ckpts/7b")
    assert launch_of(command, {}).reads == "train.sh"
    found = asked_of(command, {"SLURM_NNODES": "2"}, {"train.sh": MEGATRON})
    assert (found.ranks, found.nodes, found.script) == (8, 2, "pretrain_gpt.py")
    assert (found.checkpoint, found.resume) == ("/ckpts/7b", "/ckpts/7b")
    assert found.meeting == Meeting(backend="static", host="localhost", port=6000, rank=0)


@pytest.mark.parametrize(
    ("text", "folder", "script"),
    [
        ('cd "$(dirname "$0")/.."\npython t.py', "/a/b/..", "t.py"),
        ('D=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\ntorchrun $D/t.py', "", "/a/b/t.py"),
        ("cd $(git rev-parse --show-toplevel); python t.py", "$(git rev-parse --show-toplevel)", "t.py"),
        ('python "$HERE/t.py"', "", "$HERE/t.py"),
    ],
)
def test_where_a_script_is_seen_from(text, folder, script):
    found = launch_of(("bash", "/a/b/run.sh"), {}, {"/a/b/run.sh": text})
    assert (found.folder, found.script) == (folder, script)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("if [ -f x ]; then source /x/bin/activate; fi\npython t.py", ["unknown"]),
        ("[ -f x ] && . /x/bin/activate\npython t.py", ["unknown"]),
        ("module load cuda || true\npython t.py", ["set"]),
        ("module load cuda\npython t.py", ["module"]),
        ("usage() {\n conda activate x\n}\npython t.py", ["unknown"]),
        ("cd /w && conda activate x && python t.py", ["conda"]),
    ],
)
def test_what_may_not_be_run_is_not_taken_for_sure(text, kinds):
    found = launch_of(("bash", "-c", text), {})
    assert found.shell is not None and [one.kind for one in found.shell.preparations] == kinds
    assert found.script == "t.py"


@pytest.mark.parametrize(
    ("text", "program"),
    [('exec "$0" -S "$@"', "/opt/python3"), ('"$0" "$1"', "/opt/python3"), ('exec "$TOOL" "$1"', "$TOOL")],
)
def test_the_words_behind_a_shells_text_are_its_arguments_from_0_on(text, program):
    found = launch_of(("sh", "-c", text, "/opt/python3", "/w/train.py"), {})
    assert found.program == program  # never the script alone, which is no program


def test_what_a_branch_sets_is_not_known():
    text = "N=2\nif [ $HOST = a ]; then N=4; M=8; fi\ntorchrun --nproc-per-node $N t.py --num-workers $M"
    assert asked_of(("bash", "-c", text), {}).ranks is None
    text = "N=2\nif [ $HOST = a ]; then N=2; fi\ntorchrun --nproc-per-node $N t.py"
    assert asked_of(("bash", "-c", text), {}).ranks == 2


def test_which_of_several_branches_is_run_cannot_be_determined():
    one = "if [ $N = 1 ]; then torchrun --nproc-per-node 1 t.py; else torchrun --nproc-per-node 8 t.py; fi"
    assert "known only at run time" in launch_of(("bash", "-c", one), {}).unclear
    assert asked_of(("bash", "-c", one), {}).ranks is None
    only = "main() {\n  torchrun --nproc-per-node 8 t.py\n}\nmain\n"
    assert asked_of(("bash", "-c", only), {}).ranks == 8


def test_what_only_a_run_can_tell_keeps_the_rest_in_its_place():
    text = """
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head=${nodes[0]}
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export NCCL_SOCKET_IFNAME=$(ip route | awk '{print $5}')
export PYTHONPATH="/src:${PYTHONPATH}"
DIR=`pwd`
MODEL=(
    --layers 96  # or more (or fewer)
    --save $DIR/ckpt
)
srun torchrun --nnodes=$SLURM_NNODES --node_rank=$SLURM_NODEID --nproc_per_node=4 \\
    --master_addr=$MASTER_ADDR --master_port=8344 $DIR/train.py ${MODEL[@]} "$@"
"""
    found = launch_of(("bash", "-c", text), {})
    assert (found.script, found.wrappers) == ("./train.py", ("srun",))
    assert found.env == {"PYTHONPATH": "/src"}
    said = asked_of(("bash", "-c", text), {})
    assert (said.ranks, said.checkpoint) == (4, "./ckpt")
    assert said.meeting is not None and (said.meeting.port, said.meeting.rank) == (8344, None)
    assert not is_known(said.meeting.host)


def test_items_of_an_array():
    values = {"A": ("a", "b"), "S": "s"}
    assert expanded("${A[1]}", values) == ["b"]
    assert expanded("${A[9]}${S[0]}", values) == ["s"]
    assert expanded("${A[$i]}", values) == ["${A[$i]}"]


def test_a_script_that_calls_another():
    texts = {"run.sh": "bash inner.sh 4\n", "inner.sh": "torchrun --nproc-per-node $1 t.py\n"}
    assert launch_of(("bash", "run.sh"), {}, {"run.sh": texts["run.sh"]}).reads == "inner.sh"
    assert asked_of(("bash", "run.sh"), {}, texts).ranks == 4


def test_a_script_that_calls_itself_has_an_end():
    assert launch_of(("bash", "a.sh"), {}, {"a.sh": "bash a.sh\n"}).launcher == ""


@pytest.mark.parametrize(
    ("command", "ranks", "nodes"),
    [
        ("torchrun --nproc-per-node 8 t.py", 8, 1),
        ("torchrun t.py", 1, 1),
        ("torchrun --nproc-per-node gpu t.py", None, 1),
        ("torchrun --nnodes=1:4 --nproc_per_node=8 t.py", 8, 4),
        ("accelerate launch --num_processes 16 --num_machines 2 t.py", 8, 2),
        ("deepspeed --include localhost:0,1,3 t.py", 3, 1),
        ("deepspeed --include localhost:$1 t.py", None, 1),
        ("deepspeed --num_nodes 2 --num_gpus 8 t.py", 8, 2),
        ("srun --nodes=4 --ntasks-per-node=8 python t.py", 8, 4),
        ("python t.py", None, 1),
    ],
)
def test_how_many_ranks_a_node_gets(command, ranks, nodes):
    found = asked(command)
    assert (found.ranks, found.nodes) == (ranks, nodes)


@pytest.mark.parametrize(
    ("command", "env", "meeting"),
    [
        ("torchrun --standalone t.py", {}, Meeting(backend="c10d", host="localhost", port=0, rank=0)),
        ("torchrun t.py", {}, Meeting(backend="static", host="127.0.0.1", port=29500, rank=0, usual=True)),
        (
            "torchrun --nnodes 2 --node-rank 1 --master-addr h --master-port 5 t.py",
            {},
            Meeting(backend="static", host="h", port=5, rank=1),
        ),
        (
            "torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint h t.py",
            {},
            Meeting(backend="c10d", host="h", port=29400),
        ),
        (
            "torchrun --rdzv-backend c10d --rdzv-endpoint [fe80::1]:7 t.py",
            {},
            Meeting(backend="c10d", host="fe80::1", port=7),
        ),
        (
            "torchrun t.py",
            {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "h:9"},
            Meeting(backend="c10d", host="h", port=9),
        ),
        ("deepspeed --master_port $((1000+RANDOM)) t.py", {}, Meeting(backend="static", port=0, rank=0)),
        (
            "torchrun --rdzv-backend c10d --rdzv-endpoint h:$PORT t.py",
            {},
            Meeting(backend="c10d", host="h", port=0),
        ),
        ("deepspeed --master_port 7 t.py", {}, Meeting(backend="static", port=7, rank=0)),
        (
            "python t.py",
            {"MASTER_ADDR": "h", "MASTER_PORT": "7", "WORLD_SIZE": "2", "RANK": "0"},
            Meeting(backend="env", host="h", port=7, rank=0),
        ),
        ("python t.py", {"MASTER_PORT": "7"}, None),
    ],
)
def test_where_the_workers_meet(command, env, meeting):
    assert asked(command, env).meeting == meeting


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        ("python t.py --save ckpt", "ckpt"),
        ("python t.py --save /ckpt", "/ckpt"),
        ("python t.py --save s3://bucket/x", ""),
        ("bash -c 'cd w && python t.py --save ./ckpt'", "w/ckpt"),
        ("bash -c 'cd w && python t.py --save /ckpt'", "/ckpt"),
        ("bash -c 'cd $(git rev-parse x) && python t.py --save ckpt'", ""),
        ("bash -c 'python t.py --save $OUT/x'", ""),
    ],
)
def test_where_checkpoints_go(command, folder):
    assert asked(command).checkpoint == folder


def test_values_are_put_in_as_a_shell_does():
    values = {"A": "x y", "L": ("--a", "b c"), "E": ""}
    assert expanded("$A", values) == ["x", "y"]
    assert expanded('"$A"', values) == ["x y"]
    assert expanded("'$A'", values) == ["$A"]
    assert expanded('"${L[@]}"', values) == ["--a", "b c"]
    assert expanded("pre${A}post", values) == ["prex", "ypost"]
    assert expanded("${N:-z}/$E", values) == ["z/"]
    assert expanded("$N", values) == ["$N"]
    assert expanded("$(date +%s)", values) == ["$(date +%s)"]


def test_commands_of_a_text():
    found = simple_commands("A=1 b c >out 2>&1 & d || e;f <<<x # g\n", {})
    assert [(one.words, one.then) for one in found] == [
        (("b", "c"), "&"),
        (("d",), "||"),
        (("e",), ";"),
        (("f",), ";"),
    ]
    assert [one.is_sure for one in found] == [True, True, False, True]
    assert found[0].sets == {"A": "1"}


@given(st.text(alphabet="ab$(){}[]'\"`\\ \n;&|<>=#@*:-!/.1", max_size=60))
def test_any_text_has_an_answer(text):
    simple_commands(text, {"a": "b"})
    launch_of(("bash", "-c", text), {})
    asked_of(("bash", "x.sh"), {}, {"x.sh": text})


@given(
    st.lists(
        st.sampled_from(
            (
                "torchrun",
                "-m",
                "--a",
                "--a=b",
                "-c",
                "bash",
                "srun",
                "t.py",
                "env",
                "x=1",
                "-l",
                "conda",
                "run",
                "",
            )
        ),
        max_size=8,
    )
)
def test_any_words_have_an_answer(words):
    asked_of(tuple(words), {})
