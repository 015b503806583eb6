"""Checks Huawei Ascend NPUs with the vendor tool `npu-smi`."""

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.checks.readers.nvml_checks import is_below, read
from holdfast.checks.readers.vendor_tools import tool_place, tool_says
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.npu import (
    GOOD,
    UNREPORTED,
    NpuTable,
    count_facts,
    ecc_counters,
    health_codes,
    judge_npu_count,
    judge_npu_ecc,
    judge_npu_health,
    judge_npu_use,
    npu_table,
)
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.checks import BOOT, EPILOG, LIGHT, MANUAL, ON_FAILURE, PROLOG, SKIP, Finding, Scene, Spec
from holdfast.model.code_facts import CodeKind
from holdfast.model.signatures import Words
from holdfast.observe.search.code_store import package_tables
from holdfast.observe.search.rule_store import package_rules

TOOL = "npu-smi"
TABLE_S = 4.0
EACH_S = 2.0  # `npu-smi info -t ...` of one NPU
HUAWEI, PROCESSING = "0x19e5", "0x1200"
NPUS_ASKED_MAX = 16


def _table(scene: Scene) -> tuple[NpuTable, str] | Finding:
    """Returns the output table of `npu-smi info` and the path of the tool, or a finding if there is none."""
    place = tool_place(TOOL)
    if place is None:
        has = any((Path(scene.root) / "dev" / f"davinci{number}").exists() for number in range(16))
        why = "this node has NPUs, but npu-smi is not installed" if has else "no NPU here (no npu-smi)"
        return Finding(status=SKIP, why=why)
    output = tool_says(place, ("info",), TABLE_S)
    table = npu_table(output.text)
    if output.why_not or not table.npus:
        return Finding(status=SKIP, why=output.why_not or "`npu-smi info` lists no readable NPU")
    return table, place


def count(scene: Scene) -> Iterator[Seen]:
    seen = _table(scene)
    if isinstance(seen, Finding) and not scene.baseline.of("node", "NPUs"):
        yield seen
        return
    npus = () if isinstance(seen, Finding) else seen[0].npus
    yield from count_facts(npus)
    yield from judge_npu_count(npus, _on_bus(Path(scene.root)), scene.baseline)


def _on_bus(root: Path) -> int | None:
    try:
        folders = list((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return None
    return sum(
        read(folder / "vendor").strip() == HUAWEI and read(folder / "class").startswith(PROCESSING)
        for folder in folders
    )


def health(scene: Scene) -> Iterator[Seen]:
    seen = _table(scene)
    if isinstance(seen, Finding):
        yield seen
        return
    table, place = seen
    unwell = [npu for npu in table.npus if npu.health.upper() not in (GOOD, *UNREPORTED)]
    codes = {
        npu.index: health_codes(tool_says(place, ("info", "-t", "health", "-i", str(npu.index)), EACH_S).text)
        for npu in unwell[:NPUS_ASKED_MAX]
    }
    kinds: tuple[CodeKind, ...] = ("npu",) if unwell else ()
    facts, known = package_tables(kinds).npu, KnowledgeBase((), package_rules())
    yield from judge_npu_health(table.npus, codes, facts, known)


def ecc(scene: Scene) -> Iterator[Seen]:
    seen = _table(scene)
    if isinstance(seen, Finding):
        yield seen
        return
    table, place = seen
    indexes = dict.fromkeys(npu.index for npu in table.npus[:NPUS_ASKED_MAX])
    counters = {
        index: ecc_counters(tool_says(place, ("info", "-t", "ecc", "-i", str(index)), EACH_S).text)
        for index in indexes
    }
    yield from judge_npu_ecc(table.npus, counters)


def foreign(scene: Scene) -> Iterator[Seen]:
    seen = _table(scene)
    if isinstance(seen, Finding):
        yield seen
        return
    table, _ = seen
    proc = Path(scene.root) / "proc"
    own = frozenset(scene.own_pids)
    ours = [one.pid for one in table.processes if is_below(one.pid, own, proc)]
    yield from judge_npu_use(table, {*own, *ours, os.getpid()})


def _spec(name: str, en: str, zh: str, timeout_s: float, *, quick: bool = False) -> Spec:
    return Spec(
        name=name,
        area="npu",
        what=Words(en=en, zh=zh),
        contexts=(BOOT, PROLOG, EPILOG, ON_FAILURE, MANUAL),
        cost=LIGHT,
        timeout_s=timeout_s,
        needs=(TOOL,),
        quick=quick,
    )


CHECKS = (
    Check(_spec("npu-count", "all NPUs are present", "NPU 数量齐全", TABLE_S + 1, quick=True), count),
    Check(
        _spec(
            "npu-health",
            "health and fault codes of NPUs",
            "NPU 健康状态与故障码",
            TABLE_S + NPUS_ASKED_MAX * EACH_S + 1,
            quick=True,
        ),
        health,
    ),
    Check(
        _spec(
            "npu-ecc",
            "uncorrectable memory errors of NPUs",
            "NPU 不可纠正内存错误",
            TABLE_S + NPUS_ASKED_MAX * EACH_S + 1,
        ),
        ecc,
    ),
    Check(_spec("npu-foreign", "no other process uses the NPUs", "NPU 未被他人占用", TABLE_S + 1), foreign),
)
