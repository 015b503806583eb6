"""Injects the faults of a scenario: at a time, or at a step of the training."""

from collections.abc import Callable

from holdfast.model.events import AnyEvent, NodeLost, NodeReturned
from holdfast.sim.cluster import Broken, Cluster
from holdfast.sim.scenario import Fault
from holdfast.sim.training import Training
from holdfast.sim.world import World

LOSS_FOUND_S = 1.0  # from a node's end until it is missed


class Faults:
    """Injects the faults of one scenario. `quiet`: no more faults are injected."""

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        training: Training,
        faults: tuple[Fault, ...],
        tell: Callable[[AnyEvent], None],
    ) -> None:
        self.quiet = False
        self.down_since_s: dict[str, float] = {}
        self._world = world
        self._cluster = cluster
        self._training = training
        self._tell = tell
        self._at_step = [_AtStep(fault) for fault in faults if fault.at_step is not None]
        training.next_fault_step = self._next_step
        training.strike_at = self._strike_at
        for fault in faults:
            if fault.at_s is not None:
                self._repeat(fault, fault.at_s, fault.times)

    def _repeat(self, fault: Fault, first_s: float, times: int) -> None:
        for turn in range(times):
            self._world.at(first_s + turn * (fault.every_s or 0.0), lambda: self.strike(fault))

    def _next_step(self, after: int) -> int | None:
        """Returns the next step of this attempt at which a fault is due; None if there is none."""
        if not self._at_step or self.quiet:
            return None
        attempt = self._training.attempt
        return min(
            (due.step for due in self._at_step if due.step > after and due.is_due(attempt)), default=None
        )

    def _strike_at(self, step: int) -> None:
        attempt = self._training.attempt
        for due in self._at_step:
            if due.step != step or not due.is_due(attempt):
                continue
            due.struck_in = attempt
            due.left -= 1
            if due.fault.every_s is not None:
                self._repeat(due.fault, self._world.now_s + due.fault.every_s, due.left)
                due.left = 0
            self.strike(due.fault)

    def strike(self, fault: Fault) -> None:
        if self.quiet:
            return
        node = fault.node if fault.node is not None else self._cluster.home[fault.worker or 0]
        worker = fault.worker if fault.worker is not None else self._worker_on(node)
        match fault.kind:
            case "node_down":
                self.lose(node)
            case "device":
                self._break(node, str(fault.device), Broken(fault.code, fault.heals))
            case "exit" if worker is not None:
                self._training.exit(worker, fault.rank, fault.exit_code, fault.error)
            case "hang" if worker is not None:
                self._training.hang(worker, fault.rank)

    def lose(self, name: str) -> None:
        node = self._cluster.nodes[name]
        node.touched = True
        if not node.up:
            return
        node.up = False
        self.down_since_s[name] = self._world.now_s
        self._training.node_down(name)
        self._world.after(LOSS_FOUND_S, lambda: self._tell_loss(name))

    def bring_back(self, name: str) -> None:
        """Returns a repaired node to the cluster; an unknown name adds a new node."""
        if name not in self._cluster.nodes:
            self._cluster.add(name)
        node = self._cluster.nodes[name]
        node.up = True
        self.down_since_s.pop(name, None)
        node.broken = {}
        self._tell(NodeReturned(at_s=self._world.now_s, node=name))

    def _tell_loss(self, name: str) -> None:
        self._tell(NodeLost(at_s=self._world.now_s, node=name, reason="it does not answer"))

    def _break(self, name: str, device: str, broken: Broken) -> None:
        node = self._cluster.nodes[name]
        node.touched = True
        if not node.up:
            return
        node.broken[device] = broken
        self._training.device_broke(name, device, broken.code)

    def _worker_on(self, node: str) -> int | None:
        nodes = self._training.nodes
        return nodes.index(node) if node in nodes else None


class _AtStep:
    """A fault that waits for its step, at most once in each attempt."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.step = fault.at_step or 0
        self.left = fault.times
        self.struck_in = 0

    def is_due(self, attempt: int) -> bool:
        return (self.left > 0 or self.fault.every_attempt) and self.struck_in != attempt
