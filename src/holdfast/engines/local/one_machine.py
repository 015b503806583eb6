"""Implements the engine of a single node.

"Reschedule" means here a new worker with a fresh working environment and fresh counters. If the only node is
isolated, none is left and the job fails. The agent handles processes.
"""

from collections.abc import Callable

from holdfast.model.events import AnyEvent, DeviceHealed, NodeIsolated, Placed, PlacementFailed, WorkersPlaced
from holdfast.model.orders import HealDevice, IsolateNode, PlaceWorkers


class LocalEngine:
    """The engine of a single node, which responds to every order at once through `emit`.

    `clock`: the job's.
    """

    def __init__(self, node: str, clock: Callable[[], float], emit: Callable[[AnyEvent], None]) -> None:
        self._node = node
        self._clock = clock
        self._emit = emit

    def carry_out(self, order: PlaceWorkers | IsolateNode | HealDevice) -> None:
        at_s = self._clock()
        match order:
            case PlaceWorkers() if self._node in order.without_nodes:
                reason = f"{self._node} is the only node of this machine, and it is isolated or lost"
                self._emit(PlacementFailed(at_s=at_s, attempt=order.attempt, reason=reason, hopeless=True))
            case PlaceWorkers():
                placed = tuple(Placed(worker, self._node) for worker in order.workers)
                self._emit(WorkersPlaced(at_s=at_s, attempt=order.attempt, placed=placed))
            case IsolateNode():
                self._emit(NodeIsolated(at_s=at_s, node=order.node))
            case HealDevice():  # nothing here can reset a device
                self._emit(DeviceHealed(at_s=at_s, node=order.node, device=order.device, healed=False))
