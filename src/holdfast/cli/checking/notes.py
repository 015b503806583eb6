"""Records results of `holdfast check` in the node book; a passed check can release an isolated node."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.cli.line.output import say
from holdfast.core.checks.answers import devices
from holdfast.core.plurals import counted
from holdfast.journal.nodes.book import NodeBook
from holdfast.journal.nodes.file import FILE, NodeBookUnusable
from holdfast.model.checks import FAIL, PASS, WARN, NodeChecks
from holdfast.model.nodes.book import AnyLine, CheckLine, DeviceLine

BUSY_S = 2.0
TEXT_MAX = 300
BY_HAND = "manual"


def note_checks(fleet: Path, nodes: Sequence[NodeChecks], at_s: float, *, whole: bool) -> None:
    """Stores results of checks in the node book if it exists. Never raises, and creates no node book.

    `whole`: True if a whole suite ran. Single checks can record that a node failed, but not that it passed.
    """
    if not (fleet / FILE).exists():
        return
    lines: list[tuple[str, AnyLine]] = [
        line for node in nodes for line in _lines(node, at_s) if whole or line[1].status == FAIL
    ]
    lines += [line for node in nodes for line in _devices(node, at_s)]
    if not lines:
        return
    book = NodeBook(fleet, busy_s=BUSY_S)
    try:
        book.note(lines)
    except NodeBookUnusable as error:
        say(f"the results could not be written to the node book: {error}")
    finally:
        book.close()


def _devices(node: NodeChecks, at_s: float) -> list[tuple[str, AnyLine]]:
    return [
        (
            f"device-in/{one.serial}/{one.node}",
            DeviceLine(
                at_s=at_s,
                node=one.node,
                device=one.device,
                serial=one.serial,
                model=one.model,
                since_s=at_s,
            ),
        )
        for one in devices(node)
    ]


def _lines(node: NodeChecks, at_s: float) -> list[tuple[str, CheckLine]]:
    looked = [outcome for outcome in node.outcomes if outcome.status in (PASS, WARN, FAIL)]
    if not looked:
        return []
    serials = {one.device: one.serial for one in devices(node)}
    failed = [
        (outcome.check, finding)
        for outcome in looked
        for finding in outcome.findings
        if finding.status == FAIL
    ]
    if not failed:
        text = f"{counted(len(looked), 'check')} passed"
        line = CheckLine(at_s=at_s, node=node.node, status=PASS, text=text, context=BY_HAND)
        return [(f"check/{node.node}/{BY_HAND}/passed", line)]
    return [
        (
            f"check/{node.node}/{BY_HAND}/{check}/{finding.device}/{at_s!r}",
            CheckLine(
                at_s=at_s,
                node=node.node,
                device=finding.device,
                serial=serials.get(finding.device, ""),
                status=FAIL,
                text=(finding.why or finding.measured)[:TEXT_MAX],
                check=check,
                context=BY_HAND,
            ),
        )
        for check, finding in failed
    ]
