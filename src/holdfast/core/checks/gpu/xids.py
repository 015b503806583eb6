"""Selects the Xids of the kernel log that still matter for a GPU. Pure.

An Xid counts if it is newer than the last good run, was not followed by a reset or reload of the driver, and
is not one that a program causes. The driver's last recommendation (Xid 154) has precedence over the table of
codes.

    NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)

source: NVIDIA open-gpu-kernel-modules, src/nvidia/src/kernel/gpu/rc
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from holdfast.core.diagnosis.devices.codes import sub_code
from holdfast.core.diagnosis.devices.words import advice_of
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.plurals import counted
from holdfast.late_pattern import late
from holdfast.model.checks import DEVICE_FAULT, FAIL, NO_FAULT, PASS, RULE, WARN, Finding
from holdfast.model.code_facts import CodeFact
from holdfast.model.signatures import Words

XID = late(r"NVRM: Xid \((?:PCI:)?(?P<device>[0-9a-fA-F:.]+)[^)]*\): (?P<code>\d{1,3})\b(?P<text>.*)")
RELOADED = late(
    r"nvidia: loading out-of-tree|NVRM: loading NVIDIA|nvidia-nvlink: Nvlink Core is being initialized"
)
ANNOUNCEMENT = "154"
AFTER = "45"  # channels torn down as a consequence of another error
SERIOUS = ("reset_gpu", "reboot_node", "isolate_node")
CODES_NAMED = 4
LINES_MAX = 10_000


class Line(Struct, frozen=True):
    """A line of the kernel log. `at_s`: seconds since the epoch; None if unknown."""

    at_s: float | None
    text: str


class Xid(Struct, frozen=True, kw_only=True):
    """An Xid error in the kernel log.

    `action`: of the taxonomy; "none": no action needed. `is_program`: caused by a program.
    """

    at_s: float | None
    device: str
    code: str
    text: str
    action: str
    is_program: bool
    fact: CodeFact | None = None


def is_of_interest(text: bytes) -> bool:
    """Returns whether a line may concern the NVIDIA driver; a fast filter."""
    return b"NVRM" in text or b"nvidia" in text


def judge_xids(
    lines: Iterable[Line],
    table: Mapping[str, CodeFact],
    good_s: float,
    known: KnowledgeBase,
    others: Collection[str] = (),
) -> list[Finding]:
    """Returns findings on Xids.

    `lines`: since boot, oldest first. `good_s`: time of the last good run, in seconds since the epoch; 0 if
    unknown. `others`: addresses of GPUs that do not belong to this run.
    """
    relevant = [one for one in lines if is_of_interest(one.text.encode())][-LINES_MAX:]
    xids, healed = _xids(relevant, table, known)
    old = [one for one in xids if good_s and one.at_s is not None and one.at_s <= good_s]
    alive = [one for one in xids if one not in old and one not in healed]
    by_device: dict[str, list[Xid]] = defaultdict(list)
    for one in alive:
        if one.action in SERIOUS and not one.is_program and one.device not in others:
            by_device[one.device].append(one)
    troubles = [
        _trouble(device, group, known, is_new=bool(good_s) and all(one.at_s is not None for one in group))
        for device, group in by_device.items()
    ]
    if troubles:
        return troubles
    return [
        Finding(
            status=PASS,
            measured=_measured(xids, old, healed),
            expected="no Xid that requires a repair",
            whence=RULE,
        )
    ]


def _xids(
    lines: Sequence[Line], table: Mapping[str, CodeFact], known: KnowledgeBase
) -> tuple[list[Xid], list[Xid]]:
    """Returns all Xids, and those that a reload of the driver or a later recommendation has settled."""
    xids: list[Xid] = []
    healed: list[Xid] = []
    for line in lines:
        if RELOADED.search(line.text):
            healed = list(xids)
        found = XID.search(line.text)
        if found is None:
            continue
        xid = _xid(line.at_s, found, table, known)
        if xid.code == ANNOUNCEMENT and xid.action == "none":
            healed += [one for one in xids if one.device == xid.device and one not in healed]
        xids.append(xid)
    return xids, healed


def _xid(
    at_s: float | None, found: re.Match[str], table: Mapping[str, CodeFact], known: KnowledgeBase
) -> Xid:
    code = found["code"].lstrip("0") or "0"
    fact = table.get(code)
    sub = sub_code(code, found[0], known)
    action = sub.action if sub is not None and sub.action else fact.action if fact is not None else ""
    return Xid(
        at_s=at_s,
        device=_address(found["device"]),
        code=code,
        text=found["text"].lstrip(" ,").strip(),
        action="none" if sub is not None and sub.is_harmless else action,
        is_program=bool(fact and fact.program and action not in SERIOUS) or code == AFTER,
        fact=fact,
    )


def _address(text: str) -> str:
    """Returns a PCI address with its function: "0000:1b:00.0" for "0000:1b:00"."""
    low = text.lower()
    return low if "." in low else f"{low}.0"


def _trouble(device: str, group: Sequence[Xid], known: KnowledgeBase, *, is_new: bool) -> Finding:
    """Returns the finding on a GPU's Xids.

    `is_new`: since a good run, so they happened in this run without a repair.
    """
    announced = [one for one in group if one.code == ANNOUNCEMENT]
    first = next((one for one in group if one.code != ANNOUNCEMENT), group[0])
    decides = announced[-1] if announced else max(group, key=lambda one: SERIOUS.index(one.action))
    codes = list(dict.fromkeys(one.code for one in group))
    shown = ", ".join(codes[:CODES_NAMED])
    meaning = f": {first.fact.meaning.en}" if first.fact else f": {first.text}"
    is_grave = decides.action in ("reboot_node", "isolate_node") or (
        first.fact is not None and first.fact.severity == "fatal"
    )
    is_fault = is_new and is_grave
    since = "since the last good run" if is_new else "since the boot"
    return Finding(
        status=FAIL if is_fault else WARN,
        device=device,
        measured=f"Xid {shown} {since}, {counted(len(group), 'time')}",
        expected="no Xid that requires a repair",
        whence=RULE,
        why=f"the driver reported Xid {first.code} for this GPU {since}{meaning}",
        advice=_advice(decides, first, device, known),
        fault=DEVICE_FAULT if is_fault else NO_FAULT,
        category=f"xid_{first.code}",
    )


def _advice(decides: Xid, first: Xid, device: str, known: KnowledgeBase) -> Words:
    return advice_of(decides.fact or first.fact, decides.action, device, known) or Words(
        en=f"Look at `nvidia-smi -q -i {device}` and reset the GPU before the next start.",
        zh=f"查看 `nvidia-smi -q -i {device}`，下次启动前重置该 GPU。",
    )


def _measured(xids: Sequence[Xid], old: Sequence[Xid], healed: Sequence[Xid]) -> str:
    if not xids:
        return "no Xid since the boot"
    codes = ", ".join(dict.fromkeys(one.code for one in xids))
    parts = [f"{len(xids)} since the boot (Xid {codes})"]
    if old:
        parts.append(f"{len(old)} before the last good run")
    settled = sum(one not in old for one in healed)
    if settled:
        parts.append(f"{settled} settled by a reset")
    return ", ".join(parts) + "; none requires a repair"
