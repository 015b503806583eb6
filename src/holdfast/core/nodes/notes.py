"""Converts a job's events and decisions into entries for the node book. Pure.

A replay gives the same entries with the same keys, so a resumed controller writes none twice.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.job.decision import Decision
from holdfast.core.job.faults import words
from holdfast.core.verdict.categories import KINDS, USER_CODE
from holdfast.model.checks import ON_FAILURE
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    CheckFinding,
    DeviceFaulted,
    DeviceHealed,
    FindingNoted,
    JobSubmitted,
    NodeLost,
    NodeReturned,
    NodesChecked,
    RankStarted,
)
from holdfast.model.nodes.book import (
    AnyLine,
    AttemptRan,
    CheckLine,
    DeviceLine,
    ExonerationLine,
    FindingLine,
    IncidentLine,
    LostLine,
    ReturnedLine,
    WarningLine,
    Weighs,
)
from holdfast.model.state import CheckFault, DeviceFault, Ended, Incident, Job, NodeFault, State
from holdfast.model.verdicts import Verdict

HOURS_EVERY_S = 60.0  # how often the hours of a running attempt are updated
SURE = 0.5  # a verdict with less confidence is attributed to no node
TEXT_MAX = 300
NETWORK = frozenset(
    ("nic_down", "nic_link_flap", "nccl_network_error", "sxid", "fabric_manager", "nfs_lustre_stall")
)
# A person or the scheduler ended the job; no node caused it.
ASKED = frozenset(
    ("user_interrupt", "time_limit", "slurm_time_limit", "pod_preempted", "failed_scheduling", "slurm_config")
)
# By a word in a finding or check: the kind of warning that the lemon score uses.
WARNINGS = (
    ("straggler", "slow-steps"),
    ("ecc", "ecc-corrected"),
    ("remap", "ecc-corrected"),
    ("thermal", "throttling"),
    ("throttl", "throttling"),
    ("power", "throttling"),
    ("link", "link-flap"),
    ("nic", "link-flap"),
    ("rdma", "link-flap"),
)


class Noted(Struct, frozen=True):
    """What one event of a job adds to the node book: events of nodes, each with the key under which it replaces an
    earlier one.

    `ran`: records of where attempts ran.
    """

    lines: tuple[tuple[str, AnyLine], ...] = ()
    ran: tuple[AttemptRan, ...] = ()


class NodeNotes:
    """Converts one job's events and decisions, from the first on, into entries for the node book."""

    def __init__(self) -> None:
        self.run = ""
        self._job = Job()
        self._ranks: dict[int, int] = {}
        self._homes: dict[int, str] = {}  # the node of each worker, or its last one
        self._since_s: float | None = None  # start of the running attempt
        self._attempt = 0
        self._nodes: tuple[str, ...] = ()
        self._said_s = 0.0
        self._accused: dict[str, str] = {}
        self._serials: dict[tuple[str, str], str] = {}  # of devices: by node and place in it

    def why(self, node: str) -> str:
        """Returns a description of the last incident attributed to the node; empty without one."""
        return self._accused.get(node, "")

    def hear(self, event: AnyEvent, decision: Decision) -> Noted:
        """Processes one event with its decision, and returns its entries for the node book."""
        before, self._job = self._job, decision.state.job
        if isinstance(event, JobSubmitted) and not self.run:
            self.run = f"{event.job}@{event.at_s:.0f}"
        if self._job.workers is not before.workers:
            self._homes |= {worker: one.node for worker, one in enumerate(self._job.workers) if one.node}
        if isinstance(event, RankStarted):
            self._ranks[event.rank] = event.worker
        ran = self._ran(event, decision.state)
        if isinstance(event, NodesChecked):
            self._serials |= {(one.node, _place(one.device)): one.serial for one in event.devices}
        lines = [*self._of_event(event), *self._of_incident(before.incident, event.at_s)]
        entries = tuple((key, self._with_serial(line)) for key, line in lines)
        return Noted(entries, ran) if entries or ran else _NOTHING

    def _with_serial(self, line: AnyLine) -> AnyLine:
        serial = "" if line.serial or not line.device else self._serials.get((line.node, _place(line.device)))
        return replace(line, serial=serial) if serial else line

    # Exposure ------------------------------------------------------------------------------------------------

    def _ran(self, event: AnyEvent, state: State) -> tuple[AttemptRan, ...]:
        if isinstance(event, AttemptStarted) and event.attempt == self._job.attempt and self._since_s is None:
            self._since_s = self._said_s = event.at_s
            self._attempt = event.attempt
            self._nodes = tuple(dict.fromkeys(worker.node for worker in self._job.workers if worker.node))
            return (self._hours(event.at_s),)
        if self._since_s is None:
            return ()
        over = not self._job.alive or self._job.attempt != self._attempt or isinstance(state.phase, Ended)
        if not over and event.at_s - self._said_s < HOURS_EVERY_S:
            return ()
        hours = self._hours(event.at_s)
        self._said_s = event.at_s
        if over:
            self._since_s = None
        return (hours,)

    def _hours(self, at_s: float) -> AttemptRan:
        assert self._since_s is not None, "no attempt runs"
        return AttemptRan(
            run=self.run,
            attempt=self._attempt,
            nodes=self._nodes,
            started_s=self._since_s,
            hours=max(0.0, at_s - self._since_s) / 3600,
        )

    # Lines ---------------------------------------------------------------------------------------------------

    def _of_event(self, event: AnyEvent) -> Iterable[tuple[str, AnyLine]]:
        match event:
            case NodeLost() if not event.with_job:
                line: AnyLine = LostLine(at_s=event.at_s, node=event.node, reason=event.reason, run=self.run)
                yield f"lost/{self.run}/{event.node}/{event.at_s!r}", line
            case NodeReturned():
                line = ReturnedLine(at_s=event.at_s, node=event.node, run=self.run)
                yield f"returned/{self.run}/{event.node}/{event.at_s!r}", line
            case DeviceFaulted():
                yield self._device(event, event.code, f"reports {event.code}")
            case DeviceHealed():
                yield self._device(event, "device-healed", "has healed" if event.healed else "did not heal")
            case NodesChecked():
                yield from self._checks(event)
            case FindingNoted():
                yield from self._warnings(event)
            case _:
                return

    def _device(self, event: DeviceFaulted | DeviceHealed, finding: str, text: str) -> tuple[str, AnyLine]:
        line = FindingLine(
            at_s=event.at_s, node=event.node, device=event.device, finding=finding, text=text, run=self.run
        )
        return f"device/{self.run}/{event.node}/{event.device}/{event.at_s!r}", line

    def _checks(self, event: NodesChecked) -> Iterable[tuple[str, AnyLine]]:
        """Yields lines for devices and their nodes, for failed checks and warnings, and for nodes that
        passed.
        """
        for one in event.devices:
            yield (
                f"device-in/{one.serial}/{one.node}",
                DeviceLine(
                    at_s=event.at_s,
                    node=one.node,
                    device=one.device,
                    serial=one.serial,
                    model=one.model,
                    since_s=event.at_s,
                    run=self.run,
                ),
            )
        if event.why_not:
            return
        troubled = {finding.node for finding in event.troubles} | set(event.isolate)
        for finding in event.troubles:
            key = f"check/{self.run}/{event.attempt}/{event.context}/{finding.node}/{finding.check}/{finding.device}"
            yield key, _check_line(event, finding, self.run)
            if finding.status == "warn" and (warning := _warning(f"{finding.category} {finding.check}")):
                yield f"warning/{key}", _warning_line(event.at_s, finding, warning, self.run)
        for node in event.nodes:
            if node not in troubled and event.status in ("pass", "warn"):
                text = "boot check passed" if event.context != ON_FAILURE else "troubleshooting found nothing"
                passed = CheckLine(
                    at_s=event.at_s, node=node, status="pass", text=text, context=event.context, run=self.run
                )
                yield f"check/{node}/{event.context}/passed", passed

    def _warnings(self, event: FindingNoted) -> Iterable[tuple[str, AnyLine]]:
        """Yields lines for a finding, on the nodes of its ranks, or on the job's only node."""
        if event.finding not in ("straggler", "check"):
            return
        ranks = event.numbers.get("ranks")
        workers = [self._ranks.get(int(rank)) for rank in ranks] if isinstance(ranks, list) else []
        homes = [self._homes.get(worker, "") for worker in workers if worker is not None]
        nodes = set(homes or (self._homes.values() if event.finding == "check" else ()))
        node = nodes.pop() if len(nodes) == 1 else ""
        warning = _warning(f"{event.finding} {event.text}")
        if not node or not warning:
            return
        line = WarningLine(
            at_s=event.at_s, node=node, warning=warning, text=event.text[:TEXT_MAX], run=self.run
        )
        yield f"warning/{self.run}/{node}/{event.finding}/{event.at_s!r}", line

    def _of_incident(self, before: Incident | None, at_s: float) -> Iterable[tuple[str, AnyLine]]:
        """Yields a line for the open incident once it has a verdict, a rung or a node fault, and after each
        change.
        """
        incident = self._job.incident
        if incident is None or incident == before:
            return
        accused = any(isinstance(fault, DeviceFault | NodeFault | CheckFault) for fault in incident.faults)
        if not (incident.verdict or incident.rung or accused):
            return
        line = incident_line(incident, self._homes, self.run)
        if line.node:
            job = self.run.partition("@")[0]
            self._accused[line.node] = f"{line.category}: {line.title} (incident {incident.number} of {job})"
        yield f"incident/{self.run}/{incident.number}", line
        if line.weighs == "program":
            why = f"the training itself: {line.title}"
            exonerated = ExonerationLine(at_s=at_s, run=self.run, incident=incident.number, reason=why)
            yield f"exoneration/{self.run}/{incident.number}", exonerated


