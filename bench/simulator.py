"""Measures the core's speed: events through a controller in a simulation, and the replay of a long journal.

Prints one line of JSON. Targets: 100,000 events a second on one core; a million journaled events in under 10 s.
"""

import argparse
import json
import tempfile
import time
from itertools import islice
from pathlib import Path

from holdfast.controller.loop import Controller, replay
from holdfast.core.job.decide import decide
from holdfast.journal.rows import Row
from holdfast.journal.store import Store
from holdfast.model.events import AnyEvent
from holdfast.model.orders import AnyOrder
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.sim.run import MemoryRecord, Simulation
from holdfast.sim.scenario import ClusterSize, Fault, Scenario

POLICY = Policy(max_restarts=128, unconditional_restart=True, hang_restart=True, replace_workers=8)
BATCH_ROWS = 1_000
PART = 200_000  # events of the history for the core alone
TIMES = 3  # the best of so many: other work on the machine is no property of the core


class NoEngine:
    """Leaves every order undone: the events that came of them are told again as they were."""

    def carry_out(self, order: AnyOrder) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    print(json.dumps(measured(parser.parse_args().rows)))


def measured(rows: int) -> dict[str, float]:
    simulation, history = Simulation(scenario(rows)), list[AnyEvent]()
    simulation.watch = lambda event, decision: history.append(event)
    began_s = time.perf_counter()
    answer = simulation.run()
    simulated_s = time.perf_counter() - began_s
    assert answer.outcome == "succeeded", answer.reason
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        replay_s = timed_replay(Path(folder, "journal.db"), simulation)
    part = history[:PART]
    return {
        "events": len(history),
        "incidents": simulation.state.job.incidents,
        "simulation_events_per_s": round(len(history) / simulated_s),
        "controller_events_per_s": round(len(part) / min(timed_controller(part) for _ in range(TIMES))),
        "decide_events_per_s": round(len(part) / min(timed_decide(part) for _ in range(TIMES))),
        "replay_rows": len(simulation.record.rows),
        "replay_s": round(replay_s, 2),
    }


def scenario(steps: int) -> Scenario:
    """Four workers, a step a second, and each hour something that is recovered from."""
    kinds = ("device", "hang", "exit")
    faults = tuple(
        Fault(at_s=3_600.0 * hour, kind=kinds[hour % 3], worker=hour % 4, code=f"{hour}")  # type: ignore[arg-type]
        for hour in range(1, steps // 3_600)
    )
    return Scenario(
        cluster=ClusterSize(workers=4, spares=2),
        policy=POLICY,
        total_steps=steps,
        until_s=10.0 * steps,
        faults=faults,
    )


def timed_controller(history: list[AnyEvent]) -> float:
    """Deciding, encoding and recording in memory, as the loop does it."""
    controller = Controller(POLICY, MemoryRecord(), NoEngine())
    began_s = time.perf_counter()
    for event in history:
        controller.handle(event)
    return time.perf_counter() - began_s


def timed_decide(history: list[AnyEvent]) -> float:
    state = State()
    began_s = time.perf_counter()
    for event in history:
        state = decide(state, event, POLICY).state
    return time.perf_counter() - began_s


def timed_replay(path: Path, simulation: Simulation) -> float:
    """From opening the journal, which proves every row, to the state that it holds."""
    store = Store.open(path)
    rows = iter(simulation.record.rows)
    while batch := [Row(*row[:5]) for row in islice(rows, BATCH_ROWS)]:
        store.append(batch)
    store.close()
    began_s = time.perf_counter()
    store = Store.open(path)
    state = replay(store.read_raw(), POLICY)
    took_s = time.perf_counter() - began_s
    assert state == simulation.state
    store.close()
    return took_s


if __name__ == "__main__":
    main()
