"""Converts the outcomes of a check suite to the single event that the journal records. Pure."""

from collections import Counter
from collections.abc import Sequence

from holdfast.core.checks.judged import NodeFinding, judged, sentence
from holdfast.model.checks import (
    BOOT,
    DEVICE_FAULT,
    ENVIRONMENT_FAULT,
    FAIL,
    PASS,
    SKIP,
    WARN,
    NodeChecks,
)
from holdfast.model.events import CheckFinding, DeviceSeen, NodesChecked

TROUBLES_MAX = 32
TEXT_MAX = 400
PCI = "pci"  # name of the fact that holds a device's PCI address
DEVICES_MAX = 64  # of one node


def answered(nodes: Sequence[NodeChecks], attempt: int, context: str, at_s: float) -> NodesChecked:
    """Returns the event with a suite's outcomes, worst first.

    Outcomes beyond the size limit are dropped; counts and status cover all of them.
    """
    found = judged(nodes)
    counts = Counter(outcome.status for node in nodes for outcome in node.outcomes)
    return NodesChecked(
        at_s=at_s,
        attempt=attempt,
        nodes=tuple(node.node for node in nodes),
        context=context,
        status=found.status,
        isolate={node: _cut(why) for node, why in found.isolate.items()},
        stop=_stop(found.troubles) if found.stop else "",
        troubles=tuple(_check_finding(one) for one in _of_checks(found.troubles)[:TROUBLES_MAX]),
        passed=counts[PASS],
        warned=counts[WARN],
        failed=counts[FAIL],
        skipped=counts[SKIP],
        seconds=max((node.seconds for node in nodes), default=0.0),
        why_not="; ".join(node.why_not for node in nodes if node.why_not and not node.outcomes),
        devices=tuple(one for node in nodes for one in devices(node)) if context == BOOT else (),
    )


def devices(node: NodeChecks) -> tuple[DeviceSeen, ...]:
    """Returns the devices that checks located by a permanent identity, such as "gpu:SERIAL"."""
    found = {}
    for outcome in node.outcomes:
        for fact in outcome.facts:
            serial = fact.device.partition(":")[2]
            if fact.name == PCI and serial and serial != fact.value:
                found[serial] = DeviceSeen(
                    node=node.node, device=str(fact.value), serial=serial, model=fact.model
                )
    return tuple(found.values())[:DEVICES_MAX]


def key_of(finding: CheckFinding) -> str:
    """Returns the identity of a failed check or warning, which is equal in every report: "gpu-ecc 0000:5d:00.0"."""
    return f"{finding.check} {finding.device}".rstrip()


def _of_checks(troubles: Sequence[NodeFinding]) -> list[NodeFinding]:
    """Returns the failures and warnings without nodes that did not answer, which `why_not` describes."""
    return [one for one in troubles if one.check != "node"]


def _check_finding(one: NodeFinding) -> CheckFinding:
    finding = one.finding
    return CheckFinding(
        node=one.node,
        check=one.check,
        status=finding.status,
        text=_cut(sentence(one)),
        device=finding.device,
        advice=_cut(finding.advice.en),
        fault=finding.fault if finding.status == FAIL else "",
        category=finding.category,
    )


def _stop(troubles: Sequence[NodeFinding]) -> str:
    """Returns the first reason that stops the run, with advice."""
    worst = next(
        one for one in troubles if one.finding.status == FAIL and one.finding.fault == ENVIRONMENT_FAULT
    )
    return _cut(" ".join(filter(None, (f"{sentence(worst)}.", worst.finding.advice.en))).replace("..", "."))


def is_of_a_device(finding: CheckFinding) -> bool:
    """Returns whether this is a failed check that shows a defective device."""
    return finding.status == FAIL and finding.fault == DEVICE_FAULT


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
