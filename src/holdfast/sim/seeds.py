"""Generates random worlds: cluster, policy, faults and an unreliable engine, all from one seed.

Each is checked for safety violations and, once faults stop and enough healthy nodes exist, for liveness: the
job trains again or has ended within a time limit. Equal seeds give equal histories.
"""

from random import Random

from msgspec import Struct
from msgspec.structs import replace

from holdfast.controller.loop import Engine, replay
from holdfast.model.events import StopRequested
from holdfast.model.orders import AnyOrder
from holdfast.model.policy import Policy
from holdfast.model.state import Ended, Finishing, Holding, Running, State
from holdfast.sim.cluster import Service, Timing
from holdfast.sim.run import Answer, ControllerDied, Simulation
from holdfast.sim.safety import Safety
from holdfast.sim.scenario import ClusterSize, Fault, Scenario

ERRORS = (
    "RuntimeError: boom",
    "KeyError: 'labels'",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "RuntimeError: NCCL communicator was aborted",
    "ConnectionResetError: Connection reset by peer",
    "",
)
CODES = ("80E01801", "80E01801", "8C1F8608", "80C98002")
RETURN_S_MIN = 5.0  # a node comes back later than its loss is noticed


class SeedReport(Struct, frozen=True, kw_only=True):
    """The result of one random world. `violations`: a sentence each; none if `ok`.

    `story`: messages, one line each.
    """

    seed: int
    ok: bool
    violations: list[str]
    story: list[str]
    answer: Answer


class Roughness(Struct, frozen=True, kw_only=True):
    """How often a random world disturbs its engine and its controller (lost, repeated or late responses, deaths of
    the controller).
    """

    lost: float = 0.0  # answers that never come
    twice: float = 0.0  # answers that come again, later
    late_s_max: float = 0.0
    stuck: float = 0.0  # attempts with a process that cannot be killed for a while
    stuck_s_max: float = 0.0
    dies: float = 0.0  # a controller dies before or after an order
    away_s_max: float = 30.0


class RoughService(Service):
    """Delivers the engine's responses with losses, repeats and delays.

    `quiet`: from now on each response arrives once and in time.
    """

    def __init__(self, dice: Random, rough: Roughness) -> None:
        self.quiet = False
        self._dice = dice
        self._rough = rough

    def lags_s(self) -> list[float]:
        if self.quiet:
            return [0.0]
        dice, rough = self._dice, self._rough
        if dice.random() < rough.lost:
            return []
        late_s = dice.random() * rough.late_s_max if dice.random() < 0.2 else 0.0
        if dice.random() < rough.twice:
            return [late_s, late_s + dice.random() * 20.0]
        return [late_s]

    def stuck_s(self) -> float:
        stuck = not self.quiet and self._dice.random() < self._rough.stuck
        return self._dice.random() * self._rough.stuck_s_max if stuck else 0.0


class RoughEngine:
    """Wraps the simulated engine: the safety checker sees every order, and the controller may die before or after an
    order.
    """

    def __init__(self, simulation: Simulation, safety: Safety, rough: Roughness, dice: Random) -> None:
        self.quiet = False
        self._inner: Engine = simulation.engine
        self._simulation = simulation
        self._safety = safety
        self._rough = rough
        self._dice = dice

    def carry_out(self, order: AnyOrder) -> None:
        dies = not self.quiet and self._dice.random() < self._rough.dies
        if dies and self._dice.random() < 0.5:
            self._die()
        self._safety.on_order(order, self._simulation.state.job)
        self._inner.carry_out(order)
        if dies:
            self._die()

    def _die(self) -> None:
        simulation = self._simulation
        simulation.world.after(self._dice.random() * self._rough.away_s_max, simulation.resume_controller)
        raise ControllerDied


