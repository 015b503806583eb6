"""Random orders, reports, losses and returns: what must hold of a worker_group always holds, and the job goes on in the end.

What must hold is asserted in `worker_group_kit.World` where it would be broken: no start while anything of an attempt before is
left in sight, never two workers on a node, none on a lost, isolated or shunned one.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from core.workers.worker_group_kit import World
from holdfast.core.workers.roster import Settings
from holdfast.model.events import AttemptStarted, RankExited, StepReached, WorkerExited
from holdfast.model.policy import Policy
from holdfast.model.state import Ended, Running

NODES = 5
NAMES = st.sampled_from([f"n{number}" for number in range(NODES)])
POLICY = Policy(
    max_restarts=128,
    unconditional_restart=True,
    same_problem_in_a_row_max=1000,
    place_wait_s=100_000.0,
)


class WorkerGroupMachine(RuleBasedStateMachine):
    @initialize(
        workers=st.integers(1, 3),
        checks=st.booleans(),
        boot=st.sampled_from(["off", "quick"]),
        again_s=st.sampled_from([0.0, 20.0, 600.0]),
    )
    def begin(self, workers: int, checks: bool, boot: str, again_s: float) -> None:
        policy = replace(POLICY, boot_check=boot, boot_check_again_s=again_s)
        spares = {"spare_check": boot if checks and boot != "off" else "", "check_again_s": again_s}
        self.world = World(NODES, workers, policy, Settings(checks=checks, standby=True, **spares))
        self.world.submit()
        for name in self.world.places:
            self.world.start_agent(name)

    @rule(name=NAMES)
    def join(self, name: str) -> None:
        self.world.join(name)

    @rule(name=NAMES, times=st.integers(1, 4))
    def carry_out(self, name: str, times: int) -> None:
        for _ in range(times):
            self.world.carry_out(name)

    @rule(name=NAMES, times=st.integers(1, 4))
    def report(self, name: str, times: int) -> None:
        for _ in range(times):
            self.world.report(name)

    @rule()
    def settle(self) -> None:
        self.world.settle()

    @rule(seconds=st.sampled_from([1, 1, 1, 2, 13, 46]))
    def time_passes(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.tick()

    @rule(name=NAMES)
    def cut(self, name: str) -> None:
        self.world.cut(name)

    @rule(name=NAMES)
    def mend(self, name: str) -> None:
        self.world.mend(name)

    @rule(name=NAMES)
    def reconnect(self, name: str) -> None:
        self.world.leave(name)
        self.world.join(name)

    @rule(name=NAMES)
    def kill_agent(self, name: str) -> None:
        self.world.kill_agent(name)

    @rule(name=NAMES)
    def crash(self, name: str) -> None:
        self.world.crash(name)

    @rule(name=NAMES)
    def boot(self, name: str) -> None:
        self.world.boot(name)

    @rule(name=NAMES, code=st.sampled_from([1, -9]))
    def worker_ends(self, name: str, code: int) -> None:
        place = self.world.places[name]
        if place.attempt:
            at_s, attempt, worker = self.world.at_s, place.attempt, place.worker
            ended = RankExited(at_s=at_s, attempt=attempt, worker=worker, rank=worker, code=code)
            place.reports.append(ended)
            place.reports.append(WorkerExited(at_s=at_s, attempt=attempt, worker=worker, code=code))

    @rule(name=NAMES, step=st.integers(1, 100))
    def steps(self, name: str, step: int) -> None:
        place = self.world.places[name]
        if place.attempt:
            place.reports.append(StepReached(at_s=self.world.at_s, attempt=place.attempt, step=step))

    @rule()
    def controller_dies(self) -> None:
        if not isinstance(self.world.state.phase, Ended):
            self.world.resume()

    @rule(names=st.sets(NAMES, max_size=2))
    def shun(self, names: set[str]) -> None:
        self.world.worker_group.shunned = frozenset(names)

    @invariant()
    def nobody_runs_twice(self) -> None:
        if not hasattr(self, "world"):
            return
        seen = [
            runs for name, runs in self.world.running.items() if not self.world.worker_group.roster[name].lost
        ]
        assert len(set(seen)) == len(seen)

    def teardown(self) -> None:
        """Everything heals: the job runs again, with all its workers, or has come to its end."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.worker_group.shunned = frozenset()
        for name, place in world.places.items():
            place.fit = True
            world.boot(name)
            world.mend(name)
            world.start_agent(name)
        for _ in range(200):
            world.settle()
            world.tick()
        phase = world.state.phase
        if isinstance(phase, Ended):
            return
        assert isinstance(phase, Running), phase
        attempt = world.state.job.attempt
        assert any(event.attempt == attempt for event in world.told(AttemptStarted)), "not told that it runs"
        running = sorted(runs for runs in world.running.values())
        assert running == [(attempt, worker) for worker in range(world.workers)]


WorkerGroupMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestWorkerGroup = WorkerGroupMachine.TestCase