_NOTHING = Noted()


def incident_line(incident: Incident, homes: Mapping[int, str], run: str) -> IncidentLine:
    """Returns the entry for an incident, with the nodes that it is attributed to. `homes`: node by worker.

    A node or device fault counts against that node. Otherwise the verdict decides: hardware, host, network and
    scheduler categories count against the culprit's node; a fault of the training against none; an unexplained
    failure against all nodes of its culprits, or all nodes of the job.
    """
    verdict = incident.verdict
    weighs, node, device, suspects = _weighed(incident, homes)
    return IncidentLine(
        at_s=incident.since_s,
        node=node,
        device=device,
        run=run,
        attempt=incident.attempt,
        incident=incident.number,
        category=verdict.category if verdict else _fault_category(incident),
        title=(verdict.title if verdict else _fault_words(incident))[:TEXT_MAX],
        weighs=weighs,
        confidence=verdict.confidence if verdict and weighs != "node" else _confidence(incident),
        suspects=suspects,
        network=verdict is not None and verdict.category in NETWORK,
    )


def _weighed(incident: Incident, homes: Mapping[int, str]) -> tuple[Weighs, str, str, tuple[str, ...]]:
    """Returns how an incident is attributed, with its node, device and suspects.

    Nodes that fail at the same time have a common cause: a switch, a rack, a wrong check.
    """
    accused: dict[str, str] = {}
    for fault in incident.faults:
        match fault:
            case DeviceFault(device=where):
                if not fault.user_caused:
                    accused.setdefault(where.node, where.device)
            case NodeFault(node=node) | CheckFault(node=node) if node:
                accused.setdefault(node, "")
            case _:
                continue
    if len(accused) == 1:
        ((node, device),) = accused.items()
        return "node", node, device, ()
    if accused:
        return "shared", "", "", tuple(accused)
    verdict = incident.verdict
    if verdict is None or verdict.confidence < SURE:
        return "shared", "", "", ()
    if verdict.category in ASKED:
        return "asked", "", "", ()
    if incident.user_code or verdict.category in USER_CODE:
        return "program", "", "", ()
    named = _culprit_nodes(verdict, homes)
    if len(named) == 1 and _is_of_a_node(verdict):
        return "node", named[0], next((one.device for one in verdict.culprits if one.device), ""), ()
    if _class(verdict) in ("training", "environment", "memory"):
        return "program", "", "", ()
    return "shared", "", "", named


