"""Holdfast itself is killed: nothing is left, or, detached, nothing is lost."""

import os
import signal

from holdfast.journal.rows import VERSION_KEY
from holdfast.journal.store import Store
from run.place import wait_for

COUNTING = """
import os, sys, time
n = 0
while not os.path.exists(os.environ["NOTES"] + "/go"):
    n += 1
    print("line", n, flush=True)
    time.sleep(0.02)
print("last", n, flush=True)
sys.exit(int(open(os.environ["NOTES"] + "/go").read() or 0))
"""


def go(place, code=0):
    part = place.path / "part"
    part.write_text(str(code))
    part.rename(place.path / "go")


def test_nothing_is_left_when_it_is_killed(place):
    run = place.ranks(2).prints("step 3 ")
    run.kill()
    place.nothing_left()


def test_detached_training_goes_on_and_is_taken_up_again(place):
    run = place.ranks(2, "--detach").prints("step 3 ")
    run.kill()
    size = (place.worker() / "stdout").stat().st_size
    wait_for("more steps", lambda: (place.worker() / "stdout").stat().st_size > size + 100)
    again = place.start("attach", "t").says("reattached to t in attempt 1").prints("step ")
    place.go()
    assert again.code() == 0, again.err
    place.nothing_left()
    kinds = [event["kind"] for event in place.events()]
    assert "controller-resumed" in kinds
    assert len([kind for kind in kinds if kind == "attempt-started"]) >= 1
    assert place.events("verdict-reached") == []


def test_what_was_printed_while_nobody_watched_is_in_the_index(place):
    run = place.python(COUNTING, "--detach").prints("line 5\n")
    run.kill()
    size = (place.worker() / "stdout").stat().st_size
    wait_for("more lines", lambda: (place.worker() / "stdout").stat().st_size > size + 300)
    again = place.start("attach", "t").says("reattached to")
    go(place)
    assert again.code() == 0
    logs = place.start("logs", "t")
    assert logs.code() == 0
    lines = (place.worker() / "stdout").read_text().splitlines()
    assert [line.rpartition("line ")[2] for line in logs.out.splitlines() if "line " in line] == [
        line.rpartition("line ")[2] for line in lines if "line " in line
    ]


def test_a_failure_after_taking_it_up_is_recovered_from(place):
    flags = ("--detach", "--max-restarts", "3", "--unconditional-restart")
    run = place.ranks(2, *flags, WHO="first").prints("step 3 ")
    run.kill()
    assert (place.job() / "environment").stat().st_mode & 0o777 == 0o600
    again = place.start("attach", "t", WHO="second").says("reattached to")
    place.kill_rank(1)
    assert place.given(0, 2)["HOLDFAST_ATTEMPT"] == "2"
    assert place.given(0, 2)["WHO"] == "first"  # not that of the shell it was taken up from
    place.go()
    assert again.code() == 0, again.err
    assert not (place.job() / "environment").exists()
    place.nothing_left()


def test_a_rank_that_died_while_nobody_watched(place):
    run = place.ranks(2, "--detach", "--max-restarts", "3", "--unconditional-restart").prints("step 3 ")
    run.kill()
    place.kill_rank(1)
    wait_for(
        "the end of attempt 1", lambda: '"command-exited"' in (place.worker() / "reaper.jsonl").read_text()
    )
    again = place.start("attach", "t").says("reattached to")
    assert place.given(0, 2)["HOLDFAST_ATTEMPT"] == "2"
    place.go()
    assert again.code() == 0, again.err
    verdict = place.events("verdict-reached")[0]["verdict"]
    assert [culprit["rank"] for culprit in verdict["culprits"]] == [1]


def test_success_while_nobody_watched(place):
    run = place.python(COUNTING, "--detach").prints("line 5\n")
    run.kill()
    go(place)
    place.nothing_left()
    again = place.start("attach", "t")
    assert again.code() == 0, again.err
    assert "succeeded" in again.err
    last = place.start("attach", "t")
    assert last.code() == 0
    assert "has ended: succeeded" in last.err


def test_failure_while_nobody_watched(place):
    run = place.python(COUNTING, "--detach").prints("line 5\n")
    run.kill()
    go(place, 3)
    place.nothing_left()
    again = place.start("attach", "t")
    assert again.code() == 3, again.err
    assert "failed" in again.err
    assert place.start("attach", "t").code() == 3


def test_a_reaper_killed_too_is_reported(place):
    """Both are gone: what is known is said, and a restart is possible."""
    run = place.python(COUNTING, "--detach", "--max-restarts", "3", "--unconditional-restart").prints(
        "line 5\n"
    )
    reaper = wait_for("the reaper's first line", place.facts)[0]["reaper"]
    assert reaper in place.left()
    run.kill()
    os.kill(reaper, signal.SIGKILL)
    place.nothing_left()
    again = place.start("attach", "t").says("reattached to").prints("line 5\n")
    go(place)
    assert again.code() == 0, again.err
    assert "reaper" in again.err


def test_a_job_that_is_supervised_cannot_be_taken_up(place):
    run = place.python(COUNTING).prints("line 5\n")
    other = place.start("attach", "t")
    assert other.code() == 2
    assert f"process {run.pid}" in other.err
    go(place)
    assert run.code() == 0


def test_two_runs_with_one_name(place):
    run = place.python(COUNTING).prints("line 5\n")
    other = place.shell("true")
    assert other.code() == 2
    assert f"process {run.pid}" in other.err
    assert "Traceback" not in other.err
    go(place)
    assert run.code() == 0
    third = place.shell("true")
    assert third.code() == 2
    assert "exists" in third.err


def test_a_job_that_is_not_there(place):
    run = place.start("attach", "nowhere")
    assert run.code() == 2
    assert "no job nowhere" in run.err


def test_attaching_where_no_job_is(place):
    run = place.start("attach")
    assert run.code() == 2
    assert "Traceback" not in run.err


def test_a_journal_of_a_newer_version_is_refused(place):
    assert place.shell("true").code() == 0
    journal = Store.open(place.job() / "journal.db")
    journal.set_meta(VERSION_KEY, b"99")
    journal.close()
    for word in ("attach", "log", "status"):
        run = place.start(word, "t")
        assert run.code() != 0, word
        assert "newer" in run.err, (word, run.err)
        assert "Traceback" not in run.err


def test_killed_and_taken_up_again_and_again(place):
    """At any moment: the journal's numbers have no gap (place.events looks), the end is right."""
    place.python(COUNTING, "--detach").prints("line 5\n").kill()
    for _ in range(6):
        place.start("attach", "t").says("reattached to").kill()
    again = place.start("attach", "t").says("reattached to")
    go(place)
    assert again.code() == 0
    assert (
        1 <= len(place.events("controller-resumed")) <= 7
    )  # killed before it was written down, some of them
