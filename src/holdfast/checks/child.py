"""Runs checks in a child process, so that a hang or a crash of a driver ends only that process.

The child reads lines from stdin: first the scene (facts about the node and the run) as JSON, then the name of one
check a line. For each check it writes the outcome as one line of JSON. It ends at the end of stdin. What libraries
print goes to stderr.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import BinaryIO

import msgspec

from holdfast.checks.registry import Check, Seen, check_named
from holdfast.model.checks import SKIP, STATUSES, Fact, Finding, Outcome, Scene

FINDINGS_MAX = 256
READY = b"ready\n"


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)
    os.set_inheritable(answers, False)
    serve(sys.stdin.buffer, answers)
    os._exit(0)  # a thread that hangs in a driver must not keep us


def serve(requests: BinaryIO, answers: int) -> None:
    """Runs the checks named on the lines of `requests` until it ends, and writes each outcome to the
    descriptor `answers`.

    At the end, processes that the checks have started are killed.
    """
    threading.Thread(target=_end_with, args=(requests.fileno(),), daemon=True).start()
    scene = msgspec.json.decode(requests.readline(), type=Scene)
    os.write(answers, READY)
    for line in requests:
        outcome = look(check_named(line.decode().strip()), scene)
        _write(answers, msgspec.json.encode(outcome) + b"\n")


def _end_with(requests: int) -> None:
    """Waits until the writing end of the pipe `requests` closes, then kills this process and its process
    group.

    The parent may be killed while a check hangs; the check must not outlive it.
    """
    poll = select.poll()
    poll.register(requests, 0)  # only the hang-up
    poll.poll()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def look(check: Check, scene: Scene) -> Outcome:
    """Runs one check and returns its outcome.

    Never raises: if the check raises an exception, it counts as skipped, with the error as the reason.
    """
    began_s = time.monotonic()
    findings: list[Finding] = []
    facts: list[Fact] = []
    try:
        _sort(check.look(scene), findings, facts)
    except Exception as error:  # noqa: BLE001 - the others must be run, whatever is wrong with this one
        why = f"the check itself failed: {type(error).__name__}: {error}; please report it"
        findings.append(Finding(status=SKIP, why=why))
    if not findings:
        findings.append(Finding(status=SKIP, why="the check found nothing to examine"))
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
