"""Simulates one policy over one history of faults: real controller and decisions, simulated engine.

It accounts for every second. Between faults nothing is simulated, so months take seconds. Equal plan, policy
and seed give the same result.
"""

from collections.abc import Callable

from msgspec import Struct

from holdfast.controller.loop import Controller
from holdfast.core.costs.account import Account
from holdfast.core.costs.classes import CHECKPOINTING, COMPUTING, STRAGGLERS
from holdfast.core.job.decision import Decision
from holdfast.core.job.spent import REPEATED
from holdfast.core.reliability.interval import Costs, best_interval
from holdfast.core.reliability.outages import DAY_S
from holdfast.core.reliability.weibull import Weibull, exactly
from holdfast.journal.rows import Row
from holdfast.model.events import AnyEvent, JobSubmitted, Tick
from holdfast.model.orders import EndJob
from holdfast.model.state import Ended, Running, State
from holdfast.sim.months.engine import Engine
from holdfast.sim.months.faults import Drawn, Faults
from holdfast.sim.months.job import Training
from holdfast.sim.months.plan import Contender, World
from holdfast.sim.world import World as Clock

PERSON = "person"  # waiting for a person: between the end of a job and its next submission
TICK_S, TICK_WAITING_S = 5.0, 60.0


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of one simulated history. `ettr`: useful time divided by all time.

    `by_class`: seconds by cause, adding up to `wall_s`. `recoveries_s`: of each interruption, from the fault
    to the next step. `nodes_out_max`: most nodes out of service at the same time. `jobs`: number of
    submissions.
    """

    ettr: float
    wall_s: float
    by_class: dict[str, float]
    interruptions: int
    recoveries_s: tuple[float, ...]
    nodes_out_max: int
    jobs: int
    interval_s: float
    rungs: dict[str, int]


class NoRecord:
    """A journal that stores nothing, because the rows of months would fill the memory and are not read."""

    def record(self, row: Row) -> None:
        pass

    def flush(self) -> bool:
        return True


def interval_of(world: World, contender: Contender) -> float:
    """Returns the checkpoint interval in seconds: as given, or else the best one for these times and
    failures.
    """
    if contender.checkpoint_every_s is not None:
        return contender.checkpoint_every_s
    costs = Costs(save_s=contender.save_s, down_s=contender.start_s + contender.hang_s)
    return best_interval(exactly(Weibull(world.shape, world.mean_s)), costs).best_s


def run(world: World, contender: Contender, seed: int) -> Outcome:
    return _Months(world, contender, seed).run()


class _Months:
    def __init__(self, world: World, contender: Contender, seed: int) -> None:
        self._world, self._contender = world, contender
        self._policy = contender.rules()
        self._clock = Clock(seed)
        self._faults = Faults(world, seed)
        self._training = Training(contender, interval_of(world, contender))
        self._until_s = world.plan.days * DAY_S
        self._engine = Engine(world, contender, self._clock, self._training, self._faults, self._tell)
        self._controller: Controller | None = None
        self._account = Account()
        self._jobs = 0
        self._spent: dict[str, float] = {}
        self._interruptions = 0
        self._recoveries: list[float] = []
        self._stands_since_s: float | None = None
        self._rungs: dict[str, int] = {}
        self._ticking = False
        self._person_since_s = 0.0

    def run(self) -> Outcome:
        self._submit()
        self._plan_fault(0.0)
        self._plan_slow(0.0)
        self._clock.run(self._until_s)
        at_s = self._until_s
        if self._controller is not None:
            self._tell(Tick(at_s=at_s))
            self._settle()
        useful_s = self._training.useful_s(at_s)
        self._training.end(at_s)
        by_class = self._divided(at_s, useful_s)
        return Outcome(
            ettr=min(1.0, useful_s / at_s),
            wall_s=at_s,
            by_class=by_class,
            interruptions=self._interruptions,
            recoveries_s=tuple(self._recoveries),
            nodes_out_max=self._engine.out_max,
            jobs=self._jobs,
            interval_s=self._training.interval_s,
            rungs=dict(sorted(self._rungs.items())),
        )

    # The job ------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        self._jobs += 1
        self._account = Account()
        self._controller = Controller(self._policy, NoRecord(), self._engine, self._on_decision, State())
        self._engine.begin_job()
        workers = self._world.plan.nodes
        self._tell(JobSubmitted(at_s=self._clock.now_s, job=f"simulated-{self._jobs}", workers=workers))

    def _tell(self, event: AnyEvent) -> None:
        if self._controller is not None:
            self._controller.handle(event)

    def _on_decision(self, event: AnyEvent, decision: Decision) -> None:
        self._account.hear(event, decision)
        if decision.choice is not None:
            rung = decision.choice.rung
            self._rungs[rung] = self._rungs.get(rung, 0) + 1
        incident = decision.state.job.incident
        if (
            event.__struct_config__.tag == "step-reached"
            and incident is None
            and self._stands_since_s is not None
        ):
            if self._training.moves:
                self._recoveries.append(event.at_s - self._stands_since_s)
                self._stands_since_s = None
        if any(isinstance(order, EndJob) for order in decision.orders):
            self._clock.after(0.0, self._end_job)
        elif not self._ticking and not isinstance(decision.state.phase, Running | Ended):
            self._ticking = True
            self._clock.after(TICK_S, self._tick)

    def _tick(self) -> None:
        """Sends a tick while the phase can time out; none while steps are made."""
        controller = self._controller
        if controller is None or isinstance(controller.state.phase, Running | Ended):
            self._ticking = False
            return
        waits = controller.state.phase.__struct_config__.tag == "waiting"
        self._clock.after(TICK_WAITING_S if waits else TICK_S, self._tick)
        self._tell(Tick(at_s=self._clock.now_s))

    def _end_job(self) -> None:
        """Lets an operator take out broken nodes and submit the job again."""
        if self._controller is None:
            return
        self._settle()
        self._controller = None
        self._training.end(self._clock.now_s)
        ended_s, wait_s = self._clock.now_s, self._contender.person_s

        def again() -> None:
            self._add(PERSON, self._clock.now_s - ended_s)
            self._engine.clear_by_hand()
            self._submit()

        self._person_since_s = ended_s
        self._clock.after(wait_s, again)

    def _settle(self) -> None:
        for name, seconds in self._account.cost(1, "job").by_class.items():
            self._add(name, seconds)

    def _add(self, name: str, seconds: float) -> None:
        self._spent[name] = self._spent.get(name, 0.0) + seconds

    def _divided(self, at_s: float, useful_s: float) -> dict[str, float]:
        """Returns the time by cause; checkpoints, slow periods and lost work are taken out of the
        computing time.
        """
        found = dict(self._spent)
        if self._controller is None:
            found[PERSON] = found.get(PERSON, 0.0) + at_s - self._person_since_s
        computing_s = found.get(COMPUTING, 0.0)
        beside_s = self._training.checkpointing_s + self._training.slow_s
        for name, seconds in (
            (CHECKPOINTING, self._training.checkpointing_s),
            (STRAGGLERS, self._training.slow_s),
            (REPEATED, max(0.0, computing_s - beside_s - useful_s)),
        ):
            taken_s = min(seconds, computing_s)
            computing_s -= taken_s
            found[name] = found.get(name, 0.0) + taken_s
        found[COMPUTING] = computing_s
        return {name: seconds for name, seconds in found.items() if seconds > 0.0}

    # Faults -------------------------------------------------------------------------------------------------

    def _plan_fault(self, after_s: float) -> None:
        drawn = self._faults.next(after_s)
        if drawn.at_s < self._until_s:
            self._clock.at(drawn.at_s, self._striking(drawn))

    def _striking(self, drawn: Drawn) -> Callable[[], None]:
        def strike() -> None:
            if self._controller is not None and self._engine.strike(drawn):
                self._interruptions += 1
                if self._stands_since_s is None:
                    self._stands_since_s = drawn.at_s
            self._plan_fault(drawn.at_s)

        return strike

    def _plan_slow(self, after_s: float) -> None:
        at_s = self._faults.next_slow(after_s)
        if at_s is None or at_s >= self._until_s:
            return

        def slow() -> None:
            stretch = self._world.slow
            self._training.slow_down(60.0 * stretch.minutes * (1.0 - 1.0 / stretch.ratio))
            self._plan_slow(at_s)

        self._clock.at(at_s, slow)
