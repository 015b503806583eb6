"""The agent's checks of its node: real suites in real processes, polled as the agent polls them."""

import os
import selectors
import time

import pytest
from msgspec.structs import replace

from agent.running import wait_for
from holdfast.agent.nodes.checks import LATE_TIMES, NodeChecker
from holdfast.checks.baseline_store import baseline_path, read_baseline
from holdfast.checks.last_good import read_last_good, write_last_good
from holdfast.checks.runner import SuiteRun
from holdfast.model.checks import CONTINUOUS, ON_FAILURE, Spec
from holdfast.model.orders import CheckNodes
from holdfast.model.settings import RunSettings
from holdfast.model.signatures import Words
from holdfast.model.verdicts import UNKNOWN

HOST = "n0"
KERNEL = Spec(
    name="host-kernel",
    area="host",
    what=Words(en="kernel", zh="内核"),
    contexts=("boot", "on-failure"),
    quick=True,
)
NO_SUCH = replace(KERNEL, name="host-no-such-check")
QUICK_S = RunSettings(command=(), state_dir="").quick_check_s
SUITE_S = 60.0  # for a suite on a busy machine
QUICK = CheckNodes(attempt=1, nodes=(HOST,), suite="quick")


class Hands:
    """A clock that goes on, and is put forward by hand: a check that does not come back is cut off by it."""

    def __init__(self):
        self.s = 100.0

    def __call__(self):
        return self.s + time.monotonic()


@pytest.fixture
def make(tmp_path):
    """A checker; of the checks named alone, where any are: what the others say depends on the machine."""
    made = []

    def one(*specs, clock=time.monotonic, every_s=300.0, options=(), quick_s=SUITE_S, **more):
        settings = RunSettings(
            command=("true",),
            state_dir=str(tmp_path),
            check_every_s=every_s,
            check_options=options,
            quick_check_s=quick_s,
        )
        if specs:
            more["specs"] = specs
        made.append(NodeChecker(settings, HOST, os.environ, str(tmp_path), lambda: 7.0, clock, **more))
        return made[-1]

    yield one
    for checker in made:
        checker.end()


def answer_of(checker):
    """Polls it as the agent's loop does."""
    until_s = time.monotonic() + 4 * SUITE_S
    while (answer := checker.poll()) is None:
        assert time.monotonic() < until_s, "no answer"
        with selectors.DefaultSelector() as selector:
            for channel in checker.channels():
                selector.register(channel, selectors.EVENT_READ)
            selector.select(0.05)
    return answer


def test_a_boot_check_answers_once_and_learns(make, tmp_path):
    checker = make()
    checker.boot(QUICK, ())
    answer = answer_of(checker)
    assert (answer.context, answer.attempt, answer.nodes, answer.at_s) == ("boot", 1, (HOST,), 7.0)
    assert answer.passed > 0
    assert answer.why_not == ""
    assert checker.poll() is None
    assert checker.channels() == []
    if any(fact.learn for outcome in checker.last["boot"].outcomes for fact in outcome.facts):
        wait_for("what it learned", lambda: read_baseline(baseline_path(tmp_path, HOST)).facts)
    checker.end()


def test_asked_again_while_it_looks_it_goes_on(make):
    checker = make(KERNEL)
    checker.boot(QUICK, ())
    before = checker.channels()
    checker.boot(QUICK, ())
    assert checker.channels() == before
    assert answer_of(checker).passed == 1
    checker.boot(QUICK, ())  # once more after an answer: somebody has not heard it
    assert answer_of(checker).passed == 1


def test_another_question_ends_the_one_before(make):
    checker = make(KERNEL)
    checker.boot(QUICK, ())
    checker.troubleshoot(1, UNKNOWN, 8.0, (), living=True)
    assert checker.runs(ON_FAILURE)
    assert answer_of(checker).context == ON_FAILURE


