"""Questions that may never be answered."""

import threading

import pytest

from holdfast.observe.host.aside import Aside


class Time:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def threads():
    return [one for one in threading.enumerate() if one.name == "holdfast-test"]


@pytest.fixture
def aside():
    made = []

    def make(read, clock=None):
        made.append(Aside(read, "holdfast-test", clock or Time()))
        return made[-1]

    yield make
    for one in made:
        one.close(10)


def test_the_last_answer_and_its_age(aside):
    clock = Time()
    numbers = iter(range(10))
    one = aside(lambda: next(numbers), clock)
    assert one.last() is None and not threads()
    assert one.ask() and one.wait(60)
    clock.now_s += 3
    assert one.last() == (0, 3.0)
    assert one.ask() and one.wait(60)
    assert one.last() == (1, 0.0)


def test_what_hangs_is_not_asked_again_and_its_last_answer_stays(aside):
    clock, go_on = Time(), threading.Event()
    calls = []

    def read():
        calls.append(None)
        if len(calls) == 2:
            go_on.wait(10)
        return len(calls)

    one = aside(read, clock)
    one.ask() and one.wait(60)
    assert one.ask()
    clock.now_s += 60
    assert not one.ask() and not one.ask()
    assert one.last() == (1, 60.0) and one.stuck_s() == 60.0
    go_on.set()
    assert one.wait(60) and one.stuck_s() == 0.0
    assert one.last() == (2, 0.0) and len(calls) == 2


def test_what_fails_says_why_and_is_asked_again(aside):
    answers = iter([OSError("no driver"), 5])

    def read():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    one = aside(read)
    one.ask() and one.wait(60)
    assert one.last() is None and one.why_not == "no driver"
    one.ask() and one.wait(60)
    assert one.last().value == 5 and one.why_not == ""


def test_closing_leaves_behind_what_hangs():
    go_on = threading.Event()
    one = Aside(lambda: go_on.wait(10), "holdfast-test")
    one.ask()
    one.close(0.01)
    assert not one.ask()
    go_on.set()
    one.close(10)
    assert not threads()
