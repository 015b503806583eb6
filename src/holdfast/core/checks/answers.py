"""Turns a suite's outcomes into the single event that the journal keeps. Pure."""

from collections import Counter
from collections.abc import Sequence

from holdfast.core.checks.judged import Told, judged, sentence
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
from holdfast.model.events import CheckTold, DeviceSeen, NodesChecked

TROUBLES_MAX = 32
TEXT_MAX = 400
PCI = "pci"  # the fact with a device's place
DEVICES_MAX = 64  # of one node


def answered(nodes: Sequence[NodeChecks], attempt: int, context: str, at_s: float) -> NodesChecked:
    """The event of a suite, worst outcomes first. Outcomes beyond the size limit are cut; counts and the status
    cover all.
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
        troubles=tuple(_told(one) for one in _of_checks(found.troubles)[:TROUBLES_MAX]),
        passed=counts[PASS],
        warned=counts[WARN],
        failed=counts[FAIL],
        skipped=counts[SKIP],
        seconds=max((node.seconds for node in nodes), default=0.0),
        why_not="; ".join(node.why_not for node in nodes if node.why_not and not node.outcomes),
        devices=tuple(one for node in nodes for one in devices(node)) if context == BOOT else (),
    )


def devices(node: NodeChecks) -> tuple[DeviceSeen, ...]:
    """Devices that a check located by an identity that moves with them (`gpu:SERIAL`)."""
    found = {}
    for outcome in node.outcomes:
        for fact in outcome.facts:
            serial = fact.device.partition(":")[2]
            if fact.name == PCI and serial and serial != fact.value:
                found[serial] = DeviceSeen(
                    node=node.node, device=str(fact.value), serial=serial, model=fact.model
                )
    return tuple(found.values())[:DEVICES_MAX]


def key_of(told: CheckTold) -> str:
    """`gpu-ecc 0000:5d:00.0`: the identity of a trouble, equal at every report."""
    return f"{told.check} {told.device}".rstrip()


def _of_checks(troubles: Sequence[Told]) -> list[Told]:
    """Without nodes that did not answer: `why_not` says that."""
    return [one for one in troubles if one.check != "node"]


def _told(one: Told) -> CheckTold:
    finding = one.finding
    return CheckTold(
        node=one.node,
        check=one.check,
        status=finding.status,
        text=_cut(sentence(one)),
        device=finding.device,
        advice=_cut(finding.advice.en),
        fault=finding.fault if finding.status == FAIL else "",
        category=finding.category,
    )


def _stop(troubles: Sequence[Told]) -> str:
    """The first reason, with what to do about it."""
    worst = next(
        one for one in troubles if one.finding.status == FAIL and one.finding.fault == ENVIRONMENT_FAULT
    )
    return _cut(" ".join(filter(None, (f"{sentence(worst)}.", worst.finding.advice.en))).replace("..", "."))


def is_of_a_device(told: CheckTold) -> bool:
    return told.status == FAIL and told.fault == DEVICE_FAULT


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
