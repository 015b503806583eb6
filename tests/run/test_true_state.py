"""The state of a real job after something of it was killed: right within ten seconds, and never "training" of a dead one."""

import json
import signal
import time

import pytest

RIGHT_S = 100.0  # a guard, for a busy machine


def told(place):
    run = place.start("status", "t", "--json")
    assert run.code() == 0, run.err
    return json.loads(run.out)


def becomes(place, state, *, but_never=()):
    """Waits for the state; the answers until then."""
    until_s = time.monotonic() + RIGHT_S
    while (found := told(place))["state"] != state:
        assert found["state"] not in but_never
        assert time.monotonic() < until_s, f"{found['state']}, not {state}:\n{place.runs[0].err}"
    return found


def test_the_supervisor_is_killed(place):
    run = place.ranks(2).prints("step 3 ")
    assert told(place)["state"] == "training"
    run.kill()
    place.nothing_left()
    found = becomes(place, "dead", but_never=("training", "unsupervised"))
    assert found["supervisor"] is None
    assert (found["steps"] or {"now": {}})["now"].get("eta_s") is None
    shown = place.start("status", "t")
    assert shown.code() == 0
    assert "phase      dead: its supervisor and its ranks have ended since " in shown.out
    assert "training" not in shown.out.replace("training.py", "")
    assert "eta" not in [line.split()[0] for line in shown.out.splitlines()]
    assert "0 (gone), 1 (gone)" in shown.out
    why = place.start("why", "t")
    assert why.code() == 0
    assert why.out.startswith("Dead: its supervisor and its ranks have ended since ")
    assert "holdfast attach t" in " ".join(why.out.split("\n\n")[0].split())


def test_detached_ranks_go_on_unsupervised_until_they_are_killed_too(place):
    run = place.ranks(2, "--detach").prints("step 3 ")
    run.kill()
    found = becomes(place, "unsupervised", but_never=("dead",))
    assert "its ranks still run" in found["summary"]["phase_words"]
    shown = place.start("status", "t")
    assert shown.code() == 0
    assert "phase      unsupervised since " in shown.out
    assert "gone" not in shown.out
    place.kill_all()
    place.nothing_left()
    becomes(place, "dead", but_never=("training", "unsupervised"))


def test_everything_is_killed_at_once(place):
    place.ranks(2, "--detach").prints("step 3 ")
    place.kill_all()
    place.nothing_left()
    becomes(place, "dead", but_never=("training", "unsupervised"))


@pytest.mark.parametrize(("number", "state"), [(signal.SIGTERM, "stopped"), (signal.SIGINT, "stopped")])
def test_a_job_that_was_asked_to_stop(place, number, state):
    run = place.ranks(2).prints("step 3 ")
    run.signal(number)
    run.code()
    found = becomes(place, state)
    assert found["summary"]["ended_by"] == "signal"
    why = place.start("why", "t")
    assert why.code() == 0
    assert why.out.startswith("Stopped at ")
    assert f"{signal.Signals(number).name} was sent to Holdfast" in why.out


def test_killed_ranks_are_a_failure_and_no_stop(place):
    run = place.ranks(2).prints("step 3 ")
    place.kill_rank(1)
    assert run.code() != 0
    becomes(place, "failed")
    document = place.start("why", "t", "--json")
    assert document.code() == 0
    incident = json.loads(document.out)
    assert incident["row"]["category"] == "process_killed"
    assert [who["rank"] for who in incident["row"]["who"]] == [1]
    assert "Rank 1 was killed by an unknown process" in incident["row"]["sentence"]["text"]["en"]
    assert any(row["kind"] == "exit" for row in incident["evidence"])
    assert incident["has_bundle"]


def test_taken_up_again_it_trains(place):
    place.ranks(2, "--detach").prints("step 3 ").kill()
    becomes(place, "unsupervised")
    again = place.start("attach", "t").says("reattached to t")
    becomes(place, "training")
    place.go()
    assert again.code() == 0
    becomes(place, "succeeded")
