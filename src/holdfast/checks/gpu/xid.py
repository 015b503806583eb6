"""Checks the kernel log for Xid errors, the error codes of the NVIDIA driver."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.checks.readers.nvml_checks import EVERYWHERE, read
from holdfast.checks.readers.pci_gpus import pci_gpus
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.gpu.xids import Line, is_of_interest, judge_xids
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.checks import SKIP, Finding, Scene, Spec
from holdfast.model.code_facts import CodeKind
from holdfast.model.signatures import Words
from holdfast.observe.host.kernel import RECORD, read_records, unescaped
from holdfast.observe.search.code_store import package_tables
from holdfast.observe.search.rule_store import package_rules

KERNEL_LEVELS = 8  # facility 0: what programs write there is not the kernel's
_BOOTED = re.compile(r"^btime (\d+)$", re.MULTILINE)


def xid(scene: Scene) -> Iterator[Seen]:
    root = Path(scene.root)
    if not (root / "proc/driver/nvidia").exists() and not _has_nvidia(root):
        yield Finding(status=SKIP, why="no NVIDIA GPU and no NVIDIA driver here")
        return
    lines = _kernel_lines(root)
    if isinstance(lines, str):
        yield Finding(status=SKIP, why=lines)
        return
    kinds: tuple[CodeKind, ...] = ("xid",) if any("Xid" in line.text for line in lines) else ()
    known = KnowledgeBase((), package_rules())
    yield from judge_xids(lines, package_tables(kinds).xid, scene.good_s, known, _others(root))


def _others(root: Path) -> frozenset[str]:
    """Returns PCI addresses of GPUs that this container may not use, though its kernel log shows their
    errors.
    """
    cards = pci_gpus(root) or ()
    known = [card for card in cards if card.is_known]
    if not known:
        return frozenset()
    return frozenset(card.address for card in cards if card.driver == "nvidia" and not card.is_ours)


def _has_nvidia(root: Path) -> bool:
    return any((root / place).exists() for place in ("dev/nvidiactl", "sys/module/nvidia"))


def _kernel_lines(root: Path) -> list[Line] | str:
    """Returns kernel log lines that may contain an Xid, or the reason why the log cannot be read."""
    path = root / "dev/kmsg"
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return f"the kernel log cannot be read: {path}: {error.strerror}"
    try:
        records, why = read_records(file)
    finally:
        os.close(file)
    if why and not records:
        return f"the kernel log cannot be read: {path}: {why}"
    booted = _BOOTED.search(read(root / "proc/stat", 1 << 20))
    at_boot_s = float(booted[1]) if booted else None
    return [
        Line(
            None if at_boot_s is None else at_boot_s + int(match["at_us"]) / 1e6,
            unescaped(match["text"]).decode("utf-8", "replace"),
        )
        for match in RECORD.finditer(b"".join(records))
        if int(match["level"]) < KERNEL_LEVELS and is_of_interest(match["text"])
    ]


CHECKS = (
    Check(
        Spec(
            name="gpu-xid",
            area="gpu",
            what=Words(en="GPU errors (Xid) in the kernel log", zh="内核日志中的 Xid 错误"),
            contexts=EVERYWHERE,
            needs=("the kernel log",),
            quick=True,
        ),
        xid,
    ),
)
