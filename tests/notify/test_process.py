"""The processes that notify: of one job and of all jobs, killed at any moment, and under a real `holdfast run`."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from holdfast.model.events import (
    AttemptStarted,
    AttemptStopped,
    Placed,
    RankExited,
    StepReached,
    VerdictReached,
    WorkersPlaced,
)
from holdfast.model.policy import Policy
from notices_kit import BUG, START
from notify.receiver import Receiver, Reply
from notify.test_watching import Job
from run.place import Place

WAIT_S = 100.0
KILLED_TIMES = 6
INCIDENTS = 30


def config(folder, *channels, rules=""):
    path = folder / "notify.toml"
    text = "".join(
        f'[[channel]]\nname = "{name}"\nkind = "webhook"\nurl = "{url}"\nevery = true\n'
        for name, url in channels
    )
    path.write_text(f"silence_s = 0\n{text}{rules}")
    return path


def started(*words, log):
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast.notify", *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )


def incident(number, at_s):
    """A rank is killed, and the next attempt trains."""
    attempt = number
    return (
        RankExited(at_s=at_s, attempt=attempt, worker=0, rank=0, code=-9),
        VerdictReached(at_s=at_s + 0.01, incident=number, verdict=BUG),
        AttemptStopped(at_s=at_s + 0.02, attempt=attempt),
        WorkersPlaced(at_s=at_s + 0.03, attempt=attempt + 1, placed=(Placed(0, "n0"),)),
        AttemptStarted(at_s=at_s + 0.04, attempt=attempt + 1),
        StepReached(at_s=at_s + 0.05, attempt=attempt + 1, step=100 * number + 150),
    )


def keys(receiver):
    return [request.headers["x-holdfast-delivery"] for request in receiver.requests]


@pytest.fixture
def job(tmp_path):
    one = Job(tmp_path, Policy(max_restarts=128, unconditional_restart=True))
    yield one
    one.store.close()


def wait_for(what, is_true):
    until_s = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < until_s, f"waited {WAIT_S:g} s for {what}"
        time.sleep(0.02)


def test_it_is_killed_again_and_again_and_each_incident_is_notified_once(job, tmp_path):
    """Doubled is only what was under way when it was killed, and a receiver that knows the key shows that once."""
    dice = random.Random(5)
    log = tmp_path / "notify.log"
    ids = [f"llama-0/incident-{number}" for number in range(1, INCIDENTS + 1)]

    def seen():
        found = Counter()
        for request in receiver.requests:
            for notice in request.body["joined"] or [request.body["notice"]]:
                found[notice["id"], notice["version"]] += 1
        return found

    with job.dir.lock(), Receiver() as receiver:
        path = config(tmp_path, ("a", receiver.url))
        job.write(*START)
        process = started(job.dir.path, path, log=log)
        killed = 0
        for number in range(1, INCIDENTS + 1):
            job.write(*incident(number, time.time()))
            if number % (INCIDENTS // KILLED_TIMES) == 0:
                more = len(receiver.requests) + dice.randrange(1, 4)
                receiver.wait(lambda requests, more=more: len(requests) >= more)
                process.kill()
                process.wait()
                killed += 1
                process = started(job.dir.path, path, log=log)
        wait_for("all incidents", lambda: {name for name, _ in seen()} >= set(ids))
        process.kill()
        process.wait()
    found = seen()
    newest = {name: max(version for one, version in found if one == name) for name in ids}
    assert len(newest) == INCIDENTS
    unsure = sum(
        int(line.split(" deliveries")[0].rpartition(" ")[2])
        for line in log.read_text().splitlines()
        if "deliveries were in progress" in line
    )
    doubled = sum(count - 1 for count in found.values())
    assert doubled <= unsure, (doubled, unsure)
    assert killed == KILLED_TIMES


def test_it_ends_with_the_job_and_only_one_of_them_runs(tmp_path):
    job = Job(tmp_path, Policy())
    with job.dir.lock(), Receiver() as receiver:
        path = config(tmp_path, ("a", receiver.url))
        job.write(*(one for one in START))
        first = started(job.dir.path, path, log=tmp_path / "log")
        wait_for("its lock", lambda: (job.dir.path / "notify.lock").exists())
        wait_for("the second to leave", lambda: started_and_ended(job, path, tmp_path) == 0)
        now_s = time.time()
        job.write(
            RankExited(at_s=now_s, attempt=1, worker=0, rank=0, code=-9),
            VerdictReached(at_s=now_s, incident=1, verdict=BUG),
            AttemptStopped(at_s=now_s, attempt=1),
        )
        assert first.wait(WAIT_S) == 0
        assert receiver.requests[-1].body["notice"]["event"] == "failed"
    job.store.close()


def started_and_ended(job, path, tmp_path):
    return started(job.dir.path, path, log=tmp_path / "log-2").wait(WAIT_S)


@pytest.mark.parametrize(
    ("text", "said"),
    [("languge = 'en'", "did you mean 'language'?"), ('[[channel]]\nname = "a"\nkind = "slack"', "needs")],
)
def test_a_file_that_cannot_be_used_ends_it_with_the_reason(job, tmp_path, text, said):
    path = tmp_path / "notify.toml"
    path.write_text(text)
    assert started(job.dir.path, path, log=tmp_path / "log").wait(WAIT_S) == 2
    assert said in (tmp_path / "log").read_text()


# All jobs ---------------------------------------------------------------------------------------------


def test_all_jobs_of_a_server_are_notified_and_a_restart_repeats_none(tmp_path):
    root = tmp_path / "state"
    with Receiver() as receiver:
        path = config(tmp_path, ("ops", receiver.url))
        old = job_of(root, "old", time.time() - 3_600)
        process = started("--all", path, root, log=tmp_path / "log")
        wait_for("its start", lambda: (root / "server" / "notify.since").exists())
        for number in range(3):
            job_of(root, f"new-{number}", time.time() + 0.01)
        receiver.wait(lambda _: {"new-0", "new-1", "new-2"} <= told_of(receiver))
        process.kill()
        process.wait()
        before = sorted(set(keys(receiver)))
        process = started("--all", path, root, log=tmp_path / "log")
        job_of(root, "later", time.time() + 0.01)
        receiver.wait(lambda _: "later" in told_of(receiver))
        process.terminate()
        process.wait()
        again = [key for key in keys(receiver) if key in before]
        assert len(again) <= len(before) + 1  # one may have been under way
        assert old.name not in told_of(receiver)


def told_of(receiver):
    found = set()
    for request in receiver.requests:
        found |= {notice["job"] for notice in request.body["joined"] or [request.body["notice"]]}
    return found


def job_of(root, name, at_s):
    """A job that has failed at this time."""
    job = Job(root, Policy(), name)
    job.write(*START)
    job.write(
        RankExited(at_s=at_s, attempt=1, worker=0, rank=0, code=-9),
        VerdictReached(at_s=at_s, incident=1, verdict=BUG),
        AttemptStopped(at_s=at_s, attempt=1),
    )
    job.store.close()
    return job.dir


def test_a_server_notifies_and_its_end_ends_that(tmp_path, cache_home):
    place = Place(tmp_path, cache_home)
    root = tmp_path / "state"
    with Receiver() as receiver:
        path = config(tmp_path, ("ops", receiver.url))
        run = place.start("serve", "--address", "127.0.0.1:0", "--state-dir", root, "--notify", path)
        wait_for("its start", lambda: (root / "server" / "notify.since").exists())
        job_of(root, "llama", time.time() + 0.01)
        receiver.wait(lambda _: "llama" in told_of(receiver))
        children = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True, check=False)
        (child,) = map(int, children.stdout.split())
        run.process.send_signal(signal.SIGKILL)
        run.process.wait()
        wait_for("the end of its child", lambda: not os.path.exists(f"/proc/{child}"))
    place.end()


# A real run -------------------------------------------------------------------------------------------


def test_an_incident_of_a_real_run_reaches_the_receiver(tmp_path, cache_home):
    place = Place(tmp_path, cache_home)
    with Receiver() as receiver, Receiver(lambda request: Reply(500)) as broken:
        path = config(
            tmp_path, ("ops", receiver.url), ("broken", broken.url), rules="[[rule]]\nchannels = ['ops']\n"
        )
        run = place.start(
            "run", "--job", "llama", "--notify", path, "--", sys.executable, "-c", "raise KeyError('x')"
        )
        assert run.process.wait(WAIT_S) == 1
        receiver.wait(
            lambda requests: any(one.body["notice"]["event"] == "failed" for one in requests), WAIT_S
        )
        failed = receiver.requests[-1].body["notice"]
        assert failed["job"] == "llama" and failed["severity"] == "critical"
        assert "KeyError" in failed["sentence"]["text"]["en"]
        assert "(python_exception," in failed["facts"][0][1]["en"]
        events = [one.body["notice"]["event"] for one in receiver.requests]
        assert events[0] == "job-started"
        folder = place.path / "state" / "jobs" / "llama"
        wait_for("its end", lambda: not is_held(next(tmp_path.rglob("jobs/llama/notify.lock"), folder)))
    place.end()


def is_held(lock):
    found = subprocess.run(["flock", "--nonblock", str(lock), "true"], check=False)
    return found.returncode != 0
