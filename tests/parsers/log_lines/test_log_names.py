"""What the path of a log tells, and what it does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.matches import Writer
from holdfast.parsers.log_lines.log_names import writer_of_name

NAMES = (
    ("run_ab12/attempt_0/3/stderr.log", Writer(local_rank=3)),
    ("attempt_1/12/stdout.log.gz", Writer(local_rank=12)),
    ("rank-5.log", Writer(rank=5)),
    ("logs/rank_5", Writer(rank=5)),
    ("x_rank16.txt", Writer(rank=16)),
    ("stderr_rank3.txt.1", Writer(rank=3)),
    ("rank_0_of_8.log", Writer(rank=0)),
    ("worker-0/rank-5.log", Writer(worker=0, rank=5)),
    ("logs.tar.gz/worker-0/rank-1.log", Writer(worker=0, rank=1)),
    ("worker2.log", Writer(worker=2)),
    ("node_rank_2/local_rank_3.log", Writer(worker=2, local_rank=3)),
    ("localrank3.err", Writer(local_rank=3)),
    ("node_3/x.log", Writer(worker=3)),
    ("node003/dmesg.log", Writer(host="node003")),
    ("job-123-node-gpu07-rank16.txt", Writer(host="gpu07", rank=16)),
    ("log.gpu-07", Writer(host="gpu-07")),
    ("nccl.gpu-07.4242.log", Writer(host="gpu-07")),
    ("slurm-12-compute-hpc-node-73.out", Writer(host="compute-hpc-node-73")),
    ("ip-10-0-0-7/dmesg.txt", Writer(host="ip-10-0-0-7")),
    ("atlas-b12.dmesg", Writer(host="atlas-b12")),
    ("syslog-atlas-b12.txt", Writer(host="atlas-b12")),
    ("jean-zay-r7.journalctl.json", Writer(host="jean-zay-r7")),
    ("dmesg.0", Writer()),
    ("kern.log.1", Writer()),
    ("slurm-1234-dmesg.txt", Writer()),
    ("journal-b0.txt", Writer()),
    ("10.0.0.3/kern.log", Writer(host="10.0.0.3")),
    ("nid001234.out", Writer(host="nid001234")),
    ("llama-ft-worker-1.log", Writer(host="llama-ft-worker-1", worker=1)),
    ("C:\\logs\\rank_7\\out.txt", Writer(rank=7)),
    ("train_2026-11-20_21-45.log", Writer(stamp_s=1795132800.0)),
)


@pytest.mark.parametrize(("name", "writer"), NAMES)
def test_names(name, writer):
    assert writer_of_name(name) == writer


@pytest.mark.parametrize(
    "name",
    [
        "slurm-123_4.out", "slurm-1234.out", "nohup.out", "log.txt", "3.log", "train.py.log", "step1000.log",
        "tp_rank_3.log", "mp_rank_00", "lora_rank_16.log", "rank8-lora.log", "rank0-7.log", "ranks.txt",
        "exp_gpu64.log", "v100.log", "a100-80gb.txt", "llama-7b.log", "dataloader_worker3.log", "checkpoint-500",
        "gpu3.log", "prank3.log", "", "/", "rank99999999999999",
    ],
)  # fmt: skip
def test_names_that_tell_nothing(name):
    assert writer_of_name(name) == Writer()


@given(st.text(max_size=300))
def test_never_raises(name):
    writer_of_name(name)
