"""Real ranks that break: found at once, told why, started again with the right counters."""

import os
import signal

from run.place import WAIT_S, wait_for


def test_a_killed_rank_is_started_again_with_right_counters_and_a_fresh_port(place):
    run = place.ranks(3, "--max-restarts", "2", "--unconditional-restart").prints("step 3 ")
    for attempt in (1, 2):
        place.kill_rank(1, attempt)
        place.given(1, attempt + 1)
        wait_for("steps again", lambda n=attempt: run.out.count("step 3 ") > n)
    place.go()
    assert run.code() == 0, run.err

    given = [place.given(0, attempt) for attempt in (1, 2, 3)]
    assert [one["HOLDFAST_ATTEMPT"] for one in given] == ["1", "2", "3"]
    assert [one["MA_SCHEDULE_CNT"] for one in given] == ["1", "2", "3"]
    assert [one["MA_PROC_START_CNT"] for one in given] == ["1", "1", "1"]
    assert len({one["MASTER_PORT"] for one in given}) == 3
    assert (given[0]["NNODES"], given[0]["NODE_RANK"]) == ("1", "0")
    assert given[0]["HOLDFAST_STATE_DIR"] == str(place.state)
    first = place.events("verdict-reached")[0]["verdict"]
    assert [culprit["rank"] for culprit in first["culprits"]] == [1]
    exits = place.events("rank-exited")
    assert (exits[0]["rank"], exits[0]["code"]) == (1, -9)
    assert "training again" in run.err


def test_without_restarts_the_commands_own_code_comes_back(place):
    run = place.ranks(2).prints("step 3 ")
    place.kill_rank(1)
    assert run.code() == 1  # the launcher's
    place.nothing_left()
    assert place.events("verdict-reached")


def test_a_failed_rank_is_a_failure_at_once_though_its_launcher_waits_on(place):
    run = place.ranks(3, lame=True).prints("step 3 ")
    place.do(2, "exit 7")
    assert run.code() in (1, 7), run.err
    place.nothing_left()
    exit_, verdict = place.events("rank-exited")[0], place.events("verdict-reached")[0]
    assert (exit_["rank"], exit_["code"]) == (2, 7)
    kinds = [event["kind"] for event in place.events()]
    assert kinds.index("verdict-reached") < kinds.index("worker-exited"), kinds
    assert "hang-found" not in kinds  # which would have ended the wait, too
    assert [culprit["rank"] for culprit in verdict["verdict"]["culprits"]] == [2]


def test_the_first_to_break_is_named_not_who_complains(place):
    """Rank 1 ends with an error; rank 0 finds out later and complains at length."""
    run = place.ranks(2, lame=True).prints("step 3 ")
    place.do(0, "after 1\nsleep 2\nraise Connection closed by peer [127.0.0.1]:29500")
    wait_for("rank 0 does it", lambda: not (place.path / "do-0").exists())
    place.do(1, "raise bad sample 17")
    run.code()
    verdict = place.events("verdict-reached")[0]["verdict"]
    assert [culprit["rank"] for culprit in verdict["culprits"]] == [1], (verdict, run.err)
    assert "bad sample 17" in verdict["title"] + str(verdict)


def test_code_at_fault_fails_fast_though_restarts_are_left(place):
    run = place.shell(
        "python3 -S -c 'import no_such_module_here'", "--max-restarts", "20", "--unconditional-restart"
    )
    assert run.code() == 1
    assert 2 <= len(place.events("attempt-started")) <= 5, run.err


def test_a_stopped_rank_is_found_and_the_hang_restarted(place):
    run = place.ranks(2, "--hang-restart").prints("step 20 ")
    pid = place.given(1, 1)["pid"]
    os.kill(pid, signal.SIGSTOP)
    run.says("hang (stopped)")
    assert place.given(1, 2)["MA_PROC_START_CNT"] == "2"
    assert place.given(1, 2)["MA_SCHEDULE_CNT"] == "1"
    place.go()
    assert run.code() == 0
    assert place.events("hang-found")[0]["culprits"] == [1]


