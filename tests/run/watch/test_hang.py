"""Real ranks of PyTorch that hang, and one that only takes long: what is told of them, never how soon."""

import signal
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

TRAINING = Path(__file__).parents[3] / "bench" / "hang" / "training.py"
STRUCK, AT, STEPS = 1, 40, 60
LONG_S = 250  # importing torch on a busy machine, and then the detector's patience


@pytest.fixture
def training(place):
    """Starts the bench's training under `holdfast run`, with one fault or one pause in rank 1 at step 40."""

    def start(kind, *words, ranks=2, torchrun=False):
        flags = ["--no-hang-restart", "--grace", "1s"]
        what = ["--folder", place.path, "--shape", "sums", "--kind", kind, "--ranks", STRUCK, "--at", AT]
        if torchrun:
            return place.run(*flags, "--nproc-per-node", ranks, TRAINING, *what, *words, OMP_NUM_THREADS=1)
        return place.real_ranks(ranks, TRAINING, *what, *words, flags=flags, OMP_NUM_THREADS=1)

    return start


def the_verdict(place, run):
    """Of the only incident. A hang that is not restarted is left as it is, so that people can look: ended here."""
    run.says("verdict:", LONG_S)
    if run.process.poll() is None:
        run.signal(signal.SIGTERM)
    run.code(LONG_S)
    place.nothing_left()
    (event,) = place.events("verdict-reached")
    return event["verdict"]


def culprits(verdict):
    return [culprit.get("rank") for culprit in verdict["culprits"]]


def test_a_stopped_rank_is_named(place, training):
    verdict = the_verdict(place, training("sigstop"))
    assert verdict["category"] == "process_stopped"
    assert culprits(verdict) == [STRUCK]
    assert [hang["hang"] for hang in place.events("hang-found")] == ["stopped"]


def test_a_sleeping_rank_is_named_with_its_own_line(place, training):
    verdict = the_verdict(place, training("sleep", ranks=3, torchrun=True))
    assert verdict["category"] == "collective_missing_rank"
    assert culprits(verdict) == [STRUCK]
    assert f"rank {STRUCK} sleeps at faults.py:" in verdict["title"]
    assert "2 ranks wait for it" in verdict["title"]


def test_a_rank_that_leaves_quietly_is_named_not_those_that_lose_it(place, training):
    assert culprits(the_verdict(place, training("exit"))) == [STRUCK]


def test_a_rank_that_writes_a_checkpoint_while_others_wait_is_no_hang(place, training):
    run = training("checkpoint", "--seconds", "10", "--steps", STEPS)
    assert run.code(LONG_S) == 0, run.err
    place.nothing_left()
    assert not place.events("hang-found")
    assert not place.events("verdict-reached")
