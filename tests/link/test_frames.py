"""Frames alone: any bodies, cut anywhere, come out whole; anything else is refused."""

import hmac
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from holdfast.link import frames
from holdfast.link.frames import BODY_BYTES_MAX, HEADER, MAC_BYTES, BadFrame, Frame, Opener, Sealer

KEY = b"k" * 32
BODIES = st.lists(
    st.tuples(st.integers(0, 127), st.one_of(st.binary(max_size=700), st.just(b"a line of a log\n" * 200))),
    max_size=12,
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in zip(ends, ends[1:], strict=False)]


@given(BODIES, st.lists(st.integers(0, 5000), max_size=20))
def test_frames_come_out_as_they_went_in(bodies, places):
    sealer, opener = Sealer(KEY), Opener(KEY)
    stream = b"".join(sealer.seal(kind, body) for kind, body in bodies)
    assert [frame for piece in cut(stream, places) for frame in opener.feed(piece)] == bodies


@given(BODIES.filter(bool), st.data())
def test_a_changed_byte_is_refused(bodies, data):
    sealer, opener = Sealer(KEY), Opener(KEY)
    stream = bytearray(b"".join(sealer.seal(kind, body) for kind, body in bodies))
    place = data.draw(st.integers(0, len(stream) - 1))
    stream[place] ^= data.draw(st.integers(1, 255))
    told: list[Frame] = []
    with pytest.raises(BadFrame):
        told.extend(opener.feed(bytes(stream) + b"\0" * 2**17))
        raise BadFrame("a length that grew beyond what came: it waits for the rest, and gets none")
    assert told == bodies[: len(told)]


@given(st.lists(st.binary(max_size=300), min_size=2, max_size=8, unique=True), st.data())
def test_frames_repeated_left_out_or_moved_are_refused(bodies, data):
    sealer = Sealer(KEY)
    sealed = [sealer.seal(1, body) for body in bodies]
    order = data.draw(
        st.lists(st.integers(0, len(sealed) - 1), min_size=1, max_size=10).filter(
            lambda order: order != list(range(len(order)))
        )
    )
    right = next(at for at, index in enumerate(order) if at != index)
    opener = Opener(KEY)
    assert [frame.body for index in order[:right] for frame in opener.feed(sealed[index])] == bodies[:right]
    with pytest.raises(BadFrame, match="forged, repeated or out of order"):
        list(opener.feed(sealed[order[right]]))


def test_a_stream_of_another_session_is_refused():
    with pytest.raises(BadFrame, match="frame 0"):
        list(Opener(b"another" * 5).feed(Sealer(KEY).seal(1, b"x")))


def test_a_length_is_believed_only_up_to_the_limit_and_takes_no_memory():
    tracemalloc.start()
    try:
        list(Opener(KEY).feed(HEADER.pack(BODY_BYTES_MAX, 1) + b"x"))
        with pytest.raises(BadFrame, match=f"a frame of {BODY_BYTES_MAX + 1} bytes"):
            list(Opener(KEY).feed(HEADER.pack(BODY_BYTES_MAX + 1, 1)))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def sealed_as_is(kind: int, body: bytes) -> bytes:
    """What Sealer would never make: a body that only says that it is compressed."""
    framed = HEADER.pack(len(body), kind) + body
    return framed + hmac.digest(KEY, bytes(8) + framed, "sha256")[: frames.MAC_BYTES]


@pytest.mark.parametrize(
    "body",
    [
        zstandard.ZstdCompressor().compress(b"\0" * (BODY_BYTES_MAX + 1)),
        zstandard.ZstdCompressor(write_content_size=False).compress(b"\0" * 5000),
        b"no zstd at all",
        zstandard.ZstdCompressor().compress(b"cut off" * 100)[:-3],
    ],
)
def test_compressed_bodies_that_would_expand_too_far_or_not_at_all_are_refused(body):
    with pytest.raises(BadFrame, match="compressed"):
        list(Opener(KEY).feed(sealed_as_is(0x80 | 1, body)))


def test_what_does_not_shrink_goes_as_it_is_and_what_does_is_small():
    noise = zstandard.ZstdCompressor().compress(bytes(range(256)) * 40)
    assert len(Sealer(KEY).seal(1, noise)) == len(noise) + HEADER.size + MAC_BYTES
    assert len(Sealer(KEY).seal(1, b"x" * 100_000)) < 200
    with pytest.raises(ValueError, match="too large"):
        Sealer(KEY).seal(1, b"\0" * (BODY_BYTES_MAX + 1))


def test_frames_that_are_not_taken_come_the_next_time():
    sealer, opener = Sealer(KEY), Opener(KEY)
    for frame in opener.feed(b"".join(sealer.seal(number, b"") for number in range(5))):
        if frame.kind == 2:
            break
    assert [frame.kind for frame in opener.feed(sealer.seal(5, b""))] == [3, 4, 5]
