"""Flight records of all formats: what is told, what is odd, and what is refused."""

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.flight.records import FlightRecord, Group, GroupStatus
from holdfast.parsers.flight.pickled import Refused
from holdfast.parsers.flight.records import groups_of, read_record, with_groups

SHARED = Path(__file__).parents[3].parent / "shared" / "corpus" / "flight"

ENTRY = {
    "record_id": 0,
    "pg_id": 5,
    "process_group": ("41", "TENSOR_MODEL_PARALLEL_GROUP"),
    "collective_seq_id": 42806,
    "p2p_seq_id": 0,
    "op_id": 42806,
    "profiling_name": "nccl:_all_gather_base",
    "time_created_ns": 1758610505880883597,
    "input_sizes": [[4096, 5120]],
    "input_dtypes": ["BFloat16"],
    "output_sizes": [[8192, 5120]],
    "output_dtypes": ["BFloat16"],
    "state": "scheduled",
    "time_discovered_started_ns": None,
    "time_discovered_completed_ns": None,
    "retired": False,
    "timeout_ms": 180000,
    "is_p2p": False,
}
RECORD = {
    "version": "2.9",
    "nccl_version": "2.27.3",
    "pg_config": {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 12, 13]"},
        "41": {"name": "41", "desc": "TENSOR_MODEL_PARALLEL_GROUP", "ranks": "[12, 13]"},
    },
    "pg_status": {
        "5": {
            "last_enqueued_collective": 42817,
            "last_started_collective": -1,
            "last_completed_collective": 42805,
        }
    },
    "entries": [ENTRY, {**ENTRY, "record_id": 1, "collective_seq_id": 42807}],
}


def read(value=None, rank=12, **changed):
    return read_record(pickle.dumps({**RECORD, **changed} if value is None else value, 2), rank)


def entries(*changes):
    return [{**ENTRY, "record_id": number, **change} for number, change in enumerate(changes)]


def test_a_record_of_nccl():
    record = read()
    assert (record.rank, record.version, record.library) == (12, "2.9", "2.27.3")
    assert record.groups["41"] == Group(
        name="41", about="TENSOR_MODEL_PARALLEL_GROUP", ranks=(12, 13), backend="nccl"
    )
    assert record.status == (GroupStatus(5, 42817, -1, 42805),)
    first = record.operations[0]
    assert (first.group, first.group_about, first.group_id) == ("41", "TENSOR_MODEL_PARALLEL_GROUP", 5)
    assert (first.sequence, first.kind, first.backend) == (42806, "_all_gather_base", "nccl")
    assert (first.input_sizes, first.output_types) == (((4096, 5120),), ("BFloat16",))
    assert (first.started_ns, first.completed_ns, first.timeout_ms) == (None, None, 180000)
    assert not record.is_wrapped
    assert not record.notes


def test_the_json_of_the_worker_server_tells_the_same():
    """There numbers of pg_status are text, and times that are not known are 0."""
    as_json = json.loads(json.dumps(RECORD))
    for entry in as_json["entries"]:
        entry |= {"time_discovered_started_ns": 0, "time_discovered_completed_ns": 0}
    for status in as_json["pg_status"].values():
        status |= {key: str(number) for key, number in status.items()}
    assert read_record(json.dumps(as_json).encode(), 12) == read()


@pytest.mark.parametrize(
    ("name", "backend", "kind", "is_p2p"),
    [
        ("nccl:all_reduce", "nccl", "all_reduce", False),
        ("gloo:all_reduce", "gloo", "all_reduce", False),
        ("nccl:send 0->1", "nccl", "send 0->1", True),
        ("nccl:recv 1<-0", "nccl", "recv 1<-0", True),
        ("nccl:coalesced", "nccl", "coalesced", False),
        ("all_reduce", "", "all_reduce", False),
    ],
)
def test_names_of_operations(name, backend, kind, is_p2p):
    without = {key: value for key, value in ENTRY.items() if key != "is_p2p"}
    (one,) = read(entries=[{**without, "profiling_name": name}]).operations
    assert (one.backend, one.kind, one.is_p2p) == (backend, kind, is_p2p)


def test_a_batch_of_sends_is_point_to_point_where_the_record_says_so():
    (one,) = read(entries=entries({"profiling_name": "nccl:coalesced", "is_p2p": True})).operations
    assert one.is_p2p


# Older formats


def test_format_1_has_one_sequence_for_all_and_no_types():
    old = {
        "record_id": 3,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "seq_id": 7,
        "op_id": 9,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 5,
        "input_sizes": ((3, 4),),
        "output_sizes": ((3, 4),),
        "state": "completed",
        "retired": True,
        "frames": [{"name": "main", "filename": "train.py", "line": 3}],
    }
    record = read({"entries": [old], "version": "1.5", "pg_config": {}}, 0)
    (one,) = record.operations
    assert (one.sequence, one.operation_id, one.group, one.input_sizes) == (7, 9, "0", ((3, 4),))
    assert record.is_wrapped
    assert not record.notes


def test_torch_2_2_wrote_the_entries_alone_in_microseconds():
    old = {
        "pg_id": 0,
        "seq_id": 2,
        "profiling_name": "nccl:all_reduce",
        "time_created_us": 1700000000000000,
        "state": "started",
        "input_sizes": [[3]],
        "output_sizes": [[3]],
    }
    record = read([old, {**old, "seq_id": 3}], 1)
    assert [one.sequence for one in record.operations] == [2, 3]
    assert record.operations[0].created_ns == 1700000000000000000
    assert record.operations[0].group == "0"
    assert record.notes == ("it contains no format version",)


