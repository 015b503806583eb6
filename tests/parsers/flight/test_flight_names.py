import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.flight.names import kind_of, rank_of

RECORD = pickle.dumps({"version": "2.10", "pg_config": {}, "entries": []}, 2)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_12", 12),
        ("dumps/comm_lib_trace_rank_3", 3),
        ("nccl_trace_rank_container-node07_40", 40),
        ("nccl_trace_rank_10.0.0.5_3", 3),
        ("fr_rank_3", 3),
        ("fr_exc_3", 3),
        ("fr_json_3.json", 3),
        ("_dump_12", 12),
        ("trace_rank_7.pkl", 7),
        ("node1_rank12.pickle.gz", 12),
        ("rank_12_node3", 12),
        ("rank5.20250101-120000.pkl", 5),
        ("worker-1/rank-9.flight.json", 9),
        ("rank-3.groups.json", 3),
        ("groups0.json", 0),
        ("rank-3.stacks", 3),
        ("faulthandler_2.txt", 2),
        ("py-spy-rank3.json", 3),
        ("bundle.tar.zst/worker-0/rank-9.flight.json", 9),
        ("rank_4/fr.pkl", 4),
        ("local_rank_3", None),
        ("record.pkl", None),
    ],
)
def test_the_rank_of_a_name(name, rank):
    assert rank_of(name) == rank


def test_records_are_known_by_what_they_begin_with():
    assert kind_of("whatever", RECORD) == "record"
    assert kind_of("whatever", pickle.dumps({"entries": []}, 0)) == "record"
    assert kind_of("fr_rank_3", b"\x80\x02cos\nsystem\n") == "record", "it is refused later, with the reason"
    assert kind_of("model.pkl", pickle.dumps({"weights": [1.0]})) is None
    assert kind_of("fr_json_3.json", b'{"comm_lib_version":"","entries":[{"collective_seq_id":1,') == "record"
    assert kind_of("events.jsonl", b'{"step": 3, "collective_seq_id": 9}\n') is None
    assert kind_of("fr_rank_3.log", b"step 3 loss 2.1\n") is None


def test_groups_and_stacks():
    assert (
        kind_of("groups0.json", b'{"0": {"desc": "default_pg", "ranks": [0, 1], "backend": "gloo"}}')
        == "groups"
    )
    assert kind_of("config.json", b'{"0": {"desc": "default_pg", "ranks": [0, 1]}}') is None
    dump = b'Current thread 0x00007fc6 (most recent call first):\n  File "a.py", line 3 in f\n\n'
    assert kind_of("rank-3.stacks", dump) == "faulthandler"
    assert (
        kind_of("rank-3.stacks", b"Thread 0x00007fc6 [python] (most recent call first):\n") == "faulthandler"
    )
    assert kind_of("rank-3.stacks", b"Fatal Python error: Segmentation fault\n\n" + dump) is None, "a log"
    assert kind_of("rank-3.log", dump + b"step 4 loss 2.1\n") is None, "a log that begins with a dump"
    pyspy = (
        b'Process 12: python train.py\nPython v3.11.7 (/bin/python3.11)\n\nThread 12 (idle): "MainThread"\n'
    )
    assert kind_of("pyspy_3.txt", pyspy) == "py-spy"
    assert kind_of("pyspy_3.json", b'[{"pid": 1, "thread_id": 2, "active": true, "frames": []}]') == "py-spy"


@given(st.text(), st.binary())
def test_any_file(name, head):
    assert kind_of(name, head) in ("record", "groups", "faulthandler", "py-spy", None)
    rank_of(name)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b'Thread 0x00007f31 (most recent call first):\n  File "a.py", line 3 in read\n', "faulthandler"),
        (b"Process 4711: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n", "py-spy"),
    ],
)
def test_stacks_whose_name_tells_no_rank_are_searched_as_a_log(head, kind):
    assert kind_of("rank-3.stacks", head) == kind
    assert kind_of("stack.txt", head) is None
    assert kind_of("stdin", head) is None
