"""Event files: one from a real writer, and some made here to be long, cut, damaged or strange."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.steps.tfevents import (
    RECORD_BYTES_MAX,
    Damaged,
    Event,
    EventCutter,
    EventSteps,
    masked_crc,
)
from steps_kit import event, field, framed

# torch.utils.tensorboard of torch 2.13 with tensorboard 2.21: train/loss at 10, 20 and 30, half a second for each
# step, eval/loss at 30, and a tensor "new" (new_style=True).
REAL = bytes.fromhex(
    "4800000000000000fe92489d096d6237cb8fc0da411a0d627261696e2e4576656e743a32522e0a2c74656e736f72626f6172642e7375"
    "6d6d6172792e7772697465722e6576656e745f66696c655f777269746572fa493780200000000000000029eda9500900004041fc54d9"
    "41100a2a130a110a0a747261696e2f6c6f7373159a993940bf40ba68200000000000000029eda9500900008042fc54d94110142a130a"
    "110a0a747261696e2f6c6f737315333333405c84fc71200000000000000029eda950090000c043fc54d941101e2a130a110a0a747261"
    "696e2f6c6f737315cdcc2c40ba3e06551f00000000000000514b44180900000045fc54d941101e2a120a100a096576616c2f6c6f7373"
    "150000104134b7055c2b00000000000000861bc34b0900004045fc54d941101e2a1e0a1c0a036e6577420808012a040000803e4a0b0a"
    "090a077363616c61727311ad5571"
)


def read(data: bytes, chunk_bytes: int = 1 << 20) -> list[Event]:
    cutter = EventCutter()
    return [
        one for at in range(0, len(data), chunk_bytes) for one in cutter.feed(data[at : at + chunk_bytes])
    ]


def steps(*files: bytes):
    reader = EventSteps()
    found = []
    for number, data in enumerate(files):
        found += reader.begin_file() if number else ()
        found += reader.feed(read(data))
    return [*found, *reader.finish()]


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1 << 20])
def test_a_real_file_gives_its_scalars(chunk_bytes):
    events = read(REAL, chunk_bytes)
    assert [(one.step, one.values[0][0]) for one in events] == [
        (10, "train/loss"),
        (20, "train/loss"),
        (30, "train/loss"),
        (30, "eval/loss"),
        (30, "new"),
    ]
    assert events[0].at_s == 1.7e9 + 5
    assert events[0].values[0][1] == pytest.approx(2.9)
    assert events[4].values[0][1] == 0.25  # a tensor


def test_steps_of_a_real_file_have_times_of_the_writers_clock():
    found = steps(REAL)
    assert [(one.step, one.steps, one.time_s) for one in found] == [
        (10, 1, None),
        (20, 10, 0.5),
        (30, 10, 0.5),
    ]
    assert found[2].loss == pytest.approx(2.7)  # not that of the evaluation


def test_the_checksum_is_that_of_the_rfc():
    crc = masked_crc(bytes(32)) - 0xA282EAD8 & 0xFFFFFFFF
    assert (crc << 15 | crc >> 17) & 0xFFFFFFFF == 0x8A9136AA  # RFC 3720, B.4: 32 bytes of zeros


def test_what_the_training_wrote_of_its_time_goes_before_the_clock():
    data = b"".join(
        event(1e9 + step, step, **{"iteration-time": 0.75, "lm loss": 2.0, "lm loss vs samples": 2.0})
        for step in range(1, 4)
    )
    assert [one.time_s for one in steps(data)] == [0.75] * 3


def test_scalars_written_ahead_of_the_loss_are_those_of_its_step():
    data = b"".join(
        event(1e9 + step, step, tps=step * 10) + event(1e9 + step, step, loss=1) for step in range(1, 4)
    )
    assert [one.throughput for one in steps(data)] == [10, 20, 30]


def test_a_second_file_is_a_second_run_and_a_step_back_too():
    first = b"".join(event(1e9 + step, step, loss=1) for step in range(5))
    back = b"".join(event(2e9 + step, step, loss=1) for step in range(3, 8))
    assert [one.run for one in steps(first, back)] == [0] * 5 + [1] * 5
    assert [one.run for one in steps(first + back)] == [0] * 5 + [1] * 5


def test_an_evaluation_has_no_steps():
    assert steps(b"".join(event(1e9 + step, step, **{"eval/loss": 1}) for step in range(500))) == []


def test_a_picture_is_passed_over_unread_and_what_follows_is_read():
    picture = framed(b"\x09" + bytes(8) + field(5, bytes(RECORD_BYTES_MAX)))
    data = event(1e9, 1, loss=1) + picture + event(1e9, 2, loss=1)
    for chunk_bytes in (1000, 1 << 20):
        assert [one.step for one in read(data, chunk_bytes)] == [1, 2]


def test_a_file_that_is_being_written_ends_within_a_record():
    cutter = EventCutter()
    assert [one.step for one in cutter.feed(event(1e9, 1, loss=1) + event(1e9, 2, loss=1)[:-3])] == [1]
    assert cutter.is_cut


@pytest.mark.parametrize("place", [3, 9, 20, -1])
def test_damage_is_said_and_what_came_before_counts(place):
    bad = bytearray(event(1e9, 2, loss=1))
    bad[place] ^= 0x10
    cutter = EventCutter()
    data = cutter.feed(event(1e9, 1, loss=1) + bytes(bad) + event(1e9, 3, loss=1))
    assert next(data).step == 1
    with pytest.raises(Damaged, match="damaged|no event"):
        list(data)


@given(st.binary(max_size=300))
def test_no_body_breaks_the_reader(body):
    try:
        read(framed(body))
    except Damaged:
        pass


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data):
    try:
        read(data)
    except Damaged:
        pass