class RandomWorld:
    """The random world of one seed, from its first random number to the last check."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._dice = Random(seed)
        self.scenario = _with_checks(random_scenario(self._dice), seed)
        self.rough = _random_roughness(self._dice)
        self._service = RoughService(Random(seed + 1), self.rough)
        self.simulation = Simulation(
            self.scenario, seed=seed, service=self._service, timing=_random_timing(self._dice)
        )
        simulation = self.simulation
        self.safety = Safety(
            self.scenario.policy, simulation.cluster, simulation.training, self.scenario.cluster.workers
        )
        self._engine = RoughEngine(simulation, self.safety, self.rough, Random(seed + 2))
        simulation.engine = self._engine
        simulation.watch = self.safety.on_decision
        self._steps_at_quiet = 0

    def run(self) -> SeedReport:
        simulation = self.simulation
        self._plan_nodes_to_return()
        self._plan_controllers_to_die()
        simulation.submit()
        quiet_s = self.scenario.until_s
        simulation.world.run(quiet_s, lambda: simulation.is_over)
        if not simulation.is_over:
            self._make_quiet()
            bound_s = self.bound_s()
            simulation.world.run(quiet_s + bound_s, self._is_well)
            if not self._is_well():
                self.safety.violations.append(
                    f"{bound_s:.0f} s after the last fault, with enough healthy nodes, the job neither trains "
                    f"nor has ended: {simulation.state.phase}"
                )
        self._check_replay()
        violations = self.safety.violations
        return SeedReport(
            seed=self.seed,
            ok=not violations,
            violations=violations,
            story=[f"seed {self.seed}: {_described(self.scenario)}", *simulation.story],
            answer=simulation.answer(),
        )

    def bound_s(self) -> float:
        """Returns the time limit in seconds within which the job must train again: the sum of all waits that the
        policy allows, for each round of recovery.

        A faulty device that never recovers takes one round each time it is used; its node is isolated at the latest
        when it fails too often. One more round is for what is in progress.
        """
        policy, timing = self.scenario.policy, _SLOWEST
        nodes = self.simulation.cluster.nodes.values()
        broken = sum(len(node.broken) for node in nodes if node.up and not node.isolated)
        hang_s = policy.hang_timeout_s or 1_800.0
        answers_s = timing.place_s + timing.launch_s + timing.stop_s + timing.heal_s
        waits_s = policy.verdict_wait_s + policy.stop_wait_s + 2 * policy.place_wait_s + policy.place_again_s
        waits_s += (broken + 1) * policy.heal_wait_s + len(nodes) * policy.isolate_wait_s
        waits_s += 2 * policy.full_check_wait_s if policy.boot_check != "off" else 0.0
        round_s = hang_s + answers_s + waits_s + self.scenario.start_s + 3 * self.scenario.step_s + 60.0
        sick = sum(node.sick > 0 for node in nodes if node.up and not node.isolated)
        return (2 + sick + broken * policy.device_repeats_max) * round_s

    def _plan_nodes_to_return(self) -> None:
        world, dice, faults = self.simulation.world, self._dice, self.simulation.faults
        for fault in self.scenario.faults:
            if fault.kind == "node_down" and dice.random() < 0.5:
                at_s = (fault.at_s or 0.0) + RETURN_S_MIN + dice.random() * 600.0
                world.at(at_s, lambda: self._bring_one_back(faults.down_since_s))

    def _bring_one_back(self, down_since_s: dict[str, float]) -> None:
        now_s = self.simulation.world.now_s
        ready = [name for name, since_s in down_since_s.items() if now_s - since_s >= RETURN_S_MIN]
        if ready:
            self.simulation.faults.bring_back(self._dice.choice(sorted(ready)))

    def _plan_controllers_to_die(self) -> None:
        dice, simulation = self._dice, self.simulation
        if dice.random() < 0.5:
            for _ in range(dice.randint(1, 4)):
                at_s = dice.random() * self.scenario.until_s
                simulation.world.at(at_s, simulation.drop_controller)
                simulation.world.at(at_s + dice.random() * 60.0, simulation.resume_controller)
        if dice.random() < 0.03:
            at_s = dice.random() * self.scenario.until_s
            force = dice.random() < 0.5
            simulation.world.at(at_s, lambda: self._ask_to_stop(force))

    def _ask_to_stop(self, force: bool) -> None:
        simulation = self.simulation
        simulation.tell(StopRequested(at_s=simulation.world.now_s, reason="asked to stop", force=force))

    def _make_quiet(self) -> None:
        """Ends all faults; lost nodes return, and new ones come until there are enough."""
        simulation, faults = self.simulation, self.simulation.faults
        faults.quiet = self._service.quiet = self._engine.quiet = True
        simulation.resume_controller()
        self._steps_at_quiet = simulation.training.steps_made
        simulation.world.run(simulation.world.now_s + RETURN_S_MIN)
        for name in sorted(faults.down_since_s):
            faults.bring_back(name)
        nodes = simulation.cluster.nodes
        good = sum(
            not node.touched for node in nodes.values()
        )  # others may yet be isolated for what they had
        for number in range(len(nodes), len(nodes) + max(0, self.scenario.cluster.workers - good)):
            faults.bring_back(f"node-{number}")

    def _is_well(self) -> bool:
        """Returns True if the job has ended, trains, or waits for an operator as configured."""
        simulation = self.simulation
        state = simulation.state
        match state.phase:
            case Ended() | Holding():
                return True
            case Finishing():
                return False
            case Running() as phase:
                somebody_may_act = bool(simulation.training.alive) or self.scenario.policy.shadow
                return (phase.handled and somebody_may_act) or self._trains(state)
            case _:
                return False

    def _trains(self, state: State) -> bool:
        return state.job.incident is None and self.simulation.training.steps_made > self._steps_at_quiet

    def _check_replay(self) -> None:
        simulation = self.simulation
        if simulation.lost_replays:
            self.safety.violations.append("a restarted controller has another state than before")
        elif replay(simulation.record.rows, self.scenario.policy) != simulation.state:
            self.safety.violations.append("the state read from the record differs from the state of the job")


def run_seed(seed: int) -> SeedReport:
    return RandomWorld(seed).run()


# --- dice


_SLOWEST = Timing(place_s=30.0, launch_s=2.0, stop_s=20.0, isolate_s=5.0, heal_s=40.0, verdict_s=20.0)


def random_scenario(dice: Random) -> Scenario:
    workers = dice.randint(1, 6)
    step_s = dice.choice((1.0, 3.0, 10.0, 20.0))
    total_steps = dice.randint(40, 250)
    until_s = total_steps * step_s * dice.choice((0.5, 1.0, 1.5)) + 300.0
    size = ClusterSize(workers=workers, spares=dice.randint(0, 3), devices_per_node=dice.choice((2, 8)))
    return Scenario(
        cluster=size,
        policy=_random_policy(dice),
        step_s=step_s,
        checkpoint_every_steps=dice.choice((1, 5, 20, 60)),
        start_s=dice.choice((1.0, 5.0, 60.0)),
        total_steps=total_steps,
        until_s=until_s,
        faults=_random_faults(dice, size, total_steps, until_s - 60.0),
    )


def _with_checks(scenario: Scenario, seed: int) -> Scenario:
    """Adds node checks and faulty nodes to every fourth world, with random numbers of their own that
    change nothing else.
    """
    if seed % 4 != 2:
        return scenario
    dice = Random(f"checks {seed}")
    size = scenario.cluster
    names = [f"node-{number}" for number in range(size.workers + size.spares)]
    sick = {name: dice.choice((0.5, 1.0)) for name in names if dice.random() < 0.2}
    policy = replace(scenario.policy, boot_check=dice.choice(("quick", "full")), boot_check_wait_s=30.0)
    policy = replace(policy, boot_check_again_s=dice.choice((0.0, 60.0, 600.0, 86_400.0)))
    return replace(scenario, policy=policy, sick=sick)


def _random_policy(dice: Random) -> Policy:
    return Policy(
        max_restarts=None if dice.random() < 0.15 else dice.choice((1, 2, 4, 8, 128)),
        unconditional_restart=dice.random() < 0.6,
        hang_restart=dice.random() < 0.6,
        replace_workers=None if dice.random() < 0.5 else dice.choice((1, 2, 5)),
        hang_timeout_s=None if dice.random() < 0.5 else dice.choice((90.0, 300.0)),
        shadow=dice.random() < 0.04,
        keep_on_failure_s=100.0 if dice.random() < 0.1 else 0.0,
        heal_wait_s=120.0,
        place_wait_s=120.0,
        stop_wait_s=300.0,
        node_wait_s=dice.choice((3_600.0, 86_400.0)),
    )


def _random_faults(dice: Random, size: ClusterSize, total_steps: int, last_s: float) -> tuple[Fault, ...]:
    """Returns random faults, often one soon after another, so that they happen in the middle of a
    recovery.
    """
    faults, at_s = list[Fault](), 0.0
    mean_s = last_s / dice.choice((1, 3, 8, 20))
    weights = tuple(dice.random() for _ in range(4))
    while len(faults) < 25:
        at_s += dice.random() * 12.0 if dice.random() < 0.35 else dice.expovariate(1.0 / mean_s)
        if at_s >= last_s:
            break
        kind = dice.choices(("exit", "hang", "device", "node_down"), weights)[0]
        faults.append(_random_fault(dice, kind, size, total_steps, round(at_s, 2)))
    return tuple(faults)


def _random_fault(dice: Random, kind: str, size: ClusterSize, total_steps: int, at_s: float) -> Fault:
    worker: int | None = dice.randrange(size.workers)
    node = None
    if kind in ("device", "node_down") and dice.random() < 0.3:
        worker, node = None, f"node-{dice.randrange(size.workers + size.spares)}"
    by_step = dice.random() < 0.15
    again = (
        kind == "device" and not by_step and dice.random() < 0.3
    )  # agents may report one fault more than once
    return Fault(
        kind=kind,  # type: ignore[arg-type]
        at_s=None if by_step else at_s,
        at_step=dice.randint(1, total_steps) if by_step else None,
        every_attempt=by_step and dice.random() < 0.3,
        worker=worker,
        node=node,
        exit_code=dice.choice((1, 1, 1, 3, -9, -11, 0)),
        error=dice.choice(ERRORS),
        device=dice.randrange(2),
        code=dice.choice(CODES),
        heals=dice.random() < 0.6,
        times=3 if again else 1,
        every_s=dice.choice((0.2, 3.0)) if again else None,
    )


def _random_roughness(dice: Random) -> Roughness:
    if dice.random() < 0.3:
        return Roughness()
    return Roughness(
        lost=dice.choice((0.0, 0.05)),
        twice=dice.choice((0.0, 0.2)),
        late_s_max=dice.choice((0.0, 10.0, 60.0)),
        stuck=dice.choice((0.0, 0.2)),
        stuck_s_max=dice.choice((50.0, 500.0)),
        dies=dice.choice((0.0, 0.0, 0.03)),
    )


def _random_timing(dice: Random) -> Timing:
    slow = dice.random()
    return Timing(
        place_s=0.5 + slow * (_SLOWEST.place_s - 0.5) * dice.random(),
        launch_s=0.2 + slow * dice.random(),
        stop_s=0.5 + slow * (_SLOWEST.stop_s - 0.5) * dice.random(),
        isolate_s=0.1 + slow * (_SLOWEST.isolate_s - 0.1) * dice.random(),
        heal_s=1.0 + slow * (_SLOWEST.heal_s - 1.0) * dice.random(),
        verdict_s=0.2 + slow * (_SLOWEST.verdict_s - 0.2) * dice.random(),
    )


def _described(scenario: Scenario) -> str:
    size = scenario.cluster
    return (
        f"{size.workers} workers, {size.spares} spares, {scenario.total_steps} steps of {scenario.step_s:g} s, "
        f"{len(scenario.faults)} faults; {scenario.policy}"
    )
