"""A pickle is a program: these are the programs that must not run, and the ones that must be read all the same."""

import os
import pickle
import struct
import sys
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.parsers.flight import pickled as flight_pickle
from holdfast.parsers.flight.pickled import SIZE_BYTES_MAX, Refused, is_plain, unpickled

TEXT = st.text(max_size=20)
NUMBERS = st.integers(-(1 << 80), 1 << 80) | st.integers(-(1 << 31), 1 << 31)
SCALARS = st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(TEXT, inner, max_size=5)
        | st.tuples(inner, inner)
        | st.lists(inner, max_size=4).map(tuple)
    ),
    max_leaves=30,
)


def text(word):
    return b"X" + struct.pack("<I", len(word)) + word.encode()


def number(value):
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if 0 <= value < 65536:
        return b"M" + struct.pack("<H", value)
    return b"J" + struct.pack("<i", value) if abs(value) < 1 << 31 else b"\x8a\x08" + struct.pack("<q", value)


def torch_like(value):
    """As torch's Pickler writes it: protocol 2, texts memorised once, numbers of a clock in 8 bytes."""
    known = {}

    def put(word):
        if word in known:
            return b"h" + bytes([known[word]])
        known[word] = len(known)
        return text(word) + b"q" + bytes([known[word]])

    write = {
        type(None): lambda _: b"N",
        bool: lambda one: b"\x88" if one else b"\x89",
        str: put,
        int: number,
        float: lambda one: b"G" + struct.pack(">d", one),
        tuple: lambda one: written(one) + b"\x86",
        list: lambda one: b"](" + written(one) + b"e",
        dict: lambda one: b"}(" + written(part for item in one.items() for part in item) + b"u",
    }

    def written(parts):
        return b"".join(write[type(one)](one) for one in parts)

    return b"\x80\x02" + written([value]) + b"."


ENTRY = {
    "record_id": 70_000,
    "process_group": ("41", "TP"),
    "input_sizes": [[4096, 1, 5120], []],
    "input_dtypes": ["Float"],
    "time_created_ns": 1795201497088486196,
    "duration_ms": 0.5,
    "time_discovered_started_ns": None,
    "retired": True,
    "is_p2p": False,
    "pg_id": -1,
    "frames": [],
}
RECORD = {"version": "2.10", "pg_config": {}, "entries": [ENTRY, {**ENTRY, "process_group": ("41", "DP")}]}


# What it reads


def test_what_torch_writes_goes_the_fast_way():
    data = torch_like(RECORD)
    assert is_plain(data)
    assert unpickled(data) == RECORD == pickle.loads(data)


def test_names_of_groups_new_or_known_make_tuples():
    new, known = {"a": ("n1", "n2")}, {"n1": 1, "n2": 2}
    for one in (new, {**known, "a": ("n1", "n2")}, {"n1": 1, "a": ("n1", "x")}, {"n2": 1, "a": ("x", "n2")}):
        data = torch_like(one)
        assert is_plain(data), one
        assert unpickled(data) == one


