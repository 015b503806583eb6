"""Chooses the action (rung) of the recovery ladder for an incident, and counts it against the limits.

docs/ladder.md describes the rules. A choice's `why` reads "ACTION, because CAUSE"; for the action `fail` it is the
cause alone. Pure: depends on the job and the policy only.
"""

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.job.recurrence import would_come_back
from holdfast.core.plurals import counted
from holdfast.model.checks import PASS, WARN
from holdfast.model.policy import Policy
from holdfast.model.state import (
    CheckFault,
    Choice,
    Device,
    DeviceFault,
    DeviceSeen,
    ExitFault,
    HangFault,
    Incident,
    Job,
    NodeFault,
    StartFault,
    Worker,
)

RESCHEDULES = ("reschedule-isolated", "reschedule-unconditional")
FAULTS_MAX = 256  # per incident; further faults would not change the choice


class Chosen(Struct, frozen=True):
    """The chosen recovery action, and the job with the action counted and its needs (isolate, place, heal) set."""

    choice: Choice
    job: Job


def choose(job: Job, policy: Policy) -> Chosen:
    """Returns the recovery action for the job's open incident, from all its faults and its verdict.

    It is called again for a fault that arrives during a recovery; an incident is counted once, and its action never
    becomes a smaller one. In shadow mode the workers stay where they are.
    """
    chosen = _choose(job, policy)
    if not policy.shadow:
        return chosen
    return Chosen(chosen.choice, replace(chosen.job, workers=job.workers, to_heal=(), to_isolate=()))


def _choose(job: Job, policy: Policy) -> Chosen:
    incident = _incident(job)
    bad = _nodes_to_isolate(job, incident)
    if bad:
        return _away_from(job, policy, bad)
    devices = [fault for fault in incident.faults if isinstance(fault, DeviceFault)]
    if any(fault.steps_up and fault.user_caused for fault in devices) and not _is_rescheduling(incident):
        return _reschedule(job, policy, "the user's input caused the device's code: no node is isolated")
    if devices and incident.rung in ("", "notify"):
        return _in_place(job, policy, devices[0].device)
    if incident.rung in ("", "notify"):
        return _for_a_software_fault(job, policy)
    return _chosen(job, incident.rung, "continue the recovery")  # the rung already chosen covers it


def reschedule_instead(job: Job, policy: Policy, reason: str) -> Chosen:
    """Returns the action if a worker cannot be replaced: reschedule the job, or wait for a node if no restart is
    left.
    """
    if _why_no_restart(job, policy):
        return wait_for_node(
            job, f"the worker cannot be replaced ({reason}), and {_why_no_restart(job, policy)}"
        )
    return _reschedule(job, policy, f"the worker cannot be replaced ({reason})")


def wait_for_node(job: Job, reason: str) -> Chosen:
    """Returns the action that waits for a healthy node."""
    return _chosen(job, "wait-for-node", f"wait for a node, because there is no healthy node: {reason}")


def note_device(job: Job, device: Device, at_s: float, policy: Policy) -> tuple[Job, DeviceFault]:
    """Returns the job with the device fault recorded, and the fault.

    The next action of the ladder applies if the device failed too often within the policy's time window.
    """
    since_s = at_s - policy.device_repeat_window_s
    seen = (*(old for old in job.devices_seen if old.at_s > since_s), DeviceSeen(device=device, at_s=at_s))
    times = sum(old.device == device for old in seen)
    fault = DeviceFault(
        device=device,
        steps_up=times >= policy.device_repeats_max,
        user_caused=device.code in policy.user_caused_codes,
    )
    return replace(job, devices_seen=seen[-FAULTS_MAX:]), fault


def _incident(job: Job) -> Incident:
    assert job.incident is not None, "a rung is chosen only for an open incident"
    return job.incident


def _is_rescheduling(incident: Incident) -> bool:
    """Returns whether every worker is being placed again, or waits for a node."""
    return incident.rung in RESCHEDULES or incident.counted


def _chosen(job: Job, rung: str, why: str, *, isolate: tuple[str, ...] = (), counted: bool = False) -> Chosen:
    incident = _incident(job)
    incident = replace(incident, rung=rung, counted=incident.counted or counted)
    choice = Choice(incident=incident.number, rung=rung, why=why, isolate=isolate)
    return Chosen(choice, replace(job, incident=incident))


def fail(job: Job, why: str) -> Chosen:
    """Returns the action that ends the job as failed."""
    return _chosen(replace(job, to_heal=(), to_isolate=()), "fail", why)


def _why_no_restart(job: Job, policy: Policy) -> str:
    """Returns the reason why the job may not be rescheduled; empty if it may."""
    if _incident(job).counted:
        return ""
    if policy.max_restarts is None:
        return "no restart is allowed (--max-restarts is not set)"
    if job.restarts >= policy.max_restarts:
        return (
            f"all {policy.max_restarts} restarts are used up"
            if policy.max_restarts > 1
            else "the only restart is used up"
        )
    return ""


def _restart_words(job: Job, policy: Policy) -> str:
    """Returns the number of the restart that is being charged: "restart 1 of 8"."""
    return (
        f"restart {job.restarts} of {policy.max_restarts}" if policy.max_restarts is not None else "restart"
    )


