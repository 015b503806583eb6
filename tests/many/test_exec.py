"""Commands, stacks and logs of a whole job on several nodes, asked for from another terminal."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from many.whole_job import LONG_S, WholeJob
from run.place import HOLDFAST, is_over, wait_for

RESTARTS = ("--max-restarts", 9, "--unconditional-restart")


@pytest.fixture
def job(tmp_path, cache_home):
    one = WholeJob(tmp_path, cache_home)
    yield one
    one.end()


def ask(job, *words):
    """Its exit code, stdout and stderr."""
    done = subprocess.run(
        [HOLDFAST, *words], env=job.env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    return done.returncode, done.stdout, done.stderr


def execs(job):
    return [event["text"] for event in job.events("finding-noted") if event["finding"] == "exec"]


def test_every_worker_answers_from_beside_its_training(job):
    job.train(workers=3)
    job.trains()
    words = ["exec", "t", "--yes", "--json", "--", "sh", "-c"]
    code, out, _ = ask(job, *words, 'echo "$HOLDFAST_NODE $NODE_RANK ${RANK-none}"; pwd')
    placed = job.placed()
    answers = {group["workers"][0]: group["output"].splitlines() for group in json.loads(out)["groups"]}
    assert code == 0
    assert answers == {worker: [f"{placed[worker]} {worker} none", str(job.path)] for worker in range(3)}
    code, out, _ = ask(job, *words, "if [ $NODE_RANK = 1 ]; then exit 4; fi")
    groups = json.loads(out)["groups"]
    assert (code, [(group["code"], group["ranges"]) for group in groups]) == (1, [(4, "1"), (0, "0,2")])
    spare = ({"node-0", "node-1", "node-2", "node-3"} - set(placed)).pop()
    words = ["exec", "t", "--nodes", spare, "--", "sh", "-c", "echo $HOLDFAST_NODE"]
    # The spare may connect later than the workers.
    wait_for(lambda: f"an answer:\n{job.said()}", lambda: ask(job, *words)[:2] == (0, f"{spare}\n"), LONG_S)
    wait_for("its third line in the journal", lambda: len(execs(job)) >= 3)
    assert job.events("finding-noted")[-1]["attempt"] == 1
    job.ends_well()
    code, _, err = ask(job, "exec", "t", "--", "true")
    assert code == 1 and "job t is not running; it has ended (succeeded)" in err


def test_stacks_and_logs_of_all_workers(job):
    job.train(workers=3, spares=0)
    job.trains()
    answer = json.loads(ask(job, "stacks", "t", "--json")[1])
    assert sorted(rank for group in answer["groups"] for rank in group["ranks"]) == [0, 1, 2]
    assert all("train" in "".join(group["frames"]) for group in answer["groups"])
    answer = json.loads(ask(job, "stacks", "t", "--json", "--worker", "1")[1])
    assert [group["ranks"] for group in answer["groups"]] == [[1]]
    lines = [json.loads(line) for line in ask(job, "logs", "t", "--json")[1].splitlines()]
    assert [line["at_s"] for line in lines] == sorted(line["at_s"] for line in lines)
    assert {line["worker"] for line in lines if "step" in line["text"]} == {0}
    assert ask(job, "logs", "t", "--worker", "1-2", "--grep", "step")[1] == ""
    job.ends_well()


def test_a_command_neither_holds_a_restart_up_nor_ends_with_it(job, tmp_path):
    """It is no process of the attempt, though it runs in its folder and environment."""
    job.train(*RESTARTS, workers=2, spares=0)
    job.trains()
    pid = tmp_path / "pid"
    words = [
        "exec",
        "t",
        "--workers",
        "1",
        "--timeout",
        "1h",
        "--",
        "sh",
        "-c",
        f"echo $$ > {pid}; sleep inf",
    ]
    client = subprocess.Popen([HOLDFAST, *words], env=job.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for("the command", lambda: pid.exists() and pid.read_text().strip())
        job.kill_rank(0)
        job.trains(attempt=2)
        assert not is_over(int(pid.read_text()))
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=LONG_S)
    finally:
        client.kill()
        client.communicate()
    assert client.returncode == 130
    wait_for("its end", lambda: is_over(int(pid.read_text())))
    job.ends_well()
    assert "leftovers" not in job.findings()


def test_a_controller_that_dies_ends_what_was_asked_and_the_next_one_answers(job, tmp_path):
    run = job.train("--detach", workers=2, spares=0)
    job.trains()
    pid = tmp_path / "pid"
    words = [
        "exec",
        "t",
        "--workers",
        "1",
        "--timeout",
        "1h",
        "--",
        "sh",
        "-c",
        f"echo $$ > {pid}; sleep inf",
    ]
    client = subprocess.Popen([HOLDFAST, *words], env=job.env, stderr=subprocess.PIPE, text=True)
    try:
        wait_for("the command", lambda: pid.exists() and pid.read_text().strip())
        run.kill()
        _, err = client.communicate(timeout=LONG_S)
    finally:
        client.kill()
        client.communicate()
    assert client.returncode == 1
    assert "the connection to the controller of job t was lost" in err
    wait_for("its end", lambda: is_over(int(pid.read_text())))
    job.attach()
    job.trains()

    def answered():
        code, out, _ = ask(job, "exec", "t", "--workers", "1", "--", "echo", "here")
        return code == 0 and out == "here\n"

    wait_for(lambda: f"an answer:\n{job.said()}", answered, LONG_S)
    job.ends_well()


def test_a_job_of_one_machine_listens_only_once_it_is_asked(job):
    training = Path(__file__).with_name("training.py")
    run = job.run("--", sys.executable, "-S", training, 1, NNODES=1, NODE_RANK=0)
    job.trains()
    assert not (job.job() / "controller.json").exists()
    assert not (job.job() / "secret").exists()
    code, out, err = ask(job, "exec", "t", "--", "sh", "-c", "echo $HOLDFAST_ATTEMPT; exit 5")
    assert (code, out, err) == (5, "1\n", "")
    assert (job.job() / "secret").stat().st_mode & 0o777 == 0o600
    code, out, _ = ask(job, "exec", "t", "--workers", "0", "--", "echo", "again")
    assert (code, out) == (0, "again\n")
    wait_for("both lines in the journal", lambda: len(execs(job)) == 2)
    job.go()
    assert run.code(LONG_S) == 0
    assert not (job.job() / "controller.json").exists()
    assert not (job.job() / "secret").exists()


def test_the_next_holdfast_of_a_job_of_one_machine_is_asked_like_the_first(job):
    """What the first one left behind (a port that nobody has any more) misleads nobody."""
    training = Path(__file__).with_name("training.py")
    run = job.run("--detach", "--", sys.executable, "-S", training, 1, NNODES=1, NODE_RANK=0)
    job.trains()
    assert ask(job, "exec", "t", "--", "true")[0] == 0
    run.kill()
    code, _, err = ask(job, "exec", "t", "--", "true")
    assert (code, err) == (1, "holdfast: job t has no supervisor now: reattach with holdfast attach t\n")
    assert (job.job() / "controller.json").exists()
    taken_up = job.attach()
    taken_up.says("reattached to t")
    code, out, err = ask(job, "exec", "t", "--", "echo", "here")
    assert (code, out, err) == (0, "here\n", "")
    job.go()
    assert taken_up.code(LONG_S) == 0


def test_logs_are_followed_over_workers_and_attempts(job):
    job.train(*RESTARTS, workers=2, spares=0)
    job.trains()
    words = [HOLDFAST, "logs", "t", "--follow", "--json", "--grep", "^step|Traceback"]
    with subprocess.Popen(words, env=job.env, stdout=subprocess.PIPE, text=True) as follower:
        job.kill_rank(1)
        job.trains(attempt=2)
        job.go()
        lines = [json.loads(line) for line in follower.stdout]
    assert job.runs[-1].code(LONG_S) == 0
    steps = {number: [one for one in lines if one["attempt"] == number] for number in (1, 2)}
    assert all(steps.values())
    for found in steps.values():
        assert [one["text"] for one in found] == list(dict.fromkeys(one["text"] for one in found))
