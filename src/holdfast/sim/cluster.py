"""Simulates nodes, and the engine that carries out the controller's orders on them.

Like a real engine it may receive an order twice, and responds again without harm. It makes no decisions about
recovery except the placement of workers.
"""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from holdfast.model.checks import FAIL, PASS
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStopped,
    DeviceHealed,
    NodeIsolated,
    NodesChecked,
    Placed,
    PlacementFailed,
    VerdictReached,
    WorkersPlaced,
)
from holdfast.model.orders import (
    AnyOrder,
    CheckNodes,
    Diagnose,
    EndJob,
    HealDevice,
    IsolateNode,
    PlaceWorkers,
    StartAttempt,
    StopAttempt,
    TellPeople,
)
from holdfast.sim.training import Training
from holdfast.sim.verdicts import verdict_on
from holdfast.sim.world import World


class Broken(Struct, frozen=True):
    """A faulty device: the code that it reports, and whether it can recover."""

    code: str
    heals: bool


class Node:
    """A simulated node. `touched`: the node had a fault, so isolating it can be right.

    `sick`: probability that a check of the node fails.
    """

    def __init__(self, name: str, sick: float = 0.0) -> None:
        self.name = name
        self.sick = sick
        self.up = True
        self.isolated = False
        self.touched = sick > 0
        self.broken: dict[str, Broken] = {}


class Cluster:
    """The simulated nodes. `home`: the node on which each worker runs, or ran last."""

    def __init__(self, workers: int, spares: int, sick: Mapping[str, float] = {}) -> None:
        names = [f"node-{number}" for number in range(workers + spares)]
        self.nodes = {name: Node(name, sick.get(name, 0.0)) for name in names}
        self.home = {worker: f"node-{worker}" for worker in range(workers)}

    def add(self, name: str) -> None:
        self.nodes[name] = Node(name)

    def place(self, order: PlaceWorkers) -> tuple[Placed, ...] | str:
        """Returns a node for every worker, preferably its previous one; or why that is impossible."""
        taken = {*order.keep_nodes, *order.without_nodes}
        found: dict[int, str] = {}
        for worker in order.workers:
            former = self.home[worker]
            if former not in taken and self._is_usable(former):
                found[worker] = former
                taken.add(former)
        free = (name for name in self.nodes if name not in taken and self._is_usable(name))
        for worker in order.workers:
            if worker in found:
                continue
            node = next(free, None)
            if node is None:
                return f"no node is free for worker {worker}"
            found[worker] = node
        self.home.update(found)
        return tuple(Placed(worker, found[worker]) for worker in order.workers)

    def _is_usable(self, name: str) -> bool:
        node = self.nodes[name]
        return node.up and not node.isolated


class Timing(Struct, frozen=True, kw_only=True):
    """Delays of the simulated engine's responses, in seconds."""

    place_s: float = 1.0
    check_s: float = 1.5
    launch_s: float = 0.2
    stop_s: float = 1.0
    kill_s: float = 0.1
    isolate_s: float = 0.1
    heal_s: float = 3.0
    verdict_s: float = 0.3


class Service:
    """Delivers the engine's responses, each once and in time. Random worlds lose, repeat and delay them instead."""

    def lags_s(self) -> list[float]:
        """Returns the delay in seconds of each copy in which a response arrives; empty if the response is lost."""
        return [0.0]

    def stuck_s(self) -> float:
        """Returns for how many seconds a killed process cannot be ended (state D)."""
        return 0.0


