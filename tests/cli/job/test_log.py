"""`holdfast log` and `holdfast status`, against journals of the real controller."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cli.journals import (
    COMMAND,
    POLICY,
    START_S,
    failure,
    hang_then_lost_node_then_success,
    one_failure_and_on,
    started,
    steps,
    submitted,
    write_events,
    write_job,
)
from holdfast.controller.loop import replay
from holdfast.journal.jobdir import StateDir
from holdfast.journal.store import Store, open_reader
from holdfast.model.events import DeviceFaulted, HangFound, StopRequested, VerdictReached
from holdfast.model.policy import Policy
from holdfast.model.verdicts import UNKNOWN

SCRIPT = Path(sys.executable).with_name("holdfast")
ALONE = "this job has no supervisor now; reattach with: holdfast attach llama"


def without_place(text, state):
    return text.replace(str(state.root), "STATE")


@pytest.fixture
def job(state):
    return write_job(state, "llama", one_failure_and_on())


def test_the_log_of_a_job_that_failed_once(holdfast, golden, job):
    code, out, err = holdfast("log", "llama")
    golden("log-one-failure.txt", out)
    assert (code, err) == (0, "")
    assert out.endswith(f"{ALONE}\n")


def test_the_log_of_a_hang_and_a_lost_node(holdfast, golden, state):
    write_job(state, "llama", hang_then_lost_node_then_success())
    code, out, err = holdfast("log")
    golden("log-hang-and-lost-node.txt", out)
    assert (code, err) == (0, "")
    assert ALONE not in out


def test_the_status_while_it_runs(holdfast, golden, state, job):
    with job.lock():
        code, out, err = holdfast("status", "llama")
    golden("status-running.txt", without_place(out, state).replace(f"process {os.getpid()}", "process PID"))
    assert (code, err) == (0, "")


def test_the_status_in_the_middle_of_an_incident(holdfast, golden, state):
    events = [submitted(), *started(START_S + 1, 1), *failure(START_S + 50, 1, 1)[:3]]
    with write_job(state, "llama", events).lock():
        code, out, _ = holdfast("status")
    golden("status-incident.txt", without_place(out, state).replace(f"process {os.getpid()}", "process PID"))
    assert code == 0


def test_the_status_of_a_job_whose_supervisor_and_ranks_are_gone(holdfast, golden, state):
    write_job(state, "llama", one_failure_and_on(), host=socket.gethostname())
    code, out, _ = holdfast("status")
    golden("status-dead.txt", without_place(out, state))
    assert code == 0
    assert "training" not in out
    told = json.loads(holdfast("status", "--json")[1])
    assert (told["state"], told["supervisor"]) == ("dead", None)
    assert "training" not in told["summary"]["phase_words"]
    assert "training" not in holdfast("log")[1].splitlines()[0]


def test_the_status_of_a_job_on_a_machine_that_cannot_be_asked(holdfast, state, job):
    out = holdfast("status")[1]
    assert "phase      unknown: no message was received since 2026-01-01 15:23:10, and its machine" in out
    assert json.loads(holdfast("status", "--json")[1])["state"] == "unknown"


def test_the_status_of_a_job_that_ended(holdfast, golden, state):
    write_job(state, "llama", hang_then_lost_node_then_success())
    code, out, _ = holdfast("status")
    golden("status-ended.txt", without_place(out, state))
    assert code == 0


def test_json_is_one_document_with_everything(holdfast, state):
    write_job(state, "llama", hang_then_lost_node_then_success())
    told = json.loads(holdfast("log", "--json")[1])
    summary = told["summary"]
    assert (summary["outcome"], summary["restarts"], summary["hardware_reschedules"]) == ("succeeded", 1, 1)
    first, second = summary["incidents"]
    assert [rung["rung"] for rung in first["rungs"]] == ["hang-restart"]
    assert (first["step_before"], first["step_resumed"], first["steps_lost"]) == (50, 51, 0)
    assert (second["step_before"], second["step_resumed"], second["steps_lost"]) == (100, 95, 6)
    assert second["took_s"] == 30.0
    assert {line["kind"] for line in told["lines"]} >= {
        "job",
        "attempt",
        "finding",
        "verdict",
        "rung",
        "recovered",
    }
    status = json.loads(holdfast("status", "--json")[1])
    assert status["summary"] == summary
    assert status["command"] == list(COMMAND)
    assert status["supervisor"] is None


def test_a_line_for_the_platforms_rule_is_the_platforms_line_and_has_its_numbers(holdfast, job):
    line = (
        "2026-01-01 15:20:58 Smoothed mean (iters 83-87: 9465.00 ms, baseline: 3101.00 ms), "
        "threshold ratio:2.05. Warning"
    )
    assert line in holdfast("log")[1].splitlines()
    lines = json.loads(holdfast("log", "--json")[1])["lines"]
    (told,) = [one for one in lines if one.get("finding") == "slowdown"]
    assert told["numbers"] == {"mean_ms": 9465.0, "baseline_ms": 3101.0}


def test_shadow_says_what_would_have_been_done(holdfast, state):
    events = [submitted(), *started(START_S + 1, 1), *failure(START_S + 50, 1, 1)[:3]]
    shadow = msgspec.structs.replace(POLICY, shadow=True)
    write_job(state, "llama", events, policy=shadow)
    assert "incident 1: shadow: would reschedule the job (restart 1 of " in holdfast("log")[1]


def test_a_journal_that_names_no_policy_is_shown_with_the_defaults_and_says_so(holdfast, state):
    write_job(
        state, "old", [submitted(), *started(START_S + 1, 1), *steps(START_S + 9, 1, 1, 5)], policy=None
    )
    code, out, err = holdfast("log")
    assert code == 0
    assert "maximum restarts: none" in out
    assert err == "holdfast: the journal contains no policy: default settings are assumed\n"


def test_a_job_asked_to_stop(holdfast, state):
    events = [
        submitted(),
        *started(START_S + 1, 1),
        StopRequested(at_s=START_S + 9, reason="SIGTERM was sent to Holdfast", code=143),
    ]
    with write_job(state, "llama", events).lock():
        assert "ending: SIGTERM was sent to Holdfast" in holdfast("status")[1]
    out = holdfast("log")[1]
    assert "2026-01-01 15:20:07 the job is asked to stop: SIGTERM was sent to Holdfast\n" in out


def test_a_verdict_that_explains_nothing(holdfast, state):
    events = [
        submitted(),
        *started(START_S + 1, 1),
        HangFound(
            at_s=START_S + 9, attempt=1, hang="quiet", culprits=(), reason="no sign of life\nfor 600 s"
        ),
        VerdictReached(at_s=START_S + 10, incident=1, verdict=UNKNOWN),
    ]
    write_job(state, "llama", events, policy=Policy())
    out = holdfast("log")[1]
    assert "incident 1: hang (quiet): no sign of life for 600 s\n" in out
    assert "incident 1: verdict: nothing explains it (unknown, 0% sure)\n" in out
    assert "incident 1: action: only notify, because the job hung" in out


def test_a_device_away_from_the_job_is_news(holdfast, state):
    events = [submitted(), DeviceFaulted(at_s=START_S + 2, node="far", device="0", code="79")]
    write_job(state, "llama", [*events[:1], *started(START_S + 1, 1), *events[1:]])
    assert "device 0 of far reports 79; no worker runs there\n" in holdfast("log")[1]


def test_no_job_and_no_such_job(holdfast, state, job):
    code, out, err = holdfast("log", "lama")
    assert (code, out) == (1, "")
    assert "there is no job lama" in err
    assert "the newest are llama" in err
    assert "cannot be the name of a job" in holdfast("status", "../etc")[2]
    assert holdfast("log", "--state-dir", str(state.root / "other"))[0] == 1


@pytest.mark.skipif(os.getuid() != 0, reason="mounts: root only")
def test_a_job_whose_record_had_to_go_elsewhere_is_found(place):
    """As `holdfast run` says it where the home cannot be written: `trying another place for the record`."""
    elsewhere = StateDir(place / "tmp" / f"holdfast-{os.getuid()}")
    write_job(elsewhere, "llama", one_failure_and_on())
    home = place / "ro"
    home.mkdir()
    look = f"mount -t tmpfs -o ro none {home} && {SCRIPT} status | head -1 && {SCRIPT} status llama | head -1"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", look],
        env={**os.environ, "TMPDIR": str(place / "tmp"), "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["job", "llama:"]] * 2, done.stderr


def test_attach_too_finds_a_job_whose_record_had_to_go_elsewhere(place):
    elsewhere = StateDir(place / "tmp" / f"holdfast-{os.getuid()}")
    write_job(elsewhere, "llama", hang_then_lost_node_then_success())
    done = subprocess.run(
        [SCRIPT, "attach", "llama"],
        env={**os.environ, "TMPDIR": str(place / "tmp"), "HOME": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "there is no job" not in done.stderr
    assert "journal of llama" in done.stderr or "llama has ended" in done.stderr


def test_a_job_without_a_journal_yet(holdfast, state):
    state.create("fresh", 9e9)
    code, out, err = holdfast("status")
    assert (code, out) == (1, "")
    assert "there is no journal" in err


def test_a_damaged_journal_is_shown_as_far_as_it_goes(holdfast, job):
    pages = bytearray(job.journal_path.read_bytes())
    at = pages.rindex(b'"step-reached"')
    pages[at + 5] ^= 1
    job.journal_path.write_bytes(pages)
    code, out, err = holdfast("log", "llama")
    assert code == 0
    assert "incident 1: verdict" in out or "damaged" in err
    assert "damaged" in err


def test_follow_tells_all_and_ends_with_the_job(holdfast, state):
    write_job(state, "llama", hang_then_lost_node_then_success())
    _, out, err = holdfast("log", "--follow")
    assert (
        out.splitlines()[0] == "2026-01-01 15:19:58 job llama submitted: torchrun --nproc-per-node 4 train.py"
    )
    assert "the job succeeded" in out.splitlines()[-1]
    assert err == ""


def test_follow_goes_on_while_the_job_does(state):
    """A real command in another process follows a journal that is still being written."""
    events = hang_then_lost_node_then_success()
    job = state.create("llama", START_S)
    with job.lock():
        store = Store.open(job.journal_path)
        store.set_meta("policy", msgspec.json.encode(POLICY))
        write_events(store, events[:9], POLICY)
        words = [Path(sys.executable).with_name("holdfast"), "log", "--follow", "--json"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as follower:
            assert follower.stdout is not None
            first = json.loads(follower.stdout.readline())
            assert first["kind"] == "job"
            write_rest(store, events[9:])
            lines = [first, *map(json.loads, follower.stdout)]
        assert follower.returncode == 0
        store.close()
    assert lines[-1]["kind"] == "end"
    assert sum(line["kind"] == "attempt" and "runs on" in line["text"] for line in lines) == 3


def write_rest(store, events):
    """Goes on where the journal stopped, as a controller that was replayed."""
    reader = open_reader(store.path)
    state = replay(reader.read_raw(), POLICY)
    reader.close()
    write_events(store, events, POLICY, state)