def test_groups_of_gloo_have_no_members_here():
    record = read(
        pg_config={"": {"name": "", "desc": "", "ranks": "[]"}},
        entries=entries({"profiling_name": "gloo:all_reduce", "process_group": ["1", "dp0"]}),
    )
    assert record.groups == {"1": Group(name="1", about="dp0", backend="gloo")}


def test_members_that_others_tell():
    record = read(pg_config={}, pg_status={}, entries=entries({"process_group": ["1", "dp0"]}))
    known = groups_of(
        b'{"1": {"desc": "dp0", "ranks": [2, 0], "backend": "nccl"}, "3": {"desc": "tp0", "ranks": [0, 1]}}'
    )
    groups = with_groups(record, known).groups
    assert groups["1"].ranks == (0, 2)
    assert groups["3"] == Group(name="3", about="tp0", ranks=(0, 1))
    assert with_groups(read(), {"41": Group(name="41", ranks=(7,))}).groups["41"].ranks == (12, 13), (
        "its own word"
    )


# Rings


def test_a_ring_is_wrapped_where_entries_are_missing_before_or_between():
    assert not read(entries=entries({}, {}, {})).is_wrapped
    assert read(entries=[{**ENTRY, "record_id": 9}]).is_wrapped
    assert read(entries=[ENTRY, {**ENTRY, "record_id": 2}]).is_wrapped
    assert read(entries=[]).is_wrapped, "all that were enqueued have been left out"
    assert not read(entries=[], pg_status={}).is_wrapped


def test_entries_out_of_order_or_twice():
    twice = entries({}, {"state": "scheduled"})
    record = read(entries=[twice[1], twice[0], {**twice[1], "state": "completed"}])
    assert [(one.record_id, one.state) for one in record.operations] == [(0, "scheduled"), (1, "completed")]
    assert len(record.notes) == 2


# Odd ones


def test_the_rank_is_what_the_name_says_else_what_its_groups_have_in_common():
    alone = {**RECORD["pg_config"], "108": {"name": "108", "desc": "EDP", "ranks": "[12]"}}
    assert read(rank=None, pg_config=alone).rank == 12
    assert read({**RECORD, "rank": 13}, rank=None).rank == 13
    assert any("not in all of its groups" in note for note in read(rank=3).notes)
    with pytest.raises(Refused, match="nothing shows its rank"):
        read(rank=None)
    with pytest.raises(Refused, match="out of range"):
        read(rank=1 << 40)


def test_what_is_odd_is_noted_and_the_rest_is_read():
    odd = [
        {**ENTRY, "state": "exploded"},
        {**ENTRY, "record_id": 1, "input_sizes": "many"},
        {**ENTRY, "record_id": 2, "collective_seq_id": "42808", "timeout_ms": None},
        7,
    ]
    record = read(
        version="3.0",
        entries=odd,
        pg_status={"x": {}, "1": 4, "5": {"last_enqueued_collective": "x"}},
        pg_config={"41": {"ranks": [12, 13, -1, 1 << 50]}, "7": 3, "8": {"ranks": 4}},
    )
    assert [one.sequence for one in record.operations] == [42806, 42806, 42808]
    assert record.operations[1].output_sizes == ((8192, 5120),)
    assert record.status == (GroupStatus(5, -1, -1, -1),)
    assert record.groups["41"].ranks == (12, 13)
    for word in (
        "exploded",
        "input_sizes",
        "not a record of",
        "group 'x'",
        "'7'",
        "'8'",
        "repeated members",
        "3.0",
    ):
        assert any(word in note for note in record.notes), word


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{}",
        b"[]x",
        b"hello",
        b"[" * 200_000,
        pickle.dumps(4),
        pickle.dumps({"a": 1}),
        b'{"a": 1}',
    ],
)
def test_what_is_no_record_is_refused(data):
    with pytest.raises(Refused):
        read_record(data, 0)


def test_entries_that_share_what_they_list_do_not_unfold():
    sizes = [[1] * 16] * 16_000
    shared = {**ENTRY, "input_sizes": sizes}
    with pytest.raises(Refused, match="tensors"):
        read(entries=[shared] * 1000)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_stands_in_a_record_it_is_read_or_refused(data):
    entry = dict(ENTRY)
    for key in data.draw(st.sets(st.sampled_from(sorted(entry)), max_size=4)):
        entry[key] = data.draw(JSON)
    value = {**RECORD, "entries": [entry, ENTRY]}
    for key in data.draw(st.sets(st.sampled_from(sorted(value)), max_size=2)):
        value[key] = data.draw(JSON)
    for data_of in (lambda: pickle.dumps(value, 2), lambda: json.dumps(value).encode()):
        try:
            assert isinstance(read_record(data_of(), 12), FlightRecord)
        except Refused as refused:
            assert str(refused)


@given(st.binary(max_size=60) | JSON.map(lambda one: json.dumps(one).encode()))
def test_groups_of_anything(data):
    try:
        assert isinstance(groups_of(data), dict)
    except Refused as refused:
        assert str(refused)


# Real ones


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cases are not beside this checkout")
def test_real_records_in_both_forms_tell_the_same():
    compared = 0
    for path in SHARED.glob("*/fr_rank_*"):
        other = path.with_name(f"fr_json_{path.name[8:]}.json")
        one, two = read_record(path.read_bytes(), 1), read_record(other.read_bytes(), 1)
        same = min(len(one.operations), len(two.operations))
        key = [
            (op.group, op.sequence, op.kind, op.input_sizes, op.created_ns) for op in one.operations[:same]
        ]
        assert key == [
            (op.group, op.sequence, op.kind, op.input_sizes, op.created_ns) for op in two.operations[:same]
        ]
        assert not one.notes
        assert not two.notes
        compared += 1
    assert compared > 10
