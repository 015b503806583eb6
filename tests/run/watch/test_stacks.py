"""`holdfast stacks` from another terminal, beside the Holdfast that runs the job."""

import json

from run.place import state, wait_for


def test_a_healthy_job_is_looked_at_and_goes_on(place):
    run = place.ranks(3).prints("step 3 ")
    look = place.start("stacks", "t", "--json", "--all-threads")
    assert look.code() == 0, look.err
    answer = json.loads(look.out)
    assert sorted(rank for group in answer["groups"] for rank in group["ranks"]) == [0, 1, 2]
    assert answer["missing"] == []
    assert all("training.py:" in group["own_frame"] for group in answer["groups"])
    place.go()
    assert run.code() == 0, run.err
    after = place.start("stacks", "t")
    assert (after.code(), after.out) == (1, "")
    assert after.err == "holdfast: job t is not running; it has ended (succeeded): see holdfast log t\n"
    place.nothing_left()


def test_the_rank_that_others_wait_for_comes_first(place):
    run = place.ranks(3).prints("step 3 ")
    place.do(1, "sleep 10000")
    pid = place.given(1, 1)["pid"]
    wait_for("rank 1 to sleep", lambda: not (place.path / "do-1").exists())

    def looked():
        look = place.start("stacks", "t", "--json")
        assert look.code() == 0, look.err
        groups = json.loads(look.out)["groups"]
        return [(group["ranks"], group["own_frame"].rpartition(" ")[2]) for group in groups]

    wait_for("two stacks", lambda: looked() == [([1], "trouble"), ([0, 2], "wait_for_others")])
    wait_for("it to sleep on", lambda: state(pid) == "S")
    run.signal(15)
    run.code()
    place.nothing_left()
