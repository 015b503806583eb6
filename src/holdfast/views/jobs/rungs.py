"""Lists the rungs of the ladder for an incident: the chosen ones, and why the others were not. Pure.

The rules are those of docs/ladder.md and `core.job.ladder`, told for the faults, the policy and the counters of the incident.
"""

from collections.abc import Callable

from msgspec import Struct

from holdfast.core.job.story import IncidentStory
from holdfast.model.documents.incidents import RungRow
from holdfast.model.policy import Policy
from holdfast.model.state import CheckFault, DeviceFault, HangFault, NodeFault


class _Case(Struct, frozen=True, kw_only=True):
    policy: Policy
    is_hang: bool
    has_device: bool
    has_node: bool
    restarts: int  # before the choice
    replacements: int


def rung_rows(incident: IncidentStory, policy: Policy) -> tuple[RungRow, ...]:
    """In their order: those chosen with their time, then the others in the order of the ladder."""
    chosen = [RungRow(rung=one.rung, why=one.why, at_s=one.at_s, shadow=one.shadow) for one in incident.rungs]
    if not chosen:
        return ()
    taken = {one.rung for one in chosen}
    case = _case(incident, policy)
    others = [
        RungRow(rung=rung, why=why, chosen=False)
        for rung, tell in _WHY_NOT.items()
        if rung not in taken and (why := tell(case))
    ]
    return (*chosen, *others)


def _case(incident: IncidentStory, policy: Policy) -> _Case:
    first = incident.rungs[0]
    faults = incident.faults
    counted = "schedule" in first.rung
    return _Case(
        policy=policy,
        is_hang=bool(faults) and isinstance(faults[0], HangFault),
        has_device=any(isinstance(fault, DeviceFault) for fault in faults),
        has_node=any(
            isinstance(fault, NodeFault | CheckFault) or (isinstance(fault, DeviceFault) and fault.steps_up)
            for fault in faults
        ),
        restarts=first.restarts - counted,
        replacements=first.replacements - (first.rung == "replace-worker"),
    )


def _in_place(case: _Case) -> str:
    if not case.has_device:
        return "no device reported a fault that may heal"
    if case.policy.max_restarts is None and case.policy.replace_workers is None:
        return "no restart is allowed (--max-restarts is not set)"
    return "the device did not heal, or failed too often" if case.has_node else ""


def _hang(case: _Case) -> str:
    if not case.is_hang:
        return "the job did not hang"
    return "" if case.policy.hang_restart else "hang restart is off (--hang-restart)"


def _replace(case: _Case) -> str:
    if not case.has_node:
        return "no node is at fault"
    if case.policy.replace_workers is None:
        return "workers are not replaced one by one (--replace-workers is not set)"
    if case.replacements >= case.policy.replace_workers:
        return f"all replacements are spent ({case.policy.replace_workers})"
    return ""


def _isolated(case: _Case) -> str:
    return _no_restart(case) if case.has_node else "no node is at fault"


def _unconditional(case: _Case) -> str:
    if refused := _no_restart(case):
        return refused
    if case.has_node:
        return "a node is at fault, and the job leaves it"
    if case.is_hang:
        return "a hang has its own rung"
    return (
        ""
        if case.policy.unconditional_restart
        else "restart on such an exit is off (--unconditional-restart)"
    )


def _no_restart(case: _Case) -> str:
    if case.policy.max_restarts is None:
        return "no restart is allowed (--max-restarts is not set)"
    if case.restarts >= case.policy.max_restarts:
        return f"all restarts are spent ({case.policy.max_restarts})"
    return ""


_WHY_NOT: dict[str, Callable[[_Case], str]] = {
    "in-place": _in_place,
    "hang-restart": _hang,
    "replace-worker": _replace,
    "reschedule-isolated": _isolated,
    "reschedule-unconditional": _unconditional,
}