@given(VALUES, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_values_of_every_protocol_are_read(value, protocol):
    assert unpickled(pickle.dumps(value, protocol)) == value


@given(VALUES | st.binary())
def test_so_are_bytes_of_the_later_ones(value):
    assert unpickled(pickle.dumps([value], 4)) == [value]


# What would run


class Runs:
    def __reduce__(self):
        return os.mkdir, (Runs.folder,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_code_is_refused_and_nothing_ran(tmp_path, protocol):
    Runs.folder = str(tmp_path / "ran")
    data = pickle.dumps({"version": "2.10", "entries": [Runs()]}, protocol)
    with pytest.raises(Refused, match=r"mkdir.*could run any code.*nothing of it was run"):
        unpickled(data)
    assert not (tmp_path / "ran").exists()
    pickle.loads(data)
    assert (tmp_path / "ran").exists(), "it would have run"


EVIL = {
    "GLOBAL": b"cos\nsystem\n(X\x02\x00\x00\x00idtR.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "INST": b"(X\x02\x00\x00\x00idios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nX\x02\x00\x00\x00ido.",
    "REDUCE": b"\x80\x02X\x02\x00\x00\x00os)R.",
    "BUILD": b"\x80\x02}}b.",
    "NEWOBJ": b"\x80\x02})\x81.",
    "NEWOBJ_EX": b"\x80\x04})}\x92.",
    "EXT1": b"\x80\x02\x82\x01.",
    "EXT2": b"\x80\x02\x83\x01\x00.",
    "EXT4": b"\x80\x02\x84\x01\x00\x00\x00.",
    "PERSID": b"Pos\n.",
    "BINPERSID": b"\x80\x02X\x02\x00\x00\x00osQ.",
    "NEXT_BUFFER": b"\x80\x05\x97.",
}


@pytest.mark.parametrize("name", EVIL)
def test_every_instruction_that_makes_an_object_is_refused(name):
    before = set(sys.modules)
    for data in (EVIL[name], torch_like(RECORD)[:-1] + EVIL[name].removeprefix(b"\x80\x02")):
        assert not is_plain(data)
        with pytest.raises(Refused, match="could run any code"):
            unpickled(data)
    assert set(sys.modules) == before


def test_a_call_hidden_in_a_text_that_lies_about_its_length_is_found():
    hidden = b"\x80\x02X" + struct.pack("<I", 2) + b"abcos\nsystem\n(X\x02\x00\x00\x00idtR."
    with pytest.raises(Refused, match=r"os\.system"):
        unpickled(hidden)


# What would eat memory or time

LIES = {
    "BINUNICODE": b"X\xff\xff\xff\xff" + b"a",
    "BINUNICODE8": b"\x8d" + struct.pack("<Q", 1 << 60),
    "BINBYTES": b"B\xff\xff\xff\x7f",
    "BINBYTES8": b"\x8e" + struct.pack("<Q", 1 << 60),
    "BYTEARRAY8": b"\x96" + struct.pack("<Q", 1 << 36),
    "FRAME": b"\x95" + struct.pack("<Q", 1 << 50) + b"N",
    "LONG1": b"\x8a\xff" + b"\x01" * 255,
    "LONG4": b"\x8b\xff\xff\xff\x7f",
    "LONG4 negative": b"\x8b\xff\xff\xff\xff",
    "INT": b"I" + b"9" * 5000 + b"\n",
    "LONG": b"L" + b"9" * 5000 + b"L\n",
    "DUP": b"N2\x86",
    "set": b"\x8f(K\x01\x90",
}


@pytest.mark.parametrize("name", LIES)
def test_lengths_that_lie_take_no_memory(name):
    tracemalloc.start()
    with pytest.raises(Refused):
        unpickled(b"\x80\x04" + LIES[name] + b".")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_high_number_of_the_memory_takes_none():
    """C's machine would take 34 GB for it."""
    tracemalloc.start()
    assert unpickled(b"\x80\x02X\x01\x00\x00\x00ar\xff\xff\xff\x7f.") == "a"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def doubled_tuples(times):
    """((a, a), (a, a)) ... as the key of a dict: hashing it takes 2^times steps."""
    steps = b"".join(b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(times))
    return b"\x80\x02}" + steps.replace(b"h\x00h\x00", text("a") + b"q\x00h\x00") + b"Ns."


def test_a_key_of_tuples_doubled_sixty_times_is_not_hashed():
    started_s = time.thread_time()
    data = doubled_tuples(60)
    assert not is_plain(data)
    with pytest.raises(Refused):
        unpickled(data)
    assert time.thread_time() - started_s < 1


def test_a_key_nested_very_deep_does_not_crash():
    data = b"\x80\x02})" + b"\x85" * 200_000 + b"Ns."
    with pytest.raises(Refused, match="key that is neither"):
        unpickled(data)


def test_values_nested_very_deep_are_only_values():
    value = unpickled(b"\x80\x02" + b"(" * 200_000 + b"t" * 200_000 + b".")
    assert isinstance(value, tuple)


def test_a_text_under_a_mark_filled_with_nothing_is_not_memorised_as_a_dict():
    """The tuple would get into C's memory, and could then be put in tuples again and again."""
    tuple_ = text("a") + b"q\x00" + text("b") + b"q\x01\x86"
    for filled in (b"(u", b"(e"):
        data = b"\x80\x02" + tuple_ + filled + b"q\x02h\x02h\x02\x86."
        assert not is_plain(data)


def test_more_lists_than_any_record_has_are_refused():
    with pytest.raises(Refused, match="steps"):
        unpickled(b"\x80\x02" + b"]" * (flight_pickle.STEPS_MAX + 10) + b".")


def test_a_file_beyond_all_bounds_is_not_looked_at():
    with pytest.raises(Refused, match="64 MiB"):
        unpickled(bytes(SIZE_BYTES_MAX + 1))


# Damage


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_give_a_value_or_a_reason(data):
    for one in (data, b"\x80\x02" + data, b"\x80\x04" + data):
        try:
            unpickled(one)
        except Refused as refused:
            assert str(refused)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_records_that_were_damaged_give_a_value_or_a_reason(data):
    whole = bytearray(
        data.draw(st.sampled_from([torch_like(RECORD), pickle.dumps(RECORD), pickle.dumps(RECORD, 0)]))
    )
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
        if not whole:
            return
    damaged = bytes(whole)
    try:
        value = unpickled(damaged)
    except Refused as refused:
        assert str(refused)
        return
    if is_plain(damaged):  # what C reads, our machine reads alike
        assert repr(flight_pickle._Machine(damaged).run()) == repr(value)


def test_every_cut_is_said():
    whole = torch_like(RECORD)
    for size in range(len(whole)):
        with pytest.raises(Refused):
            unpickled(whole[:size])
