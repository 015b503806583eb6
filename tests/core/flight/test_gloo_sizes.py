"""Who passed another size, from the words of the rank that aborted."""

import pytest

from holdfast.core.flight.gloo_sizes import odd_one


def said(received, expected):
    return (
        f"[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. {received} vs {expected}. Received"
    )


@pytest.mark.parametrize(
    ("aborted", "received", "expected", "odd"),
    [(1, 12, 4, 2), (3, 8, 4, 0), (0, 4, 2, 0), (0, 12, 5, None), (7, 12, 4, None)],
    ids=[
        "the next one sends more",
        "round the ring",
        "it expects less itself",
        "neither is usual",
        "no such rank",
    ],
)
def test_without_records_the_usual_sizes_tell(aborted, received, expected, odd):
    assert odd_one(aborted, said(received, expected), (), {32, 4096}, 4) == odd


def test_nothing_is_decided_from_other_words():
    assert odd_one(0, "Connection closed by peer", (), {32}, 4) is None
    assert odd_one(0, said(12, 4), ()) is None