def _culprit_nodes(verdict: Verdict, homes: Mapping[int, str]) -> tuple[str, ...]:
    found = []
    for culprit in verdict.culprits:
        by_worker = homes.get(culprit.worker, "") if culprit.worker is not None else ""
        found.append(by_worker or (culprit.host if culprit.host in homes.values() else ""))
    return tuple(dict.fromkeys(filter(None, found)))


def _is_of_a_node(verdict: Verdict) -> bool:
    return _class(verdict) in ("hardware", "host", "network", "scheduler") or verdict.action in (
        "isolate_node",
        "reboot_node",
        "reset_gpu",
    )


def _class(verdict: Verdict) -> str:
    return verdict.class_ or KINDS.get(verdict.category, ("unknown", ""))[0]


def _confidence(incident: Incident) -> float:
    """Returns the confidence in a fault that a check, a driver or the scheduler reported: at least 0.95."""
    return max(0.95, incident.verdict.confidence if incident.verdict else 0.0)


def _fault_category(incident: Incident) -> str:
    """Returns the category of an incident without a verdict, from its first fault."""
    match incident.faults[0] if incident.faults else None:
        case NodeFault():
            return "node_down"
        case DeviceFault(device=device):
            return f"device {device.code}"
        case CheckFault():
            return "check"
        case _:
            return "unknown"


def _fault_words(incident: Incident) -> str:
    return words(incident.faults[0]) if incident.faults else "nothing explains it"


def _check_line(event: NodesChecked, finding: CheckFinding, run: str) -> CheckLine:
    return CheckLine(
        at_s=event.at_s,
        node=finding.node,
        device=finding.device,
        status=finding.status,
        text=finding.text[:TEXT_MAX],
        check=finding.check,
        context=event.context,
        run=run,
    )


def _warning_line(at_s: float, finding: CheckFinding, warning: str, run: str) -> WarningLine:
    return WarningLine(
        at_s=at_s,
        node=finding.node,
        device=finding.device,
        warning=warning,
        text=finding.text[:TEXT_MAX],
        run=run,
    )


def _place(device: str) -> str:
    """Returns a PCI address in one form: "0000:5d:00" for "PCI:0000:5D:00" and for "0000:5d:00.0".

    Drivers and kernels format addresses differently.
    """
    return device.lower().removeprefix("pci:").partition(".")[0]


def _warning(words: str) -> str:
    low = words.lower()
    return next((warning for word, warning in WARNINGS if word in low), "")
