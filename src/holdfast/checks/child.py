"""The process in which checks look: one that hangs, or that a driver brings down, costs this process and no other.

Reads from stdin one line of JSON, the scene, then names of checks, a line each; answers each with an outcome, a line
of JSON. Ends when stdin does. What a library prints goes to stderr.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import BinaryIO

import msgspec

from holdfast.checks.registry import Check, Seen, check_named
from holdfast.model.checks import SKIP, STATUSES, Fact, Finding, Outcome, Scene

FINDINGS_MAX = 256
READY = b"ready\n"
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)
    os.set_inheritable(answers, False)
    serve(sys.stdin.buffer, answers)
    os._exit(0)  # a thread that hangs in a driver must not keep us


def serve(requests: BinaryIO, answers: int) -> None:
    """Answers until there are no more requests, or nobody is left to ask."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # also out of a check that hangs
    scene = msgspec.json.decode(requests.readline(), type=Scene)
    os.write(answers, READY)
    for line in requests:
        outcome = look(check_named(line.decode().strip()), scene)
        _write(answers, msgspec.json.encode(outcome) + b"\n")


def look(check: Check, scene: Scene) -> Outcome:
    """Runs one check. Never raises: a fault of the check itself is a skip that says so."""
    began_s = time.monotonic()
    findings: list[Finding] = []
    facts: list[Fact] = []
    try:
        _sort(check.look(scene), findings, facts)
    except Exception as error:  # noqa: BLE001 - the others must be run, whatever is wrong with this one
        why = f"the check itself failed: {type(error).__name__}: {error}; please report it"
        findings.append(Finding(status=SKIP, why=why))
    if not findings:
        findings.append(Finding(status=SKIP, why="the check had nothing to look at"))
    return Outcome(
        check=check.spec.name,
        area=check.spec.area,
        status=max((finding.status for finding in findings), key=STATUSES.index),
        findings=tuple(findings[:FINDINGS_MAX]),
        facts=tuple(facts),
        seconds=time.monotonic() - began_s,
    )


def _sort(seen: Iterable[Seen], findings: list[Finding], facts: list[Fact]) -> None:
    for one in seen:
        if isinstance(one, Fact):
            facts.append(one)
        else:
            findings.append(one)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
