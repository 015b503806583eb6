"""Random worlds: nothing forbidden happens, and the job gets on once the faults stop.

A seed that found a bug stays here under the bug's name.
"""

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.model.orders import AnyOrder, StartAttempt, WorkerStart
from holdfast.model.policy import Policy
from holdfast.sim.run import Simulation
from holdfast.sim.safety import Safety
from holdfast.sim.scenario import Scenario
from holdfast.sim.seeds import RandomWorld, run_seed

CHUNK = 100
CHUNKS = 12


def holds(seed: int) -> None:
    report = run_seed(seed)
    assert report.ok, f"holdfast simulate --seed {seed}\n" + "\n".join(report.violations)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_worlds(chunk):
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        holds(seed)


@pytest.mark.parametrize("seed", [77, 316])
def test_shadow_moves_no_worker_even_when_the_controller_comes_back(seed):
    holds(seed)


@pytest.mark.parametrize("seed", [908, 1964])
def test_a_reschedule_that_waits_for_a_node_goes_on_as_one(seed):
    holds(seed)


@pytest.mark.parametrize("seed", [47, 1491])
def test_a_node_lost_before_the_first_start_is_not_asked_for_again(seed):
    holds(seed)


@pytest.mark.parametrize("seed", [1335, 3016, 8587])
def test_a_device_fault_before_the_first_start_is_healed_like_any_other(seed):
    holds(seed)


@pytest.mark.parametrize("seed", [3275, 7625])
def test_a_hung_rank_that_dies_while_it_is_diagnosed_is_not_left_lying(seed):
    holds(seed)


def test_a_seed_tells_the_same_story_every_time():
    assert run_seed(5) == run_seed(5)


def test_the_worlds_are_rich_enough():
    """Without this a change could make all worlds harmless, and every seed pass."""
    reports = [run_seed(seed) for seed in range(150)]
    rungs = {decided.rung for report in reports for decided in report.answer.decisions}
    assert rungs == {
        "in-place", "hang-restart", "replace-worker", "reschedule-isolated", "reschedule-unconditional",
        "wait-for-node", "fail", "notify",
    }  # fmt: skip
    assert {report.answer.outcome for report in reports} >= {
        "running",
        "failed",
        "succeeded",
        "hung",
        "stopped",
    }
    assert any("controller is gone" in line for report in reports for line in report.story)


def test_the_watch_sees_what_must_not_happen():
    """A watch that never barks proves nothing: an attempt is started over a living one."""
    world = RandomWorld(3)
    simulation = Simulation(Scenario())
    simulation.submit()
    simulation.world.run(10.0)
    safety = Safety(simulation.scenario.policy, simulation.cluster, simulation.training, workers=1)
    [start] = [order for order in _orders(simulation) if type(order).__name__ == "StartAttempt"]
    safety.on_order(start, simulation.state.job)
    assert safety.violations == ["attempt 1 starts while attempt 1 is alive"]
    assert world.bound_s() > 0


def test_the_watch_sees_a_start_on_a_node_that_failed_its_check():
    scenario = Scenario(policy=Policy(boot_check="quick"), sick={"node-0": 1.0})
    simulation = Simulation(scenario)
    safety = Safety(scenario.policy, simulation.cluster, simulation.training, workers=1)
    simulation.watch = safety.on_decision
    simulation.submit()
    simulation.world.run(10.0)
    assert "node-0" in simulation.state.job.isolated
    start = StartAttempt(
        attempt=1, workers=(WorkerStart(worker=0, node="node-0", schedule_cnt=1, proc_start_cnt=1),)
    )
    safety.on_order(start, replace(simulation.state.job, isolated=()))
    assert safety.violations == [
        "attempt 1 starts on node-0, whose check failed",
        "attempt 1 starts on node-0, which nobody has looked at",
    ]


def test_some_worlds_look_at_their_nodes_and_find_broken_ones():
    worlds = [RandomWorld(seed) for seed in range(2, 300, 4)]
    assert all(world.scenario.policy.boot_check != "off" for world in worlds)
    told = [line for world in worlds for line in world.run().story]
    assert any("failed its check" in line for line in told)
    assert any("gave no answer" in line for line in told)


def _orders(simulation: Simulation) -> list[object]:
    return [
        order for row in simulation.record.rows for order in msgspec.json.decode(row[3], type=list[AnyOrder])
    ]
