"""What the checks say of these worlds."""

from collections.abc import Callable
from pathlib import Path

from checks.env.faults import Fault
from checks.env.worlds import World
from holdfast.checks.child import look
from holdfast.checks.registry import all_checks, check_named
from holdfast.core.checks.peers import compared
from holdfast.model.checks import FAIL, SKIP, WARN, NodeChecks, Outcome


def outcomes(folder: Path, change: Callable[[World], None], only: str = "") -> list[Outcome]:
    """What the checks of the environment say of a world."""
    world = World(folder)
    try:
        change(world)
        scene = world.scene()
        checks = [check_named(only)] if only else all_checks(("env",))
        return [look(check, scene) for check in checks]
    finally:
        world.close()


def found(folder: Path, fault: Fault) -> str:
    """Empty: it was found by its check, with advice in both languages; else what was found instead."""
    outcome = outcomes(folder, fault.break_it, fault.check)[0]
    for finding in outcome.findings:
        text = f"{finding.why} {finding.measured}"
        if finding.status == fault.status and fault.says in text:
            return "" if finding.advice.en and finding.advice.zh else "no advice"
    return "; ".join(f"{one.status}: {one.why or one.measured}" for one in outcome.findings)


def blamed(folder: Path, change: Callable[[World], None]) -> list[str]:
    """What was said against a healthy world, and what broke within a check."""
    return [
        f"{outcome.check}: {finding.status}: {finding.why}"
        for outcome in outcomes(folder, change)
        for finding in outcome.findings
        if finding.status in (WARN, FAIL) or (finding.status == SKIP and "itself failed" in finding.why)
    ]


def odd_node(folder: Path) -> list[str]:
    """Three nodes, one with another torch: what the comparison says, and of whom."""
    nodes = []
    for number, version in enumerate(("2.6.0", "2.6.0", "2.5.1")):

        def with_torch(world: World, version: str = version) -> None:
            world.torch(version, "12.4", "2.21.5")

        told = outcomes(folder / f"node-{number}", with_torch, "env-versions")
        nodes.append(NodeChecks(node=f"node-{number}", outcomes=tuple(told)))
    return [
        f"{node.node}: {finding.measured}"
        for node in compared(nodes)
        for outcome in node.outcomes
        for finding in outcome.findings
        if finding.status in (WARN, FAIL)
    ]
