"""Simulates an engine with thousands of nodes, and applies faults to them. Decides nothing about recovery."""

from collections.abc import Callable
from functools import partial
from typing import assert_never

from holdfast.model.checks import PASS
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStopped,
    DeviceFaulted,
    DeviceHealed,
    HangFound,
    NodeIsolated,
    NodeLost,
    NodeReleased,
    NodeReturned,
    NodesChecked,
    Placed,
    PlacementFailed,
    RankExited,
    RestartRequested,
    StepReached,
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
from holdfast.model.verdicts import UNKNOWN
from holdfast.sim.months.faults import Drawn, Faults
from holdfast.sim.months.job import Training
from holdfast.sim.months.plan import Contender, World
from holdfast.sim.world import World as Clock

# Delays of the virtual engine's answers in seconds, as measured on real nodes (docs/benchmarks.md).
FOUND_S, VERDICT_S, STOP_S, PLACE_S, CHECK_S, HEAL_S, LAUNCH_S, ISOLATE_S = (
    0.2,
    1.5,
    2.0,
    1.0,
    1.5,
    10.0,
    0.2,
    0.1,
)
REBOOT_S = 300.0  # of a node that comes back by itself: BIOS, driver, agent
CODE = "fault"
NO_NODE = -1


class Engine:
    """The simulated engine. `out_max`: the most nodes out of service at the same time.

    Node N is named `node-N`.
    """

    def __init__(
        self,
        world: World,
        contender: Contender,
        clock: Clock,
        training: Training,
        faults: Faults,
        tell: Callable[[AnyEvent], None],
    ) -> None:
        self._world, self._contender, self._clock = world, contender, clock
        self._training, self._faults, self._tell = training, faults, tell
        nodes = world.plan.nodes
        self.out_max = 0
        self._home = list(range(nodes))  # of each worker
        self._spares = list(range(nodes, nodes + world.plan.spares))
        self._out: set[int] = set()  # lost or isolated
        self._broken: dict[int, bool] = {}  # node -> whether a reset heals its device
        self._at_work: dict[int, int] = {node: worker for worker, node in enumerate(self._home)}
        self._attempt = 0
        self._alive = False
        self._turn = 0
        self._job = 0

    # The job ------------------------------------------------------------------------------------------------

    def begin_job(self) -> None:
        self._job += 1
        self._turn += 1
        self._attempt, self._alive = 0, False

    def clear_by_hand(self) -> None:
        """Replaces all broken nodes, as an operator does before the job is started again."""
        for worker, node in enumerate(self._home):
            if node in self._broken or node in self._out:
                self._take_out(node)
                if self._spares:
                    self._move(worker, self._spares.pop(0))

    def carry_out(self, order: AnyOrder) -> None:
        match order:
            case PlaceWorkers():
                self._answer(PLACE_S, partial(self._placed, order))
            case CheckNodes():
                self._answer(CHECK_S, partial(self._checked, order))
            case StartAttempt():
                self._start(order)
            case StopAttempt():
                self._answer(STOP_S, partial(self._stopped, order))
            case HealDevice():
                self._answer(HEAL_S, partial(self._healed, order))
            case IsolateNode():
                self._take_out(_number(order.node))
                self._answer(ISOLATE_S, lambda: NodeIsolated(at_s=self._now_s, node=order.node))
            case Diagnose():
                self._answer(VERDICT_S, lambda: self._verdict(order.incident))
            case TellPeople():
                self._wake_a_person()
            case EndJob():
                self._turn += 1
                self._alive = False
            case never:
                assert_never(never)

    @property
    def _now_s(self) -> float:
        return self._clock.now_s

    def _answer(self, delay_s: float, make: Callable[[], AnyEvent | None]) -> None:
        """Sends an event after a delay, unless another job has started meanwhile."""
        job = self._job

        def answer() -> None:
            event = make() if job == self._job else None
            if event is not None:
                self._tell(event)

        self._clock.after(delay_s, answer)

    def _placed(self, order: PlaceWorkers) -> AnyEvent:
        shunned = {_number(name) for name in order.without_nodes}
        found = list[Placed]()
        for worker in order.workers:
            node = self._home[worker]
            if node in shunned or node in self._out:
                if self._contender.keeps_nodes:
                    why = f"node-{node} is gone, and this system replaces no node"
                    return PlacementFailed(at_s=self._now_s, attempt=order.attempt, reason=why, hopeless=True)
                spare = next(
                    (one for one in self._spares if one not in shunned and one not in self._out), NO_NODE
                )
                if spare == NO_NODE:
                    return PlacementFailed(at_s=self._now_s, attempt=order.attempt, reason="no spare is left")
                self._spares.remove(spare)
                self._move(worker, spare)
            found.append(Placed(worker, _name(self._home[worker])))
        return WorkersPlaced(at_s=self._now_s, attempt=order.attempt, placed=tuple(found))

    def _move(self, worker: int, node: int) -> None:
        before = self._home[worker]
        self._at_work.pop(before, None)
        if before not in self._out:  # repaired meanwhile
            self._spares.append(before)
        self._home[worker] = node
        self._at_work[node] = worker

    def _checked(self, order: CheckNodes) -> AnyEvent:
        count = len(order.nodes)
        return NodesChecked(
            at_s=self._now_s,
            attempt=order.attempt,
            nodes=order.nodes,
            status=PASS,
            passed=count,
            seconds=CHECK_S,
        )

    def _start(self, order: StartAttempt) -> None:
        if order.attempt <= self._attempt:
            return
        self._attempt, self._alive = order.attempt, True
        self._turn += 1
        turn = self._turn
        self._answer(LAUNCH_S, lambda: AttemptStarted(at_s=self._now_s, attempt=order.attempt))
        broken = next((node for node in self._broken if node in self._at_work), NO_NODE)
        if broken != NO_NODE:  # it fails again as soon as it is used
            self._clock.after(self._contender.start_s / 2.0, lambda: self._device_fails(broken, turn))
            return
        self._clock.after(self._contender.start_s, lambda: self._first_step(turn))

    def _first_step(self, turn: int) -> None:
        if turn != self._turn or not self._alive:
            return
        self._training.begin(self._now_s)
        self._tell_step()

    def _tell_step(self) -> None:
        step = self._training.step(self._now_s)
        self._tell(StepReached(at_s=self._now_s, attempt=self._attempt, step=step))

    def _stopped(self, order: StopAttempt) -> AnyEvent:
        self._alive = False
        self._turn += 1
        self._training.end(self._now_s)
        return AttemptStopped(at_s=self._now_s, attempt=order.attempt)

    def _healed(self, order: HealDevice) -> AnyEvent:
        node = _number(order.node)
        healed = self._broken.pop(node, True)
        if not healed:
            self._broken[node] = False
        return DeviceHealed(at_s=self._now_s, node=order.node, device=order.device, healed=healed)

    def _verdict(self, incident: int) -> AnyEvent:
        return VerdictReached(at_s=self._now_s, incident=incident, verdict=UNKNOWN)

    def _wake_a_person(self) -> None:
        """Lets an operator restart the job after a while, if it stands and nothing else restarts it."""
        turn = self._turn

        def restart() -> AnyEvent | None:
            if turn != self._turn or not self._alive:
                return None
            return RestartRequested(at_s=self._now_s, attempt=self._attempt, by="a person")

        self._answer(self._contender.person_s, restart)

    # Faults -------------------------------------------------------------------------------------------------

    def strike(self, drawn: Drawn) -> bool:
        """Applies a fault. Returns whether it affects the job; a fault of ranks needs ranks."""
        if not self._at_work:
            return False
        node = self._faults.node(drawn, self._at_work)
        if drawn.kind == "node":
            return self._lose([node], self._faults.repair_s())
        if drawn.kind == "switch":
            first = node - node % self._world.plan.switch_nodes
            nodes = [
                one for one in range(first, first + self._world.plan.switch_nodes) if one in self._at_work
            ]
            return self._lose(nodes, 60.0 * self._world.plan.switch_minutes)
        if not self._alive:
            return False
        self._stand()
        turn = self._turn
        match drawn.kind:
            case "device":
                self._broken[node] = drawn.dice[0] < self._world.plan.healing
                self._clock.after(FOUND_S, lambda: self._device_fails(node, turn))
            case "software":
                self._clock.after(FOUND_S, lambda: self._rank_exits(node, turn))
            case _:
                self._clock.after(self._contender.hang_s, lambda: self._hang(node, turn))
        return True

    def _stand(self) -> None:
        """Stops the steps; the last step is read from the log before the fault is detected."""
        if self._training.moves:
            self._tell_step()
            self._training.stand(self._now_s)

    def _device_fails(self, node: int, turn: int) -> None:
        if turn != self._turn or not self._alive:
            return
        if self._contender.blind:
            self._rank_exits(node, turn)
        else:
            self._tell(DeviceFaulted(at_s=self._now_s, node=_name(node), device="0", code=CODE))

    def _rank_exits(self, node: int, turn: int) -> None:
        worker = self._at_work.get(node)
        if turn == self._turn and self._alive and worker is not None:
            rank = worker * self._world.plan.gpus_per_node
            self._tell(
                RankExited(
                    at_s=self._now_s,
                    attempt=self._attempt,
                    worker=worker,
                    rank=rank,
                    code=1,
                    reason="a fault",
                )
            )

    def _hang(self, node: int, turn: int) -> None:
        if turn != self._turn or not self._alive:
            return
        if self._contender.hang_exits:
            self._rank_exits(node, turn)
            return
        reason = f"no step for {self._contender.hang_s:.0f} s"
        self._tell(
            HangFound(at_s=self._now_s, attempt=self._attempt, hang="quiet", culprits=(), reason=reason)
        )

    def _lose(self, nodes: list[int], repair_s: float) -> bool:
        lost = [node for node in nodes if node not in self._out]
        if not lost:
            return False
        self._stand()
        for node in lost:  # also one that only reboots is missed first
            self._set_out(node, max(repair_s, self._contender.node_lost_s + REBOOT_S))
            self._answer(self._contender.node_lost_s, partial(self._lost, node))
        return True

    def _lost(self, node: int) -> AnyEvent | None:
        if node not in self._out:
            return None
        return NodeLost(at_s=self._now_s, node=_name(node), reason="it does not respond")

    def _take_out(self, node: int) -> None:
        if node not in self._out:
            self._set_out(node, self._faults.repair_s())
        self._broken.pop(node, None)

    def _set_out(self, node: int, repair_s: float) -> None:
        self._out.add(node)
        if node in self._spares:
            self._spares.remove(node)
        self.out_max = max(self.out_max, len(self._out))
        self._clock.after(repair_s, lambda: self._return(node))

    def _return(self, node: int) -> None:
        """Returns a repaired node as a spare, unless its worker still waits for it."""
        self._out.discard(node)
        self._broken.pop(node, None)
        if node not in self._at_work:
            self._spares.append(node)
        self._tell(NodeReleased(at_s=self._now_s, node=_name(node)))
        self._tell(NodeReturned(at_s=self._now_s, node=_name(node)))


def _name(node: int) -> str:
    return f"node-{node}"


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
