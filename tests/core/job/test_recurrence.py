"""Equal causes: texts that differ only in numbers, ranks, sizes and generated names have one key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.job.recurrence import KEY_MAX, cause_key

SAME = (
    ("ranks 1-3 wait in all_reduce 17 since 10:22:01", "ranks 5 wait in all_reduce 9 since 11:02:59"),
    ("pod llama-7-x2k9q of gpu-b07 was evicted", "pod llama-12-p4z1m of gpu-b112 was evicted"),
    ("tried to allocate 2.50 GiB, 700 MiB is free", "tried to allocate 12 GiB, 1.2 GiB is free"),
    ("sizes [1, 2, 3] and [4, 5] differ", "sizes [1, 2] and [4, 5, 6] differ"),
    ("nodes node-1, node-22 are lost", "nodes node-3 are lost"),
    ("KeyError: 'layers.3.weight'", "KeyError: 'layers.14.weight'"),
    ("3 of 3 restarts are used", "8 of 8 restarts are used"),
    ("10.0.0.3<4321> closed after 3s", "10.0.3.77<99> closed after 250 ms"),
    ("shape [2x3] is wrong", "shape [2x3x9] is wrong"),
)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_numbers_do_not_part_equal_causes(one, other):
    assert cause_key(f"data_error:{one}") == cause_key(f"data_error:{other}")


def test_different_causes_stay_apart():
    texts = [one for one, _ in SAME] + ["KeyError: 'layers.3.bias'", "node gpu-b07 was evicted"]
    assert len({cause_key(text) for text in texts}) == len(texts)
    assert cause_key("data_error:no space") != cause_key("disk_full:no space")


@given(st.text(alphabet="ab#0 19f,-x:'[]GiBrank", max_size=300))
def test_a_key_is_its_own_key_and_short(text):
    key = cause_key(text)
    assert len(key) <= KEY_MAX
    assert len(text) > KEY_MAX or cause_key(key) == key