class VirtualEngine:
    """The simulated engine: carries out the controller's orders on the simulated cluster."""

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        training: Training,
        tell: Callable[[AnyEvent], None],
        *,
        service: Service,
        user_caused_codes: tuple[str, ...],
        timing: Timing,
    ) -> None:
        self._world = world
        self._cluster = cluster
        self._training = training
        self._tell = tell
        self._service = service
        self._user_caused_codes = user_caused_codes
        self._timing = timing
        self._check_dice = Random(f"checks {world.seed}")
        self._stopped = 0  # no attempt up to this one is ever started
        self._kill_at_s: float | None = None  # of the attempt being stopped
        self._stuck: dict[int, float] = {}  # attempt -> until when a process of it cannot be killed
        training.on_empty = self._all_gone

    def carry_out(self, order: AnyOrder) -> None:
        match order:
            case PlaceWorkers():
                self._answer(self._timing.place_s, lambda: self._placed(order))
            case CheckNodes():
                self._answer(self._timing.check_s, lambda: self._looked_at(order))
            case StartAttempt():
                self._start(order)
            case StopAttempt():
                self._stop(order)
            case HealDevice():
                self._answer(self._timing.heal_s, lambda: self._healed(order))
            case IsolateNode():
                self._cluster.nodes[order.node].isolated = True
                self._answer(self._timing.isolate_s, lambda: NodeIsolated(at_s=self._now_s, node=order.node))
            case Diagnose():
                self._answer(self._timing.verdict_s, lambda: self._verdict(order))
            case TellPeople() | EndJob():
                pass
            case never:
                assert_never(never)

    @property
    def _now_s(self) -> float:
        return self._world.now_s

    def _answer(self, delay_s: float, make: Callable[[], AnyEvent | None]) -> None:
        """Sends an event after a delay.

        `make`: creates it from the state of the world when the work is done.
        """
        self._world.after(delay_s, lambda: self._send(make()))

    def _send(self, event: AnyEvent | None) -> None:
        if event is None:
            return
        for lag_s in self._service.lags_s():
            if lag_s:
                late = replace(event, at_s=self._now_s + lag_s)
                self._world.after(lag_s, partial(self._tell, late))
            else:
                self._tell(event)

    def _placed(self, order: PlaceWorkers) -> AnyEvent:
        found = self._cluster.place(order)
        if isinstance(found, str):
            return PlacementFailed(at_s=self._now_s, attempt=order.attempt, reason=found)
        for place in found:
            self._renew(place.node)
        return WorkersPlaced(at_s=self._now_s, attempt=order.attempt, placed=found)

    def _looked_at(self, order: CheckNodes) -> AnyEvent | None:
        """Returns the result of checking the nodes that are up; None if none is."""
        nodes = [self._cluster.nodes[name] for name in order.nodes if self._cluster.nodes[name].up]
        if not nodes:
            return None
        broken = [node.name for node in nodes if node.sick and self._check_dice.random() < node.sick]
        return NodesChecked(
            at_s=self._now_s,
            attempt=order.attempt,
            nodes=tuple(node.name for node in nodes),
            status=FAIL if broken else PASS,
            isolate=dict.fromkeys(broken, "gpu-ecc: a row of its memory cannot be remapped"),
            passed=len(nodes) - len(broken),
            failed=len(broken),
            seconds=self._timing.check_s,
        )

    def _renew(self, name: str) -> None:
        """Removes device faults that the user's processes had caused, because a new worker does not have
        them.
        """
        node = self._cluster.nodes[name]
        mine = self._user_caused_codes
        node.broken = {device: broken for device, broken in node.broken.items() if broken.code not in mine}

    def _healed(self, order: HealDevice) -> AnyEvent | None:
        node = self._cluster.nodes[order.node]
        if not node.up:
            return None
        broken = node.broken.get(order.device)
        healed = broken is None or broken.heals
        if healed:
            node.broken.pop(order.device, None)
        return DeviceHealed(at_s=self._now_s, node=order.node, device=order.device, healed=healed)

    def _verdict(self, order: Diagnose) -> VerdictReached:
        return verdict_on(self._training.troubles, order.incident, self._now_s)

    # --- starting and stopping

    def _start(self, order: StartAttempt) -> None:
        if order.attempt > max(self._training.attempt, self._stopped):
            self._kill_at_s = None
            self._training.start(order)
        elif order.attempt < self._training.attempt or not self._training.alive:
            return
        self._answer(self._timing.launch_s, lambda: AttemptStarted(at_s=self._now_s, attempt=order.attempt))

    def _stop(self, order: StopAttempt) -> None:
        self._stopped = max(self._stopped, order.attempt)
        if order.attempt != self._training.attempt or not self._training.alive:
            self._answer(self._timing.kill_s, lambda: self._gone(order.attempt))
            return
        wait_s = self._timing.kill_s if order.force else order.finish_s + self._timing.stop_s
        at_s = self._now_s + wait_s
        if self._kill_at_s is not None and self._kill_at_s <= at_s and order.attempt not in self._stuck:
            return  # under way
        self._kill_at_s = at_s
        self._world.at(at_s, lambda: self._kill(order.attempt))

    def _kill(self, attempt: int) -> None:
        training = self._training
        if attempt != training.attempt or not training.alive:
            return
        if attempt not in self._stuck:
            self._stuck[attempt] = self._now_s + self._service.stuck_s()
        if self._now_s < self._stuck[attempt]:
            worker = min(training.alive)
            training.kill(but=worker)
            self._world.at(self._stuck[attempt], lambda: self._kill(attempt))
            left = AttemptStopped(at_s=self._now_s, attempt=attempt, left=(1000 + worker,))
            self._answer(0.0, lambda: left)
            return
        training.kill()
        self._answer(0.0, lambda: self._gone(attempt))

    def _gone(self, attempt: int) -> AnyEvent | None:
        if attempt == self._training.attempt and self._training.alive:
            return None
        return AttemptStopped(at_s=self._now_s, attempt=attempt)

    def _all_gone(self) -> None:
        """Handles the end of the last process, which is reported only during a stop."""
        if self._kill_at_s is not None:
            self._answer(self._timing.kill_s, lambda: self._gone(self._stopped))
