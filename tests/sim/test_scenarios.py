"""Every scenario comes out as it says: those beside this file, and those shared for evaluation."""

from pathlib import Path

import msgspec
import pytest

from holdfast.sim.run import check_expect, run_file, simulate
from holdfast.sim.scenario import ScenarioRefused, parse, read

HERE = Path(__file__).parent
OWN = sorted((HERE / "scenarios").glob("*.yaml"))
SHARED_DIR = HERE.parents[1] / ".." / "shared" / "eval" / "scenarios"
SHARED = sorted(SHARED_DIR.glob("*.yaml"))


def wrong_with(path: Path) -> list[str]:
    scenario = read(path)
    assert scenario.expect is not None, f"{path.name} says nothing about what is expected"
    return check_expect(simulate(scenario), scenario.expect)


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_a_scenario_of_ours(path):
    assert wrong_with(path) == []


def test_the_shared_scenarios():
    if not SHARED:
        pytest.skip(f"no shared scenarios at {SHARED_DIR}: this checkout stands alone")
    assert {path.name: wrong_with(path) for path in SHARED} == {path.name: [] for path in SHARED}


def test_the_same_scenario_gives_the_same_answer():
    path = HERE / "scenarios" / "code-bug-with-device-fault-between.yaml"
    assert run_file(path, seed=1) == run_file(path, seed=1)


def test_the_answer_is_the_json_that_is_documented():
    answer = msgspec.to_builtins(run_file(HERE / "scenarios" / "replacement-without-spare.yaml"))
    assert set(answer) == {
        "outcome", "reason", "restarts", "hardware_reschedules", "isolated", "decisions", "goodput",
    }  # fmt: skip
    first = answer["decisions"][0]
    assert (first["at_s"], first["incident"], first["isolate"]) == (201.3, 1, "node-1")
    waiting = answer["decisions"][-1]
    assert waiting["workers"]["0"]["node"] is None
    assert waiting["isolate"] is None


def test_a_rank_that_fails_is_decided_on_within_half_a_second():
    exits = b"faults: [{at_s: 100, kind: exit, worker: 0, rank: 3, error: 'RuntimeError: boom'}]"
    [decided] = simulate(parse(exits)).decisions
    assert decided.at_s == 100.4
    assert decided.workers == {}


def test_what_was_not_as_expected_is_named():
    text = b"""
    total_steps: 50
    faults: [{at_s: 10, kind: exit, worker: 0}]
    expect: {rungs: [in-place], outcome: succeeded, workers: {"0": {schedule_cnt: 2}}}
    """
    scenario = parse(text)
    assert check_expect(simulate(scenario), scenario.expect) == [
        "rungs: expected ('in-place',), got ('fail',)",
        "outcome: expected succeeded, got failed",
        "workers.0.schedule_cnt: expected 2, got None",
    ]


def test_goodput_counts_each_step_once():
    healthy = simulate(parse(b"{total_steps: 100, start_s: 0}"))
    repeated = simulate(
        parse(b"""
        {total_steps: 100, start_s: 0, checkpoint_every_steps: 0, policy: {max_restarts: 1},
         faults: [{at_s: 90, kind: device, worker: 0}]}
        """)
    )
    assert healthy.goodput > 0.95
    assert 0.45 < repeated.goodput < 0.55


REFUSED = {
    "polcy: {}": "unknown key 'polcy': did you mean 'policy'",
    "policy: {max_restart: 3}": "unknown key 'max_restart' in policy: did you mean 'max_restarts'",
    "cluster: {worker: 3}": "unknown key 'worker' in cluster: did you mean 'workers'",
    "faults: [{at_s: 1, kind: exit, worker: 0, exitcode: 3}]": "did you mean 'exit_code'",
    "expect: {rung: []}": "unknown key 'rung' in expect: did you mean 'rungs'",
    "policy: {max_restarts: 200}": "policy.max_restarts",
    "policy: {hang_timeout: soon}": "write it like 90s, 10min or auto",
    "faults: [{at_s: 1, kind: fire, worker: 0}]": "fire",
    "faults: [{kind: exit, worker: 0}]": r"faults\[0\] needs either at_s or at_step",
    "faults: [{at_s: 1, kind: exit, worker: 3}]": "there is no worker 3; the last is 0",
    "faults: [{at_s: 1, kind: exit}]": "needs either worker or node",
    "faults: [{at_s: 1, kind: node_down, node: gpu-1}]": "there is no 'gpu-1'",
    "faults: [{at_s: 1, kind: exit, worker: 0, times: 3}]": "needs every_s",
    "faults: [{at_s: 1, kind: exit, worker: 0, every_attempt: true}]": "every_attempt goes with at_step",
    "[1, 2": "the scenario is not valid YAML",
    "just words": "a scenario is a mapping",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_run_is_refused_with_a_hint(text):
    with pytest.raises(ScenarioRefused, match=REFUSED[text]):
        parse(text.encode())


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ScenarioRefused, match=r"none\.yaml cannot be read"):
        read(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("given", "timeout_s"), [("10min", 600.0), ("auto", None), ("90s", 90.0), ("1.5h", 5400.0)]
)
def test_the_hang_timeout_takes_units(given, timeout_s):
    assert parse(f"policy: {{hang_timeout: {given}}}".encode()).policy.hang_timeout_s == timeout_s
