"""Rounds on real workers: torch and gloo in processes of this machine, one of them gone, frozen or without torch."""

import os
import signal
import sys
from pathlib import Path

import pytest

from holdfast.checks.remote import BadVia
from holdfast.checks.training_python.pairs import PairRun, Settings, what_of
from holdfast.cli.checking.pairs import BadOption, answers_of, check_pairs, with_pairs
from holdfast.core.checks.pairs.results import Limits
from holdfast.core.checks.pairs.verdict import verdict
from holdfast.model.checks import FAIL, PASS, SKIP, NodeChecks, Outcome

SIZES = (1 << 10, 1 << 18)
LIMITS = Limits(rounds_min=2, rounds_max=2)
needs_torch = [pytest.mark.torch, pytest.mark.timeout(400)]


def settings(via="env OMP_NUM_THREADS=1 NODE={node}", **more):
    given = {"python": sys.executable, "sizes": SIZES, "limits": LIMITS, "round_s": 20.0, "within_s": 120.0}
    return Settings(via=via, **(given | more))


def pids_of(mark):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


class TestWithTorch:
    pytestmark = needs_torch

    def test_three_nodes_meet_exchange_and_leave_nothing_behind(self):
        names = [f"node-{os.getpid()}-{number}" for number in range(3)]
        done = PairRun(names, settings()).run()
        assert done.measured.rounds == 2 and not done.why_not and not done.late
        for sample in done.measured.pairs:
            assert not sample.error
            assert set(sample.speeds) == {what_of(size) for size in SIZES}
            assert min(sample.speeds.values()) > 0
        assert all(single.compute["cpu"] > 0 and not single.wrong for single in done.measured.singles)
        assert not [pid for name in names for pid in pids_of(f"NODE={name}".encode())]

    def test_a_frozen_worker_is_silent_and_the_others_are_measured(self):
        names = [f"node-{os.getpid()}-f{number}" for number in range(3)]

        def told(number, _chosen):
            if number == 0:
                for pid in pids_of(f"NODE={names[2]}".encode()):
                    os.kill(pid, signal.SIGSTOP)

        one = Limits(rounds_min=1, rounds_max=1)
        # Its partner has to reply to a ping, on a busy machine too.
        patient = settings(round_s=15.0, pong_s=10.0, limits=one)
        done = PairRun([names[2], *names[:2]], patient).run(told)
        silent = {single.node for single in done.measured.singles if single.error}
        assert silent == {names[2]}
        assert not done.measured.pairs  # its partner is not to blame
        assert not pids_of(f"NODE={names[2]}".encode())


def test_a_node_that_cannot_be_reached_is_said_so():
    done = PairRun(["a", "b"], settings(via="false {node}")).run()
    assert set(done.why_not) == {"a", "b"} and "ended with exit code 1" in done.why_not["a"]
    told = verdict(done.measured, LIMITS)
    answers = answers_of(done, told, 1.0)
    assert [answer.outcomes[0].status for answer in answers] == [FAIL, FAIL]
    assert "ended with exit code 1" in answers[0].outcomes[0].findings[0].why


def test_a_program_that_is_not_there_is_said_so():
    done = PairRun(["a"], settings(via="/no/such/program {node}")).run()
    assert "cannot be started" in done.why_not["a"]


def test_a_python_without_torch_says_so(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    done = PairRun(
        ["a"], settings(via=f"env PYTHONPATH={tmp_path}:{os.pathsep.join(sys.path)} NODE={{node}}")
    ).run()
    assert "no torch here" in done.why_not["a"]


def test_a_login_that_greets_and_then_says_nothing_is_given_up(tmp_path):
    words = "sh -c 'echo Welcome to {node}; exec sleep 60'"
    done = PairRun(["a"], settings(via=words, within_s=1.0)).run()
    assert done.why_not["a"] == "the worker did not start in time"


@pytest.mark.parametrize(
    "option", [{"comm-pairs.rounds": "0"}, {"comm-pairs.sizes": "8 apples"}, {"comm-pairs.what": "1"}]
)
def test_options_that_cannot_be_used_are_refused(option):
    with pytest.raises(BadOption, match=r"comm-pairs\."):
        check_pairs(["a", "b"], "env {node}", 1.0, option)


def test_words_without_a_node_are_refused():
    with pytest.raises(BadVia):
        check_pairs(["a", "b"], "ssh", 1.0, {})


def test_the_outcome_of_the_pairs_takes_the_place_of_the_nodes_own():
    own = Outcome(check="comm-pairs", area="comm", status=SKIP)
    other = Outcome(check="host-kernel", area="host", status=PASS)
    found = Outcome(check="comm-pairs", area="comm", status=PASS)
    joined = with_pairs(
        [NodeChecks(node="a", outcomes=(own, other))],
        [NodeChecks(node="a", outcomes=(found,)), NodeChecks(node="spare", outcomes=(found,))],
    )
    assert joined[0].outcomes == (other, found) and joined[1].node == "spare"
