"""Reduces the results of a check suite to one status and its consequence for the run. Pure."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from holdfast.model.checks import (
    DEVICE_FAULT,
    ENVIRONMENT_FAULT,
    FAIL,
    PASS,
    SKIP,
    STATUSES,
    WARN,
    Finding,
    NodeChecks,
    Outcome,
)


class NodeFinding(Struct, frozen=True):
    """A finding together with the name of its check and its node."""

    node: str
    check: str
    area: str
    finding: Finding


class Judged(Struct, frozen=True):
    """The result of a check suite on all nodes.

    `isolate`: reason by node. `stop`: why the run cannot work on any node; empty if it can. `status`: fail or
    warn as found; pass if something passed and nothing is wrong; else skip.
    """

    status: str
    isolate: dict[str, str] = {}
    stop: str = ""
    troubles: tuple[NodeFinding, ...] = ()


def judged(nodes: Sequence[NodeChecks]) -> Judged:
    """Returns the result of a check suite. A node without an answer is reported, but not isolated."""
    findings = sorted(troubles(nodes), key=lambda one: -STATUSES.index(one.finding.status))
    isolate: dict[str, str] = {}
    stop = ""
    for one in findings:
        if one.finding.status != FAIL:
            continue
        if one.finding.fault == DEVICE_FAULT:
            isolate.setdefault(one.node, sentence(one))
        elif one.finding.fault == ENVIRONMENT_FAULT:
            stop = stop or sentence(one)
    return Judged(status_of(nodes), isolate, stop, tuple(findings))


def troubles(nodes: Iterable[NodeChecks]) -> list[NodeFinding]:
    """Returns all findings with status fail or warn, worst first."""
    found = [
        NodeFinding(node.node, outcome.check, outcome.area, finding)
        for node in nodes
        for outcome in node.outcomes
        for finding in outcome.findings
        if finding.status in (FAIL, WARN)
    ]
    silent = [
        NodeFinding(node.node, "node", "host", Finding(status=WARN, why=node.why_not))
        for node in nodes
        if node.why_not
    ]
    return found + silent


def status_of(nodes: Iterable[NodeChecks]) -> str:
    """Returns the status of all outcomes together. Skips neither hide a pass nor count as one."""
    statuses = {outcome.status for node in nodes for outcome in node.outcomes}
    statuses |= {WARN for node in nodes if node.why_not}
    return next((status for status in (FAIL, WARN, PASS) if status in statuses), SKIP)


def worst(outcome: Outcome) -> Finding:
    """Returns the finding that determines the status of the check."""
    return max(outcome.findings, key=lambda finding: STATUSES.index(finding.status))


def sentence(one: NodeFinding) -> str:
    """Returns a finding as one line of text: "gpu-ecc: 0000:5d:00.0: 3 uncorrected errors (expected: 0)"."""
    finding = one.finding
    what = finding.why or finding.measured
    beside = f" (expected: {finding.expected})" if finding.expected and not finding.why else ""
    device = f"{finding.device}: " if finding.device else ""
    return f"{one.check}: {device}{what}{beside}"