def test_checks_that_cannot_be_run_are_answered_with_why(make):
    def broken(*args, **more):
        raise OSError("no process can be started")

    checker = make(KERNEL, start=broken)
    checker.boot(QUICK, ())
    answer = checker.poll()
    assert answer.why_not == "OSError: no process can be started; please report it"
    assert (answer.isolate, answer.stop, answer.passed) == ({}, "", 0)


def test_a_process_that_dies_under_a_check_costs_that_check_alone(make):
    checker = make(NO_SUCH, KERNEL)
    checker.boot(QUICK, ())
    answer = answer_of(checker)
    assert (answer.passed, answer.skipped, answer.failed) == (1, 1, 0)


def test_what_is_not_seen_in_time_is_left_out(make):
    hands = Hands()
    checker = make(KERNEL, clock=hands, quick_s=QUICK_S)
    checker.boot(QUICK, ())
    hands.s += LATE_TIMES * QUICK_S + 0.1
    answer = answer_of(checker)
    assert answer.passed + answer.skipped == 1
    assert answer.seconds >= LATE_TIMES * QUICK_S + 0.1


def test_troubleshooting_that_is_cut_short_has_what_came(make):
    checker = make(KERNEL)
    checker.troubleshoot(1, UNKNOWN, 8.0, (), living=False)
    answer = checker.finish()
    assert answer.passed == 0
    assert answer.why_not == "there was no time for any check"
    assert checker.finish() is None


def test_while_it_trains_it_looks_seldom_and_tells_news_once(make):
    hands = Hands()
    checker = make(clock=hands)
    checker.look_again(1, tuple)
    assert checker.channels() == []
    hands.s += 301.0
    checker.look_again(1, tuple)
    assert checker.runs(CONTINUOUS)
    answer = answer_of(checker)
    assert answer.context == CONTINUOUS
    checker.news(answer)
    assert checker.news(answer) == []
    checker.look_again(1, tuple)
    assert not checker.runs(CONTINUOUS)


def test_every_0_s_is_never(make):
    hands = Hands()
    checker = make(clock=hands, every_s=0.0)
    hands.s += 1e6
    checker.look_again(1, tuple)
    assert not checker.runs(CONTINUOUS)


def test_options_reach_the_checks(make, tmp_path):
    scenes = []

    def start(specs, scene, *rest, **more):
        scenes.append(scene)
        return SuiteRun(specs, scene, *rest, **more)

    checker = make(KERNEL, options=("disk-write.bytes=1=2",), start=start)
    write_last_good(tmp_path, HOST, 5000.0)
    checker.boot(QUICK, (42,))
    [scene] = scenes
    assert scene.options == {"disk-write.bytes": "1=2"}
    assert 42 in scene.own_pids
    assert (scene.good_s, scene.quick, scene.training, scene.command) == (5000.0, True, False, ("true",))


def test_what_gives_way_before_its_list_is_read_gives_way_all_the_same(make):
    given_way = []

    class Seen(SuiteRun):
        def give_way(self):
            given_way.append(self)
            super().give_way()

    checker = make(start=Seen)
    checker.troubleshoot(1, UNKNOWN, 60.0, (), living=False)
    checker.give_way()
    with selectors.DefaultSelector() as selector:
        selector.register(checker.channels()[0], selectors.EVENT_READ)
        while not given_way:
            selector.select()
            checker.take_up()
    checker.close()


def test_when_a_step_was_last_made_is_kept_and_a_torn_file_is_none(tmp_path):
    assert read_last_good(tmp_path, HOST) == 0.0
    write_last_good(tmp_path, HOST, 1_700_000_000.4)
    assert read_last_good(tmp_path, HOST) == 1_700_000_000.0
    baseline_path(tmp_path, HOST).with_suffix(".good").write_text("half a num")
    assert read_last_good(tmp_path, HOST) == 0.0
    write_last_good(tmp_path / "a-file" / "below", HOST, 1.0)
    (tmp_path / "no").write_text("")
    write_last_good(tmp_path / "no", HOST, 1.0)
    assert read_last_good(tmp_path / "no", HOST) == 0.0
