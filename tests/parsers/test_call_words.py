"""Words about calls, to bytes and back; what is none is nobody's word, and raises nothing."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.calls import (
    AnyCallWord,
    AskCall,
    BeginCall,
    CallEnded,
    CallPlace,
    CallPlaces,
    Program,
    StackLook,
    Terminal,
    Typed,
)
from holdfast.model.nodes.workers import AnyCommand, AnyReport, PortFound
from holdfast.parsers.call_words import decode, encode, is_call_word

WHATS = st.one_of(
    st.builds(Program, command=st.lists(st.text(max_size=5), max_size=3).map(tuple)),
    st.builds(Terminal, term=st.text(max_size=5)),
    st.builds(StackLook, ranks=st.none() | st.lists(st.integers(0, 9), max_size=3).map(tuple)),
)
WORDS = st.one_of(
    st.builds(AskCall, call=st.text(max_size=30), what=WHATS, by=st.text(max_size=5)),
    st.builds(BeginCall, call=st.text(max_size=30), what=WHATS, worker=st.none(), attempt=st.just(1)),
    st.builds(Typed, call=st.text(max_size=30), data=st.binary(max_size=9)),
    st.builds(
        CallEnded,
        call=st.text(max_size=30),
        node=st.text(max_size=5),
        worker=st.integers(0, 9),
        outcome=st.sampled_from(["exited", "timed-out"]),
    ),
    st.builds(
        CallPlaces,
        call=st.text(max_size=30),
        job=st.just("j"),
        attempt=st.just(1),
        places=st.just((CallPlace(node="a"),)),
    ),
)


@given(WORDS)
def test_there_and_back(word):
    assert decode(encode(word)) == word


@given(WORDS, st.data())
def test_what_was_damaged_raises_nothing(word, data):
    body = bytearray(encode(word))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    decode(bytes(body[: data.draw(st.integers(0, len(body)))]))


@given(st.binary(max_size=40))
def test_any_bytes_at_all(body):
    assert decode(body) is None


@pytest.mark.parametrize("kind", get_args(AnyCallWord), ids=lambda kind: kind.__name__)
def test_every_word_is_known_by_its_tag(kind):
    tag = kind.__struct_config__.tag
    assert is_call_word(msgspec.msgpack.encode({"kind": tag, "call": "x"}))


def test_no_other_word_between_nodes_is_taken_for_one():
    tags = [kind.__struct_config__.tag for kind in (*get_args(AnyReport), *get_args(AnyCommand))]
    assert not any(tag.startswith("call-") for tag in tags)
    assert not is_call_word(encode(PortFound(attempt=1, port=7)))
