"""`holdfast cost` and `holdfast replay`, against journals of the real controller."""

import json

import msgspec
import pytest

from cli.journals import (
    START_S,
    hang_then_lost_node_then_success,
    one_failure_and_on,
    started,
    submitted,
    write_job,
)
from holdfast.archive.replay import events_of
from holdfast.controller.loop import NO_ORDERS
from holdfast.core.replay.deciding import decided_twice
from holdfast.journal.store import open_reader
from holdfast.model import events as ev
from holdfast.model.policy import Policy


@pytest.fixture
def jobs(state):
    write_job(state, "llama", one_failure_and_on())
    return write_job(state, "moved", hang_then_lost_node_then_success(), policy=Policy(
        max_restarts=8, hang_restart=True, hang_timeout_s=120.0,
    ))  # fmt: skip


def test_a_job_by_class_with_money(holdfast, golden, jobs):
    code, out, err = holdfast("cost", "moved", "--price", "$2.5/h")
    golden("cost-job.txt", out)
    assert (code, err) == (0, "")


def test_the_json_adds_up(holdfast, jobs):
    code, out, _ = holdfast("cost", "--fleet", "--json")
    told = json.loads(out)
    assert code == 0 and told["jobs"] == 2
    for job in told["by_job"]:
        assert abs(sum(job["by_class"].values()) - job["wall_s"]) < 1e-6
    assert abs(sum(one["gpu_hours"] for one in told["classes"]) - told["gpu_hours"]) < 1e-9
    assert told["settings"][0]["setting"] == "hang-timeout"


def test_a_fleet_lists_its_jobs(holdfast, golden, jobs):
    code, out, _ = holdfast("cost", "--fleet")
    golden("cost-fleet.txt", out)
    assert code == 0


def test_what_is_too_old_is_left_out(holdfast, jobs):
    code, _, err = holdfast("cost", "--since", "1min")
    assert (code, err.count("no job in")) == (1, 1)


def test_a_job_without_steps_and_a_damaged_one(holdfast, state):
    ended = ev.WorkerExited(at_s=START_S + 100, attempt=1, worker=0, code=0)
    write_job(state, "silent", [submitted(), *started(START_S + 1, 1), ended])
    damaged = write_job(state, "damaged", one_failure_and_on())
    damaged.journal_path.write_bytes(b"no journal")
    code, out, _ = holdfast("cost", "--fleet")
    assert code == 0 and "shows no steps" in out and "damaged" in out
    code, _, err = holdfast("cost", "damaged")
    assert code == 1 and "damaged" in err


@pytest.mark.parametrize(
    "words",
    [("--price", "free"), ("--price", "-1"), ("--since", "30"), ("llama", "--fleet"), ("--since", "soon")],
)
def test_nonsense_is_refused(holdfast, jobs, words):
    assert holdfast("cost", *words)[0] == 2


def test_replay_under_its_own_policy_is_the_same(holdfast, jobs):
    code, out, err = holdfast("replay", "moved")
    assert (code, err) == (0, "")
    assert "2 of 2 decisions the same" in out


def test_replay_gives_the_orders_and_reasons_of_the_journal(jobs):
    """Against the journal itself, not against a second replay."""
    reader = open_reader(jobs.journal_path)
    rows = list(reader.read_raw())
    policy = msgspec.json.decode(reader.all_meta()["policy"], type=Policy)
    reader.close()
    events, skipped = events_of(rows)
    assert skipped == 0
    for row, both in zip(rows, decided_twice(events, policy, policy), strict=True):
        orders = msgspec.json.encode(both.other.orders) if both.other.orders else NO_ORDERS
        assert (orders, both.other.why) == (row[3], row[4])


def test_replay_says_what_would_have_been_otherwise(holdfast, golden, jobs):
    code, out, _ = holdfast("replay", "moved", "--set", "hang-timeout=30min", "--set", "max-restarts=none")
    golden("replay-other.txt", out)
    assert code == 0


def test_a_scorecard_over_all_jobs(holdfast, golden, jobs):
    golden("replay-fleet.txt", holdfast("replay", "--fleet", "--policy", "aimaster")[1])
    told = json.loads(holdfast("replay", "--fleet", "--policy", "aimaster", "--json")[1])
    assert (told["jobs"], told["policy"]) == (2, "aimaster")


@pytest.mark.parametrize(
    "words", [("--policy", "nobody"), ("--set", "x"), ("--set", "max-restart=3"), ("--set", "max-restarts=4000"),
              ("--set", "hang-timeout=soon"), ("llama", "--fleet")]
)  # fmt: skip
def test_replay_refuses_nonsense(holdfast, jobs, words):
    assert holdfast("replay", *words)[0] == 2


def test_entries_of_another_version_are_left_out_and_counted():
    good = msgspec.json.encode(ev.Tick(at_s=1.0))
    rows = [
        (0.0, "x", b'{"kind":"of-a-later-version","at_s":0}', b"[]", "", 1),
        (1.0, "tick", good, b"[]", "", 2),
    ]
    assert events_of(rows) == ([ev.Tick(at_s=1.0)], 1)
