"""Who wrote a line, by each launcher's, logger's and kernel's head; and what is none."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.model.matches import Writer
from holdfast.parsers.log_lines.line_heads import labels_are_nodes, split_head, text_of, writer_of

AT_S = 1795211136.0  # 2026-11-20 21:45:36 UTC
YEAR_2026 = Writer(stamp_s=AT_S)

HEADS = (
    ("[default3]:[rank11]: text", Writer(rank=11, local_rank=3)),
    ("[rank0]:[rank0]: text", Writer(rank=0)),
    ("[Rank 3] text", Writer(rank=3)),
    ("[rank: 3] text", Writer(rank=3)),
    ("[RANK 3] text", Writer(rank=3)),
    ("[default12|4]:text", Writer(rank=12, local_rank=4)),
    ("[trainer1]:text", Writer(local_rank=1)),
    ("rank3[814][MainThread]: text", Writer(rank=3, pid=814)),
    ("5: text", Writer(rank=5)),
    ("  7: text", Writer(rank=7)),
    ("13: [rank13]: text", Writer(rank=13)),
    ("1: [rank13]: text", Writer(rank=13, worker=1)),
    ("1: [default3]:text", Writer(local_rank=3, worker=1)),
    ("[1,3]<stdout>:text", Writer(rank=3)),
    ("[prterun-gpu-07-99@1,3]<stderr>: text", Writer(rank=3)),
    ("[3]<stderr>:text", Writer(rank=3)),
    ("Fri Nov 20 21:45:36 2026[3]<stdout>:text", Writer(rank=3, stamp_s=AT_S)),
    ("gpu-07: text", Writer(host="gpu-07")),
    ("worker-1: [2026-11-20 21:45:36,000] [INFO] [launch.py:256:main] text", Writer(host="worker-1", stamp_s=AT_S)),
    ("compute-a-73: text", Writer(host="compute-a-73")),
    ("r6i4n5: text", Writer(host="r6i4n5")),
    ("[gpu-07] [INFO] text", Writer(host="gpu-07")),
    ("Nov 20 21:45:36 SERVER kernel: text", Writer(host="SERVER", stamp_s=AT_S)),
    ("Nov 20 21:45:36 GPU7 kernel: text", Writer(host="GPU7", stamp_s=AT_S)),
    ("    Nov 20 21:45:36 gpu-07 kernel: text", Writer(host="gpu-07", stamp_s=AT_S)),
    ("nov. 20 21:45:36 gpu-07 kernel: text", Writer(host="gpu-07", stamp_s=AT_S)),
    ("11月 20 21:45:36 gpu-07 kernel: text", Writer(host="gpu-07", stamp_s=AT_S)),
    ("[pod/job-worker-1/main] text", Writer(host="job-worker-1")),
    ("job-worker-1 pytorch text", Writer(host="job-worker-1")),
    ("job-6f9c4d7b8-x2x4k › main text", Writer(host="job-6f9c4d7b8-x2x4k")),
    ("trainer-1  | text", Writer(host="trainer-1")),
    ("(pid=36, ip=10.0.3.9) text", Writer(pid=36, host="10.0.3.9")),
    ("\x1b[36m(WorkerDict pid=58)\x1b[0m text", Writer(pid=58)),
    ("(TrainWorker pid=58, ip=10.0.3.9) text", Writer(pid=58, host="10.0.3.9")),
    ("(raylet, ip=10.0.3.9) text", Writer(host="10.0.3.9")),
    ("(PolicyWorker[rank=9] pid=30) [rank9]:text", Writer(rank=9, pid=30)),
    ("(VllmWorker rank=2 pid=41) text", Writer(rank=2, pid=41)),
    ("(Worker_TP2 pid=41) text", Writer(rank=2, pid=41)),
    ("(Worker_DP1_TP2 pid=41) text", Writer(pid=41)),
    ("(EngineCore_DP5 pid=41) ERROR 11-20 21:45:36 [core.py:11] text", Writer(pid=41, stamp_s=AT_S)),
    ("gpu-07:514:651 [1] text", Writer(host="gpu-07", pid=514, device="1")),
    ("gpu-07:514:651 [-1] text", Writer(host="gpu-07", pid=514)),
    ("0: gpu-07:514:651 [3] text", Writer(host="gpu-07", pid=514, device="3", worker=0)),
    ("3: gpu-07:514:651 [3] text", Writer(rank=3, host="gpu-07", pid=514, device="3")),
    ("[gpu-07:514] text", Writer(host="gpu-07", pid=514)),
    ("[gpu-07:514  :0:651] text", Writer(host="gpu-07", pid=514)),
    ("W1120 21:45:36.000000 2197 torch/api.py:1014] text", Writer(pid=2197, stamp_s=AT_S)),
    ("[rank2]:[E1120 21:45:36.000000000 X.cpp:616] [PG ID 2 PG GUID 3 Rank 1] text", None),
    ("[E1120 21:45:36.000000000 X.cpp:616] [PG ID 0 PG GUID 0(default_pg) Rank 1] text", Writer(rank=1, stamp_s=AT_S)),
    ("[E1120 21:45:36.000000000 X.cpp:616] [PG 0 (default_pg) Rank 1] text", Writer(rank=1, stamp_s=AT_S)),
    ("[E X.cpp:916] [Rank 1] text", Writer(rank=1)),
    ("[rank0]:[titan] 2026-11-20 21:45:36,000 - root - INFO - text", Writer(rank=0, stamp_s=AT_S)),
    ("2026-11-20 21:45:36.000\tbox:3\tolmo.util:168\tINFO\ttext", Writer(host="box", local_rank=3, stamp_s=AT_S)),
    ("2026-11-20 21:45:36.000 | ERROR    | a.b:main:12 - text", Writer(stamp_s=AT_S)),
    ("[WARNING|trainer.py:765] 2026-11-20 21:45:36,000 >> text", Writer(stamp_s=AT_S)),
    ("[NeMo I 2026-11-20 21:45:36 megatron_init:265] text", Writer(stamp_s=AT_S)),
    ("2026-11-20T21:45:36 - 3 - levanter.x - distributed.py:236 - INFO :: text", Writer(rank=3, stamp_s=AT_S)),
    ("2026-11-20T21:45:36.000Z: [1,12]<stdout>:gpu-07:815:864 [1] text", Writer(rank=12, host="gpu-07", device="1", pid=815, stamp_s=AT_S)),
    ("2026-11-20 21:45:36.000000: I tensorflow/core/util/port.cc:113] text", Writer(stamp_s=AT_S)),
    ("2026-11-20 21:45:36,000\tINFO scripts.py:843 -- text", Writer(stamp_s=AT_S)),
    ("    [rank3]: text", Writer(rank=3)),
    ("2026-11-20 21:45:36 10.4.5.6 [0] text", Writer(host="10.4.5.6", stamp_s=AT_S)),
    ("2026-11-20 21:45:36,000 Node[2] text", Writer(worker=2, stamp_s=AT_S)),
    ("2026-11-20T21:45:36.000000001Z stdout F [rank1]: text", Writer(rank=1, stamp_s=AT_S + 1e-9)),
    ("[ERROR] HCCL(695,python3):2026-11-20-21:45:36.000.000 [heart.cc:53] text", Writer(pid=695, stamp_s=AT_S)),
    ("Nov 20 21:45:36 gpu-07 kernel: [   12.500000] text", Writer(host="gpu-07", stamp_s=AT_S, uptime_s=12.5)),
    ("20 Nov, 21:45:36 gpu-07 kernel: text", Writer(host="gpu-07", stamp_s=AT_S)),
    ("Nov 20 21:45:36 gpu-07 slurmd[81]: text", Writer(host="gpu-07", pid=81, stamp_s=AT_S)),
    ("2026-11-20T21:45:36+0000 gpu-07 kernel: text", Writer(host="gpu-07", stamp_s=AT_S)),
    ("1795211136.000000 gpu-07 kernel: text", Writer(host="gpu-07", stamp_s=AT_S)),
    ("<34>1 2026-11-20T21:45:36.000Z gpu-07 su 12 ID47 - text", Writer(host="gpu-07", pid=12, stamp_s=AT_S)),
    ("[   12.500000] gpu-07 kernel: text", Writer(host="gpu-07", uptime_s=12.5)),
    ("<6>[   12.500000][   T31] text", Writer(uptime_s=12.5)),
    ("2026-11-20T21:45:36.000000001Z [   12.500000] text", Writer(stamp_s=AT_S + 1e-9, uptime_s=12.5)),
    ("kern  :warn  : 2026-11-20T21:45:36,000000+00:00 text", Writer(stamp_s=AT_S)),
    ("kern  :warning : [Fri Nov 20 21:45:36 2026] text", Writer(stamp_s=AT_S)),
    ("kern.alert <1> 2026-11-20T21:45:36+00:00 g7 kernel: text", Writer(host="g7", stamp_s=AT_S)),
    ("10.0.0.7: kern:     err: [2026-11-20T21:45:36.000Z]: text", Writer(host="10.0.0.7", stamp_s=AT_S)),
    ("gpu-07: kern: warning: [2026-11-20T21:45:36.000Z]: text", Writer(host="gpu-07", stamp_s=AT_S)),
    ("Nov 20 21:45:36.000000 gpu-07 INFO kernel: [   12.500000] text", Writer(host="gpu-07", stamp_s=AT_S, uptime_s=12.5)),
    ("[Fri Nov 20 21:45:36 2026] text", Writer(stamp_s=AT_S)),
    ("6,1234,12500000,-;text", Writer(uptime_s=12.5)),
    ("4,1235,12500000,c,caller=T31;text", Writer(uptime_s=12.5)),
    ("srun: error: gpu-07: task 5: text", Writer(host="gpu-07", rank=5)),
    ("srun: error: gpu-07: tasks 0-3,6: text", Writer(host="gpu-07")),
)  # fmt: skip


@pytest.mark.parametrize(("line", "writer"), HEADS)
def test_who_and_when(line, writer):
    if writer is None:  # the rank within a smaller group is not the rank
        assert writer_of(line.encode()).rank == 2
        return
    assert writer_of(line.encode(), YEAR_2026) == writer
    assert text_of(line.encode()) == b"text"


def test_what_srun_says_behind_a_progress_bar_is_srun_s():
    line = b"Epoch 0:   0%|     | 0/9 [00:13<?, ?it/s]srun: error: gpu-07: task 5: Exited with exit code 1"
    assert writer_of(line) == Writer(host="gpu-07", rank=5)


def test_a_slurm_notice_says_where_and_when():
    line = b"slurmstepd: error: *** STEP 9.1 ON gpu-07 CANCELLED AT 2026-11-20T21:45:36 DUE TO TIME LIMIT ***"
    assert writer_of(line) == Writer(host="gpu-07", stamp_s=AT_S)
    assert text_of(line).startswith(b"*** STEP")


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: text",
        "step3: 2",
        "top5: 93.1",
        "fp16: True",
        "mlx5_0: link down",
        "gpu0: 71 C",
        "eth0: link is not ready",
        "    12: 'a',",
        "[1]:",
        "Epoch: [0]  [1000/4572]  eta: 0:06:14",
        "[15:02:33<05:08,  6.70s/it]",
        "0:06:14 left",
        "hello world",
        "main.py:12:5: error",
        "[PG ID 2 PG GUID 3 Rank 2] text",
        '{"loss": 0.5}',
        "{broken",
    ],
)
def test_nobody(line):
    assert writer_of(line.encode()) == Writer()
    assert text_of(line.encode()) == line.encode() or line.startswith("[PG")


def test_journal_docker_and_loggers_in_json():
    journal = {"__REALTIME_TIMESTAMP": "1795211136000000", "_HOSTNAME": "gpu-07", "MESSAGE": "[    1.5] text"}
    assert writer_of(json.dumps(journal).encode()) == Writer(host="gpu-07", stamp_s=AT_S, uptime_s=1.5)
    assert text_of(json.dumps(journal).encode()) == b"text"
    as_bytes = json.dumps({**journal, "MESSAGE": [*b"te\xffxt"]}).encode()
    assert text_of(as_bytes) == b"te\xffxt"
    docker = {"log": "[rank2]: text\n", "stream": "stderr", "time": "2026-11-20T21:45:36.0Z"}
    assert writer_of(json.dumps(docker).encode()) == Writer(rank=2, stamp_s=AT_S)
    logger = {"ts": AT_S, "rank": 3, "hostname": "gpu-07", "msg": "text"}
    assert writer_of(json.dumps(logger).encode()) == Writer(rank=3, host="gpu-07", stamp_s=AT_S)


def test_the_name_fills_in_what_the_line_leaves_open():
    by_name = Writer(rank=5, host="gpu-07", stamp_s=AT_S)
    assert writer_of(b"[default1]:text", by_name) == Writer(rank=5, host="gpu-07", local_rank=1)
    assert writer_of(b"[rank6]: text", by_name).rank == 6


def test_a_rank_further_on_counts_where_the_head_has_none():
    assert writer_of(b"98%|#| 25/26 [5:02<05:08][E X.cpp:916] [Rank 4] text").rank == 4


def test_labels_of_srun_that_number_workers():
    assert labels_are_nodes(b"1: [rank13]: text")
    assert labels_are_nodes(b"1: gpu-07:514:651 [3] text")
    assert not labels_are_nodes(b"13: [rank13]: text")
    assert not labels_are_nodes(b"[rank13]: text")
    assert writer_of(b"1: text", labels_are_nodes=True) == Writer(worker=1)


def test_an_indent_stays():
    for head in ("[rank1]: ", "5: ", "(W pid=1) ERROR 11-20 21:45:36 [core.py:11] ", "2026-11-20 21:45:36 "):
        assert text_of(head.encode() + b'  File "a.py"') == b'  File "a.py"', head


TRICKY = (
    "a-1." * 200,
    "[" * 600,
    "0:" * 300,
    "a." * 300 + ":",
    "host " * 120,
    "- " * 300,
    "(pid=" * 100,
    "1,3" * 200,
)


@given(
    st.one_of(
        st.binary(max_size=200), st.text("[]()<>:-. 0123456789rankEWpid=", max_size=200).map(str.encode)
    )
)
@example(b"\xff" * 10)
@example(b"[rank99999999999999999999]: x")
@example(b'{"MESSAGE": [256, "a"], "rank": "x"}')
@example(b'{"MESSAGE": "m", "__REALTIME_TIMESTAMP": "9999999999999999999999999"}')
def test_never_raises(line):
    writer_of(line)
    assert split_head(line)[1] == text_of(line)


def test_long_tricky_lines_take_no_time():
    for line in TRICKY:
        for before in ("", "[rank1]: ", "2026-11-20 21:45:36 ", "Nov 20 21:45:36 "):
            for _ in range(50):
                writer_of((before + line).encode())
