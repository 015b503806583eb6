"""Defines the interfaces between the engine of a multi-node job (worker_group.py) and its parts: link,
detectors, diagnosis, calls and files.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from holdfast.controller.journal_copies import JournalCopies
from holdfast.core.workers.acts import Act
from holdfast.link.arrived import Arrived
from holdfast.model.events import AnyEvent
from holdfast.model.nodes.workers import Looked, RecordsReport, Sampled, Shipped, WorkerEvidence
from holdfast.model.orders import Diagnose


class Link(Protocol):
    """Interface of the connections to the agents, as far as the controller uses it."""

    def turn(self) -> Sequence[Arrived]: ...

    def fileno(self) -> int: ...

    def recorded(self, stream: str, seq: int) -> None: ...

    def order(self, peer: str, order_id: str, body: bytes) -> None: ...

    def forget_orders(self, peer: str, prefix: str = "") -> None: ...

    def say(self, peer: str, body: bytes) -> bool: ...

    def offset_s(self, peer: str) -> float | None: ...

    def silent_s(self, peer: str) -> float: ...

    def drop(self, peer: str, why: str) -> None: ...


class Looking(Protocol):
    """Interface of a detector that compares the ranks of all nodes.

    `tick` may start a long computation; `go_on` does one step of it while `is_busy` returns True.
    """

    @property
    def is_busy(self) -> bool: ...

    def tick(self, at_s: float) -> list[Act]: ...

    def go_on(self, at_s: float) -> list[Act]: ...


class HangWatch(Looking, Protocol):
    """Interface of the hang detector over all nodes (controller/hang_watch.py)."""

    def sampled(self, node: str, report: Sampled) -> None: ...

    def looked(self, node: str, report: Looked) -> None: ...


class StragglerWatch(Looking, Protocol):
    """Interface of the detector of slow ranks and nodes (controller/straggler_watch.py)."""

    def sampled(self, node: str, report: Sampled) -> None: ...

    def records(self, node: str, report: RecordsReport) -> None: ...


class Conclusion(Protocol):
    """Interface of the diagnosis over all nodes (controller/conclusion.py)."""

    def diagnose(self, order: Diagnose, at_s: float) -> list[Act]: ...

    def evidence(self, node: str, report: WorkerEvidence) -> None: ...

    def heard(self, event: AnyEvent) -> None: ...

    def turn(self, at_s: float) -> list[Act]: ...


class Calls(Protocol):
    """Interface of the router of users' calls (controller/calls.py)."""

    def hear(self, peer: str, body: bytes) -> bool: ...

    def left(self, peer: str) -> None: ...

    def turn(self) -> None: ...


class Files(Protocol):
    """Interface of the writer of workers' files, if the job's folder is not shared
    (controller/shipped.py).
    """

    def take(self, report: Shipped) -> str: ...


class Parts(Struct):
    """The parts of the controller of a multi-node job that process reports of agents."""

    hangs: HangWatch
    conclusion: Conclusion
    calls: Calls
    files: Files
    stragglers: StragglerWatch | None = None
    copies: JournalCopies | None = None
    shunned: Callable[[], frozenset[str]] = frozenset  # nodes that the node book excludes
    # Isolates the node for all jobs; or returns why it may not (node, reason -> why not).
    why_not_isolate: Callable[[str, str], str] = lambda node, reason: ""