def test_a_rank_asleep_is_found(place):
    run = place.ranks(3, "--hang-restart").prints("step 60 ")
    place.do(1, "sleep 10000")
    run.says("hang (")
    place.given(1, 2)
    place.go()
    assert run.code() == 0
    assert place.events("hang-found")[0]["culprits"] == [1]


def test_a_hang_without_hang_restart_is_reported_and_the_training_left_alone(place):
    run = place.ranks(2).prints("step 20 ")
    pid = place.given(1, 1)["pid"]
    os.kill(pid, signal.SIGSTOP)
    run.says("hang (stopped)").says("action:")
    if run.process.poll() is None:
        os.kill(pid, signal.SIGCONT)
    place.go()
    assert run.code() == 0, run.err
    assert len(place.events("attempt-started")) == 1


def test_shadow_decides_and_does_not_act(place):
    run = place.ranks(2, "--shadow", "--max-restarts", "3", "--unconditional-restart").prints("step 3 ")
    place.kill_rank(1)
    assert run.code() == 1
    assert "shadow: would" in run.err
    assert len(place.events("attempt-started")) == 1
    place.nothing_left()


def test_shadow_leaves_a_hang_alone(place):
    run = place.ranks(2, "--shadow", "--hang-restart").prints("step 20 ")
    pid = place.given(1, 1)["pid"]
    os.kill(pid, signal.SIGSTOP)
    run.says("shadow: would")
    os.kill(pid, signal.SIGCONT)
    place.go()
    assert run.code() == 0


def test_keep_on_failure_holds_what_is_left_and_then_ends_it(place):
    run = place.ranks(2, "--keep-on-failure", "5s", lame=True).prints("step 3 ")
    place.do(1, "exit 7")
    run.says("action: fail")
    assert run.code() in (1, 7)
    place.nothing_left()
    (failed,), ended = place.events("verdict-reached"), place.events()[-1]
    assert ended["kind"] == "attempt-stopped"
    assert ended["at_s"] - failed["at_s"] > 4.9
    assert [event["rank"] for event in place.events("rank-exited")] == [
        1
    ]  # the other lived until it was ended


def test_many_quick_restarts_leave_no_descriptor_and_no_zombie(place):
    """Twenty attempts by one Holdfast: it holds no more of anything at the last than at the third."""
    script = """
        echo start >>$NOTES/starts; n=$(wc -l <$NOTES/starts)
        echo "step $((n * 100)) loss 1"; sleep 0.1
        [ $n = 3 ] || [ $n = 20 ] && until [ -e $NOTES/go-$n ]; do sleep 0.02; done
        [ $n = 20 ] || kill -9 $$
    """
    run = place.shell(script, "--max-restarts", "64", "--unconditional-restart")

    def held():
        return len(os.listdir(f"/proc/{run.pid}/fd"))

    def starts(count, wait_s=WAIT_S):
        wait_for(lambda: f"{count} starts:\n{run.err}", lambda: len(place.notes("starts")) == count, wait_s)
        run.prints(f"step {count * 100} ")

    starts(3)
    at_third = held()
    (place.path / "go-3").touch()
    starts(20, wait_s=400)
    # What belongs to the attempt before may take a moment to go.
    wait_for(lambda: f"{at_third} descriptors, not {held()}", lambda: held() <= at_third + 1)
    wait_for(lambda: f"the children to go: {_children(run.pid)}", lambda: len(_children(run.pid)) <= 2)
    (place.path / "go-20").touch()
    assert run.code() == 0, run.err


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


def test_a_rank_that_lives_on_when_another_has_ended_well_is_an_exit_hang(place):
    """One rank ends with 0 and its launcher waits for the other, which waits for nobody."""
    run = place.ranks(2, "--hang-timeout", "6s", "--hang-restart", lame=True).prints("step 20 ")
    place.do(0, "exit 0")
    run.says("hang (exit-hang)")
    place.given(1, 2)
    place.go()
    assert run.code() == 0, run.err
    found = [event for event in place.events("hang-found") if event["hang"] == "exit-hang"]
    assert found[0]["culprits"] == [1]
