"""Implements the controller's loop: passes events to `core`, journals its decisions, and has their orders
carried out.

An order is journaled before it is carried out, so a controller that dies may repeat an order but never loses
one.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from holdfast.core.job.decide import decide
from holdfast.core.job.decision import Decision
from holdfast.journal.rows import RawEntry, Row
from holdfast.model.events import AnyEvent
from holdfast.model.orders import AnyOrder
from holdfast.model.policy import Policy
from holdfast.model.state import State

_encode = msgspec.json.Encoder().encode
_EVENTS: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
NO_ORDERS = b"[]"


class Engine(Protocol):
    """Interface that carries out orders.

    Results arrive later as events; carrying out an order twice does no harm.
    """

    def carry_out(self, order: AnyOrder) -> None: ...


class Record(Protocol):
    """Interface of the journal, as the controller's loop uses it.

    No method raises: a journal that cannot be written must not stop the training.
    """

    def record(self, row: Row) -> None: ...

    def flush(self) -> bool: ...


class Controller:
    """The loop of one job, from an event to its orders.

    An engine may call `handle` while it carries out an order; the event is then queued.
    """

    def __init__(
        self,
        policy: Policy,
        record: Record,
        engine: Engine,
        on_decision: Callable[[AnyEvent, Decision], None] = lambda event, decision: None,
        state: State | None = None,
    ) -> None:
        self.state = state if state is not None else State()
        self._policy = policy
        self._record = record
        self._engine = engine
        self._on_decision = on_decision
        self._inbox: deque[AnyEvent] = deque()
        self._busy = False

    def handle(self, event: AnyEvent) -> None:
        self._inbox.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._inbox:
                self._one(self._inbox.popleft())
        finally:
            self._busy = False

    def _one(self, event: AnyEvent) -> None:
        decision = decide(self.state, event, self._policy)
        if worth_keeping(self.state, event, decision):
            self._record.record(row_of(event, decision))
        self.state = decision.state
        self._on_decision(event, decision)
        if not decision.orders:
            return
        self._record.flush()
        for order in decision.orders:
            self._engine.carry_out(order)


def worth_keeping(state: State, event: AnyEvent, decision: Decision) -> bool:
    """Returns whether a journal needs this event: False for a clock tick that changed nothing."""
    return type(event).__name__ != "Tick" or decision.state is not state or bool(decision.orders)


def row_of(event: AnyEvent, decision: Decision) -> Row:
    orders = _encode(decision.orders) if decision.orders else NO_ORDERS
    return Row(
        at_s=event.at_s,
        kind=event.__struct_config__.tag or "",  # type: ignore[arg-type]
        event=_encode(event),
        orders=orders,
        why=decision.why,
    )


def replay(rows: Iterable[RawEntry], policy: Policy, state: State | None = None) -> State:
    """Returns the state after the journal's rows, computed by repeating all decisions.

    Events of a kind that this version does not know, because a newer one wrote them, are skipped.
    """
    state = state if state is not None else State()
    read = _EVENTS.decode
    for row in rows:
        try:
            event = read(row[2])
        except msgspec.ValidationError:
            continue
        state = decide(state, event, policy).state
    return state


def decisions(
    rows: Iterable[RawEntry], policy: Policy, state: State | None = None
) -> Iterable[tuple[AnyEvent, Decision]]:
    """Repeats the decisions of a journal, and yields each event with its decision.

    `state`: the state of the job before the first row; None if that is row 1.
    """
    state = state or State()
    for row in rows:
        try:
            event = _EVENTS.decode(row[2])
        except msgspec.ValidationError:
            continue
        decision = decide(state, event, policy)
        state = decision.state
        yield event, decision
