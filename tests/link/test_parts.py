"""The small pure parts: beats, orders, messages."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.link import messages
from holdfast.link.beats import KEPT, Beats
from holdfast.link.frames import BadFrame
from holdfast.link.messages import Beat, Join
from holdfast.link.order_books import DONE_REMEMBERED, OrderBook, OrdersTaken

FINITE = st.floats(-1e12, 1e12)


def trip(ours: Beats, theirs: Beats, now_s: float, up_s: float, down_s: float, offset_s: float) -> None:
    """A beat from us there, and one back half a second later; `up_s`, `down_s`: how long they were on their way."""
    theirs.took(ours.next(now_s), now_s + up_s + offset_s)
    back = theirs.next(now_s + up_s + 0.5 + offset_s)
    ours.took(back, now_s + up_s + 0.5 + down_s)


def test_the_shortest_round_trip_of_the_last_minute_is_believed():
    ours, theirs = Beats(1000.0), Beats(8200.0)
    assert ours.offset_s is None
    trip(ours, theirs, 1000.0, 2.0, 0.001, 7200.0)
    assert ours.offset_s == pytest.approx(7201.0, abs=0.01)
    trip(ours, theirs, 1001.0, 0.001, 0.001, 7200.0)
    trip(ours, theirs, 1002.0, 0.3, 0.001, 7200.0)
    assert ours.offset_s == pytest.approx(7200.0, abs=0.001)
    for number in range(KEPT):  # the clocks have drifted since
        trip(ours, theirs, 1003.0 + number, 0.01, 0.01, 7200.5)
    assert ours.offset_s == pytest.approx(7200.5, abs=0.001)


def test_what_was_known_before_this_connection_holds_until_more_is_known():
    ours, theirs = Beats(0.0, 5.0), Beats(0.0)
    assert ours.offset_s == 5.0
    ours.took(theirs.next(1.0), 1.0)  # it had no beat of ours yet
    assert ours.offset_s == 5.0
    trip(ours, theirs, 10.0, 0.1, 0.1, 6.0)
    assert ours.offset_s == pytest.approx(6.0)


@given(st.lists(st.tuples(st.floats(), st.floats(), st.floats()), max_size=5), FINITE)
def test_no_beat_makes_an_offset_that_is_no_number(beats, now_s):
    ours = Beats(0.0)
    for beat in beats:
        ours.took(Beat(*beat), now_s)
    assert ours.offset_s is None or not math.isnan(ours.offset_s)


def test_an_order_that_is_done_is_forgotten_but_not_its_id():
    book = OrderBook()
    book.add("a", b"A")
    book.add("b", b"B")
    assert list(book.to_send()) == [("a", b"A"), ("b", b"B")]
    assert not list(book.to_send())
    book.done("a")
    book.add("a", b"A")
    book.again()
    assert list(book.to_send()) == [("b", b"B")]
    book.forget("b")
    book.again()
    assert not list(book.to_send())
    for number in range(DONE_REMEMBERED + 10):
        book.add(f"order {number}", b"")
        book.done(f"order {number}")
    book.add(f"order {DONE_REMEMBERED}", b"")
    assert not list(book.to_send())


def test_an_order_is_taken_once():
    taken = OrdersTaken()
    assert taken.take("a")
    assert not taken.take("a")
    taken.done("a")
    assert not taken.take("a")
    assert taken.is_done("a")


@pytest.mark.parametrize(
    "name, stream",
    [
        ("", "/1"),
        ("a/b", "a/b/1"),
        ("a\nb", "a\nb/1"),
        ("a", "b/1"),
        ("a" * 201, "a" * 201 + "/1"),
        ("a", "a"),
    ],
)
def test_names_that_would_confuse_are_refused(name, stream):
    with pytest.raises(BadFrame):
        messages.as_join(messages.pack(Join(name, "agent", stream, "", b"")))


@given(st.binary(max_size=80))
def test_bodies_of_any_bytes_are_read_or_refused(data):
    readers = (messages.as_entry, messages.as_beat, messages.as_ack, messages.as_join)
    for reader in (*readers, messages.as_welcome, messages.as_order):
        try:
            reader(data)
        except BadFrame as error:
            assert str(error)
    assert messages.as_text(data).isprintable()