# Hardware ------------------------------------------------------------------------------------------------


def _nodes_to_isolate(job: Job, incident: Incident) -> tuple[str, ...]:
    """Returns the nodes of workers to isolate: lost, failed in a check, or with a device that did not heal.

    A node whose device failed because of the user's input is not isolated.
    """
    bad = dict.fromkeys(
        fault.device.node if isinstance(fault, DeviceFault) else fault.node
        for fault in incident.faults
        if isinstance(fault, NodeFault | CheckFault) or (isinstance(fault, DeviceFault) and _is_bad(fault))
    )
    used = {worker.node for worker in job.workers}
    return tuple(node for node in bad if node in used)


def _is_bad(fault: DeviceFault) -> bool:
    return fault.steps_up and not fault.user_caused


def _away_from(job: Job, policy: Policy, bad: tuple[str, ...]) -> Chosen:
    """Returns the rung that isolates nodes and replaces their workers if the policy allows it, else
    reschedules the job.
    """
    job = _without_hardware_excuses(job, bad)
    reason = _what_is_wrong_with(_incident(job), bad)
    moved = [index for index, worker in enumerate(job.workers) if worker.node in bad]
    rescheduling = _is_rescheduling(_incident(job))
    if not job.attempt and any(isinstance(fault, CheckFault) for fault in _incident(job).faults):
        return _elsewhere_before_the_start(job, bad, reason, moved)
    if policy.replace_workers is not None and not rescheduling and not _incident(job).replacement_failed:
        if job.replacements + len(moved) <= policy.replace_workers:
            job = replace(
                job, replacements=job.replacements + len(moved), to_isolate=_joined(job.to_isolate, bad)
            )
            why = f"isolate {_names(bad)} and replace worker {_names(moved)}, because {reason}"
            return _chosen(_unplaced(job, moved), "replace-worker", why, isolate=bad)
        reason += f" (all {counted(policy.replace_workers, 'replacement')} are used up)"
    refused = _why_no_restart(job, policy)
    if refused:
        return fail(job, f"{reason}, and {refused}")
    if not _incident(job).counted:
        job = replace(job, restarts=job.restarts + 1, hardware_reschedules=job.hardware_reschedules + 1)
    job = replace(job, to_isolate=_joined(job.to_isolate, bad))
    action = f"isolate {_names(bad)} and reschedule the job ({_restart_words(job, policy)})"
    why = f"{action}, because {reason}"
    anew = moved if rescheduling else range(len(job.workers))
    return _chosen(_unplaced(job, anew), "reschedule-isolated", why, isolate=bad, counted=True)


def _elsewhere_before_the_start(job: Job, bad: tuple[str, ...], reason: str, moved: list[int]) -> Chosen:
    """Returns the rung that places workers on other nodes before the first start.

    This costs no restart, and is allowed even if the policy allows no restarts.
    """
    job = replace(
        job,
        hardware_reschedules=job.hardware_reschedules + 1,
        to_isolate=_joined(job.to_isolate, bad),
    )
    why = f"isolate {_names(bad)} and place worker {_names(moved)} elsewhere, because {reason}"
    return _chosen(_unplaced(job, moved), "reschedule-isolated", why, isolate=bad, counted=True)


def _without_hardware_excuses(job: Job, bad: tuple[str, ...]) -> Job:
    """Returns the job with its counts "in a row" reset: a node or device fault may explain the earlier
    failures.
    """
    heal = tuple(device for device in job.to_heal if device.node not in bad)
    return replace(job, to_heal=heal, hangs_in_a_row=0, problems_in_a_row=0, problem="", error="")


def _what_is_wrong_with(incident: Incident, bad: tuple[str, ...]) -> str:
    for fault in incident.faults:
        if isinstance(fault, NodeFault) and fault.node in bad:
            return f"{fault.node} is lost ({fault.reason})"
        if isinstance(fault, CheckFault) and fault.node in bad:
            return f"{fault.node} failed its check ({fault.reason})"
        if isinstance(fault, DeviceFault) and fault.device.node in bad and _is_bad(fault):
            where = fault.device
            return f"device {where.device} of {where.node} ({where.code}) did not heal, or failed too often"
    return f"{_names(bad)} cannot be used"


def _in_place(job: Job, policy: Policy, device: Device) -> Chosen:
    where = f"device {device.device} of {device.node} ({device.code})"
    if policy.max_restarts is None and policy.replace_workers is None:
        return fail(job, f"{where} is faulty, and no restart is allowed (--max-restarts is not set)")
    faults = [fault for fault in _incident(job).faults if isinstance(fault, DeviceFault)]
    heal = tuple(dict.fromkeys((*job.to_heal, *(fault.device for fault in faults))))
    job = replace(job, to_heal=heal, hangs_in_a_row=0, problems_in_a_row=0, problem="", error="")
    return _chosen(
        job, "in-place", f"stop all processes and restart in the same workers, because {where} may heal"
    )


# Software ------------------------------------------------------------------------------------------------


