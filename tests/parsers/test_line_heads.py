"""Who wrote a line, by each launcher's and logger's head; and what a log's name tells."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.sightings import Writer
from holdfast.parsers.line_heads import split_head, text_of, writer_of, writer_of_name

AT_S = 1795211136.0  # 2026-11-20 21:45:36 UTC

HEADS = (
    ("[default3]:[rank11]: text", Writer(rank=11, local_rank=3)),
    ("[rank0]:[rank0]: text", Writer(rank=0)),
    ("5: text", Writer(rank=5)),
    (" 7: text", Writer(rank=7)),
    ("1: [rank13]: text", Writer(rank=13, worker=1)),
    ("1: [default3]:text", Writer(local_rank=3, worker=1)),
    ("[1,3]<stdout>:text", Writer(rank=3)),
    ("gpu-07: text", Writer(host="gpu-07")),
    (
        "worker-1: [2026-11-20 21:45:36,000] [INFO] [launch.py:256:main] text",
        Writer(host="worker-1", stamp_s=AT_S),
    ),
    ("[pod/job-worker-1/main] text", Writer(host="job-worker-1")),
    ("(pid=36, ip=10.0.3.9) text", Writer(pid=36, host="10.0.3.9")),
    ("\x1b[36m(WorkerDict pid=58)\x1b[0m text", Writer(pid=58)),
    ("(Worker_TP2 pid=41) text", Writer(rank=2, pid=41)),
    ("(PolicyWorker[rank=9] pid=30) [rank9]:text", Writer(rank=9, pid=30)),
    ("gpu-07:514:651 [1] text", Writer(host="gpu-07", pid=514, device="1")),
    ("0: gpu-07:514:651 [3] text", Writer(host="gpu-07", pid=514, device="3", worker=0)),
    ("[gpu-07:514] text", Writer(host="gpu-07", pid=514)),
    ("W1120 21:45:36.000000 2197 torch/api.py:1014] text", Writer(pid=2197)),
)
YEARLESS = tuple(head for head in HEADS if head[0].startswith("W"))


@pytest.mark.parametrize(("line", "writer"), [one for one in HEADS if one not in YEARLESS])
def test_who(line, writer):
    assert writer_of(line.encode()) == writer
    assert text_of(line.encode()) == b"text"


@given(st.binary(max_size=200))
def test_never_raises(line):
    writer_of(line)
    assert len(text_of(line)) <= max(len(line), 1)
    assert split_head(line)[1] == text_of(line)


def test_of_name():
    assert writer_of_name("job/attempt_0/3/stderr.log") == Writer(local_rank=3)
    assert writer_of_name("node3/rank_5.log") == Writer(worker=3, rank=5)
