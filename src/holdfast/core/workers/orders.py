"""Defines the core's orders in progress, with the nodes or workers that each one waits for. Pure."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.workers.memory import Rendezvous
from holdfast.model.checks import FAIL, SKIP, STATUSES
from holdfast.model.events import NodesChecked
from holdfast.model.nodes.workers import PortFound, StartWorker
from holdfast.model.orders import CheckNodes, PlaceWorkers, StartAttempt, StopAttempt, WorkerStart

TROUBLES_MAX = 256  # reported for one check of all nodes


class Placing(Struct):
    """The state of an order to place workers that is in progress.

    `more_asked`: the engine was asked for other nodes. `failed`: it was reported that there are too few nodes.
    `missing`: how many more nodes must become free before all workers can be placed.
    """

    order: PlaceWorkers
    since_s: float
    more_asked: bool = False
    no_more: str | None = None  # the engine's answer
    failed: bool = False
    missing: int = 0


class Checking(Struct):
    """The state of an order to check nodes that is in progress."""

    order: CheckNodes
    waits_for: set[str]
    answers: list[NodesChecked] = []


class Starting(Struct):
    """The state of an order to start an attempt that is in progress.

    `old`: nodes on which processes of an older attempt still have to end. `begun`: the workers were ordered to start.
    """

    order: StartAttempt
    since_s: float
    waits_for: set[int]
    old: set[str] = set()
    port_asked: bool = False
    begun: bool = False
    is_over: bool = False


class Stopping(Struct):
    """The state of an order to stop an attempt that is in progress.

    `left`: processes that cannot be ended, by node. `reported`: those that were last reported.
    """

    order: StopAttempt
    waits_for: set[str]
    left: dict[str, tuple[int, ...]] = {}
    reported: tuple[int, ...] = ()

    @property
    def processes_left(self) -> tuple[int, ...]:
        """Returns the ids of all processes that cannot be ended."""
        return tuple(pid for node in sorted(self.left) for pid in self.left[node])


def joined(order: CheckNodes, answers: Sequence[NodesChecked], at_s: float) -> NodesChecked:
    """Joins the answers of all nodes to a check.

    The first `stop` counts; `seconds` is that of the slowest node.
    """
    places = {node: number for number, node in enumerate(order.nodes)}
    answers = sorted(answers, key=lambda one: places.get(one.nodes[0], 0) if one.nodes else 0)
    nodes = tuple(dict.fromkeys(node for one in answers for node in one.nodes))
    whys = list(dict.fromkeys(one.why_not for one in answers if one.why_not))
    checked = [one for one in answers if not one.why_not]
    return NodesChecked(
        at_s=at_s,
        attempt=order.attempt,
        nodes=nodes,
        status=_worst(one.status for one in answers),
        isolate={node: why for one in answers for node, why in one.isolate.items()},
        stop=next((one.stop for one in answers if one.stop), ""),
        troubles=tuple(finding for one in answers for finding in one.troubles)[:TROUBLES_MAX],
        passed=sum(one.passed for one in answers),
        warned=sum(one.warned for one in answers),
        failed=sum(one.failed for one in answers),
        skipped=sum(one.skipped for one in answers),
        seconds=max((one.seconds for one in answers), default=0.0),
        why_not="; ".join(whys) if not checked else "",
        devices=tuple(device for one in answers for device in one.devices),
        not_passed=tuple(dict.fromkeys(node for one in answers if not has_passed(one) for node in one.nodes)),
    )


def has_passed(answer: NodesChecked) -> bool:
    """Returns whether the node was checked without a failed check."""
    return answer.status != FAIL and answer.passed > 0 and not (answer.why_not or answer.stop)


def meeting(name: str, address: str, found: PortFound) -> Rendezvous:
    """Returns the rendezvous of an attempt. `name`: a format string with a field for the attempt's number."""
    run_id = name.format(attempt=found.attempt)
    return Rendezvous(attempt=found.attempt, address=address, port=found.port, run_id=run_id)


def starts(start: WorkerStart, meets: Rendezvous, order: StartAttempt) -> StartWorker:
    """Returns the command by which an agent starts its worker."""
    return StartWorker(
        attempt=order.attempt,
        worker=start.worker,
        workers=len(order.workers),
        schedule_cnt=start.schedule_cnt,
        proc_start_cnt=start.proc_start_cnt,
        master_address=meets.address,
        master_port=meets.port,
        run_id=meets.run_id,
    )


def of_node(answer: NodesChecked, node: str) -> NodesChecked:
    """Returns an agent's answer about its own node, under the job's name for that node."""
    if answer.nodes == (node,):
        return answer
    devices = tuple(replace(one, node=node) for one in answer.devices)
    return replace(answer, nodes=(node,), devices=devices)


def _worst(statuses: Iterable[str]) -> str:
    return max(statuses, key=STATUSES.index, default=SKIP)