def _for_a_software_fault(job: Job, policy: Policy) -> Chosen:
    faults = _incident(job).faults
    first = faults[0]
    if isinstance(first, HangFault) and not policy.hang_restart:  # a rank that hung may have died since
        first = next((fault for fault in faults if isinstance(fault, ExitFault)), first)
    match first:
        case StartFault(reason=reason):
            return fail(job, f"the command cannot be started: {reason}")
        case HangFault(reason=reason):
            return _after_a_hang(job, policy, reason)
        case ExitFault() as fault:
            return _after_an_exit(job, policy, fault)
        case NodeFault() | DeviceFault() | CheckFault():  # of a node without workers now
            return _reschedule(job, policy, "the faulty node left the job")


def _after_a_hang(job: Job, policy: Policy, reason: str) -> Chosen:
    if not policy.hang_restart:
        why = f"only notify, because the job hung ({reason}) and hang restart is off (--hang-restart)"
        return _chosen(job, "notify", why)
    if job.hangs_in_a_row >= policy.hangs_in_a_row_max:
        return fail(
            job,
            f"it hung again ({reason}) after {job.hangs_in_a_row} hang restarts in a row without progress",
        )
    job = replace(job, hangs_in_a_row=job.hangs_in_a_row + 1)
    return _chosen(job, "hang-restart", f"restart in the same workers, because the job hung ({reason})")


def _after_an_exit(job: Job, policy: Policy, fault: ExitFault) -> Chosen:
    incident = _incident(job)
    what = incident.verdict.title if incident.verdict and incident.verdict.confidence else _exit_words(fault)
    if not policy.unconditional_restart and not incident.environment:
        if policy.max_restarts is None:
            return fail(job, f"{what}, and automatic restart is off (--policy holdfast turns it on)")
        return fail(job, f"{what}, and restart on such an exit is off (--unconditional-restart)")
    same = bool(incident.problem) and incident.problem == job.problem
    if same and job.problems_in_a_row >= policy.same_problem_in_a_row_max:
        times = job.problems_in_a_row + 1
        return fail(
            job, f"{what}: the same problem {times} times in a row without progress: the code is at fault"
        )
    if same and incident.user_code and job.problem_step == job.step and not policy.unconditional_restart:
        return fail(job, f"{what}: the same error in the training code twice at step {job.step}")
    if _is_the_same_error(job, policy):
        return fail(job, f"{what}: {_twice(job)}")
    row = job.problems_in_a_row + 1 if same else 1
    error = incident.verdict.raised if incident.verdict else ""
    job = replace(job, problem=incident.problem, problems_in_a_row=row, problem_step=job.step, error=error)
    return _reschedule(job, policy, what)


def _is_the_same_error(job: Job, policy: Policy) -> bool:
    """Returns whether an attempt failed with the same exception as the one before, and the checks found
    nothing.

    Place and step of the exception must be equal too. Progress, another problem, and a fault of a node or
    device reset the comparison. Before the first step, and without steps in the log, errors count as the same
    until there is progress.
    """
    verdict = _incident(job).verdict
    if policy.unconditional_restart and not policy.same_error_fails:
        return False
    if verdict is None or not would_come_back(verdict) or verdict.raised != job.error:
        return False
    passed = job.boot is not None and job.boot.status in (PASS, WARN)
    return passed and _is_same_step(job.step, job.problem_step)


def _is_same_step(step: int | None, before: int | None) -> bool:
    """Returns whether two steps differ by at most one: a rank may fail before or after another one prints the
    step.
    """
    if step is None or before is None:
        return step is before
    return abs(step - before) <= 1


def _twice(job: Job) -> str:
    verdict = _incident(job).verdict
    assert verdict is not None, "an error comes with a verdict"
    place = verdict.raised.partition(" at ")[2].partition(": ")[0]
    where = f" at {place}" if place and place not in verdict.title else ""
    when = "before the first step" if job.step is None else f"at step {job.step}"
    return f"the same error twice{where}, {when}, and the checks found nothing: another start would fail the same way"


def _exit_words(fault: ExitFault) -> str:
    who = f"worker {fault.worker}" if fault.rank is None else f"rank {fault.rank} on worker {fault.worker}"
    return f"{who} exited with {fault.code}"


def _reschedule(job: Job, policy: Policy, cause: str) -> Chosen:
    refused = _why_no_restart(job, policy)
    if refused:
        return fail(job, f"{cause}, and {refused}")
    if not _incident(job).counted:
        job = replace(job, restarts=job.restarts + 1)
    job = replace(job, hangs_in_a_row=0)
    why = f"reschedule the job ({_restart_words(job, policy)}), because {cause}"
    return _chosen(_unplaced(job, range(len(job.workers))), "reschedule-unconditional", why, counted=True)


def _unplaced(job: Job, which: range | list[int]) -> Job:
    moved = set(which)
    workers = tuple(
        Worker(schedule_cnt=worker.schedule_cnt) if index in moved else worker
        for index, worker in enumerate(job.workers)
    )
    return replace(job, workers=workers)


def _joined(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *new)))


def _names(what: tuple[str, ...] | list[int]) -> str:
    return ", ".join(str(name) for name in what)
