"""Injects faults into nodes and asks the checks of rdma, net, io and host; then sound nodes, where nothing may be found.

    python -m bench.checks.node_matrix [--no-real] [--only WORDS]

Most faults are real (a full file system, a dead mount, a frozen disk, limits, control groups, namespaces) where root
can make them; the rest are made-up trees of /proc, /sys and /dev. A fault counts as found when the check that is to
find it does, with what was measured, what was expected, why, and advice in both languages, and no other check finds
anything. Ends with 1 on any miss or false alarm.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.checks.node_faults import FAULTS, MadeUp
from bench.checks.node_real_faults import REAL, NotHere
from bench.checks.node_sound import SOUND, Sound
from bench.checks.node_trees import scene_of, sound_node
from holdfast.checks.child import look
from holdfast.checks.registry import Check, all_checks
from holdfast.model.checks import FAIL, WARN, Finding, Outcome, Scene

AREAS = ("rdma", "net", "io", "host")
COSTLY = "host-kernel-log"  # half a second each: for faults only where it is to find something
NOT_OF_A_TREE = ("host-clock", "host-failed-services")  # they ask the machine itself


def checks_of_nodes() -> tuple[Check, ...]:
    return tuple(check for check in all_checks(AREAS) if not check.spec.bench)


def alarms(outcomes: Sequence[Outcome]) -> list[tuple[str, Finding]]:
    return [
        (outcome.check, finding)
        for outcome in outcomes
        for finding in outcome.findings
        if finding.status in (WARN, FAIL)
    ]


def is_whole(finding: Finding) -> bool:
    """Whether a person could act on it."""
    parts = (finding.measured, finding.expected, finding.whence, finding.why)
    return all((*parts, finding.advice.en, finding.advice.zh))


def wrong_with(case: tuple[str, str, str, str], outcomes: Sequence[Outcome]) -> str:
    """Empty where the fault was found as it is to be. `case`: name, check, status, fault."""
    _, check, status, fault = case
    mine = next((outcome for outcome in outcomes if outcome.check == check), None)
    if mine is None or mine.status != status:
        return f"{check} says {mine.status if mine else 'nothing'}, not {status}"
    told = alarms(outcomes)
    if others := [f"{name}: {finding.why}" for name, finding in told if name != check]:
        return f"others were alarmed: {others}"
    if any(not is_whole(finding) for _, finding in told):
        return "a finding lacks a part"
    if fault and all(finding.fault != fault for _, finding in told):
        return f"no finding is a fault of the {fault}"
    if not fault and any(finding.fault for _, finding in told):
        return f"a finding is a fault of the {told[0][1].fault}"
    return ""


def made_up(case: MadeUp, folder: Path) -> str:
    tree = sound_node(folder / "root")
    changes = case.break_it(tree) or {}
    scene = scene_of(tree, folder, **changes)
    outcomes = [
        look(check, scene)
        for check in checks_of_nodes()
        if check.spec.name == case.check or check.spec.name not in (COSTLY, *NOT_OF_A_TREE)
    ]
    return wrong_with((case.name, case.check, case.status, case.fault), outcomes)


def sound(case: Sound, folder: Path) -> str:
    tree = sound_node(folder / "root")
    changes = case.vary(tree) or {}
    scene: Scene = scene_of(tree, folder, **changes)
    told = alarms([look(check, scene) for check in checks_of_nodes()])
    return "; ".join(f"{name}: {finding.why} ({finding.measured})" for name, finding in told)


def cases(only: str, with_real: bool) -> Iterator[tuple[str, str, Callable[[Path], str]]]:
    """Kind, name, and what says what was wrong."""
    for fault in FAULTS:
        yield "made up", fault.name, lambda folder, fault=fault: made_up(fault, folder)
    for real in REAL if with_real else ():
        yield (
            "real",
            real.name,
            lambda folder, real=real: wrong_with(
                (real.name, real.check, real.status, real.fault), real.run(folder)
            ),
        )
    for one in SOUND:
        yield "sound", one.name, lambda folder, one=one: sound(one, folder)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--no-real", action="store_true", help="only what needs no root")
    parser.add_argument("--only", default="", help="cases whose name holds these words")
    given = parser.parse_args()
    count = {"made up": 0, "real": 0, "sound": 0}
    missed = left_out = 0
    for kind, name, run in cases(given.only, not given.no_real):
        if given.only not in name:
            continue
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="holdfast-checks-") as folder:
            try:
                wrong = run(Path(folder))
            except NotHere as error:
                left_out += 1
                print(f"  --  {kind:<7}  {name}: left out: {error}")
                continue
        count[kind] += 1
        missed += bool(wrong)
        mark = "MISS" if wrong else "ok"
        print(
            f"{mark:>4}  {kind:<7}  {name}{': ' + wrong if wrong else ''}  ({time.monotonic() - began_s:.2f} s)",
            flush=True,
        )
    faults = count["made up"] + count["real"]
    print(
        f"{faults} faults ({count['real']} real), {count['sound']} sound nodes; {missed} wrong, {left_out} left out"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
