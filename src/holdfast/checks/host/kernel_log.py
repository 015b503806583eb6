"""Checks the kernel log for hardware and system faults since boot, or since a training last made progress
on this node.
"""

import time
from collections.abc import Iterator

from holdfast.checks.readers.kernel_log import kernel_signatures, read_kernel_lines, searched
from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.kernel_faults import incidents, judge_incidents
from holdfast.core.checks.node_findings import passed, skipped
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.plurals import counted
from holdfast.model.checks import BOOT, EPILOG, MANUAL, ON_FAILURE, PROLOG, Scene, Spec
from holdfast.model.signatures import Words
from holdfast.observe.search.code_store import tables_for
from holdfast.observe.search.rule_store import package_rules


def look_at_log(scene: Scene) -> Iterator[Seen]:
    files = NodeFiles(scene)
    read = read_kernel_lines(files)
    if not read.lines:
        yield skipped(read.why_not)
        return
    now_s = scene.now_s or time.time()
    booted_s = now_s - files.uptime_s()
    lines = [line for at_s, line in read.lines if at_s is None or booted_s + at_s >= scene.good_s]
    known = KnowledgeBase(kernel_signatures(), package_rules())
    search = searched(lines)
    tables = tables_for({one.category for one in search.matches})
    found = incidents(search, known, tables, booted_s)
    # gpu-xid reports codes of GPUs; it reads the same device.
    findings = judge_incidents(found, now_s, scene.good_s, without_xids=read.source == "kmsg")
    yield from findings or [passed(f"no known fault in {counted(len(lines), 'line')} ({read.source})")]


CHECKS = (
    Check(
        Spec(
            name="host-kernel-log",
            area="host",
            what=Words(en="known faults in the kernel log", zh="内核日志中的已知故障"),
            contexts=(BOOT, PROLOG, EPILOG, ON_FAILURE, MANUAL),
            timeout_s=8.0,
            needs=("the kernel log",),
            quick=True,
        ),
        look_at_log,
    ),
)
