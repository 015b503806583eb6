"""Answers of many workers in words, in both languages."""

import pytest

from holdfast.core.answer_groups import Answer, answer_groups
from holdfast.model.calls import CallPlace, CallPlaces
from holdfast.views.exec import LINES_SHOWN_MAX, Asked, plan, report

PLACES = (
    *(CallPlace(node=f"gpu-{worker:02}", worker=worker) for worker in range(8)),
    CallPlace(node="spare-1"),
    CallPlace(node="spare-2", why_not="the agent of this node is not connected"),
)
COMMAND = ("sh", "-c", "cat /proc/loadavg\nexit 3")
ASKED = Asked(CallPlaces(call="c", job="llama", attempt=2, places=PLACES), COMMAND, 90.0, False)


def answer(worker, outcome="exited", **more):
    place = PLACES[worker]
    given = {"code": 0, "output": b"fine\n"} if outcome == "exited" else {}
    return Answer(node=place.node, worker=place.worker, outcome=outcome, took_s=0.0431, **(given | more))


ANSWERS = [
    answer(0),
    answer(1),
    answer(2, code=-9, output=b"\x1b[2Jhalf of\ta line"),
    answer(3, "timed-out", code=-15, output=b"begun\n"),
    answer(4, "ran-away", output=b"y\ny\n", cut_bytes=7_000_000),
    answer(5, code=127, output=b"", why="no-such: No such file or directory"),
    answer(6, "cancelled"),
    answer(7, "not-started", why="8 calls run on it already"),
    answer(8),
    answer(9, "not-reached", why="the agent of this node is not connected"),
]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_ending_has_its_words(golden, language):
    lines = [*plan(ASKED, language), "", *report(ASKED, answer_groups(ANSWERS), language)]
    golden(f"exec-{language}.txt", "\n".join(lines) + "\n")


def test_a_long_answer_is_cut_and_says_so():
    output = b"line\n" * (LINES_SHOWN_MAX + 7)
    lines = list(report(ASKED, answer_groups([answer(0, output=output)]), "en"))
    assert lines[-1] == "    ... and 7 more lines; --json shows them"
    assert lines[0] == "job llama, attempt 2: one answer of 8 workers (0-7) and 2 other nodes"
