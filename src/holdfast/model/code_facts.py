"""Facts about device error codes: one for each code of NVIDIA's Xid, NVSwitch's SXid, Ascend's NPU."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.model.signatures import Severity, Words

CodeKind: TypeAlias = Literal["xid", "sxid", "npu"]


class Repeats(Struct, frozen=True, kw_only=True):
    """A repetition rule: this many times within this many seconds, on the same device, means `action` instead."""

    count: int
    within_s: int
    action: str = "isolate_node"


class CodeFact(Struct, frozen=True, kw_only=True):
    """One code. `code`: as it stands in logs, without leading zeros for Xid and SXid ("79", "20034", "80E01801").

    `cause`: app, driver, hardware, bus, fabric, thermal or unknown. `program`: the training program can cause it.
    `verdicts`: source -> the action it names, in the taxonomy's words; sources that name none are left out.
    """

    kind: CodeKind
    code: str
    mnemonic: str
    meaning: Words
    cause: str
    severity: Severity
    action: str
    program: bool = False
    repeats: Repeats | None = None
    verdicts: Mapping[str, str] = {}


class CodeTables(Struct, frozen=True, kw_only=True):
    """All codes, each by its text."""

    xid: Mapping[str, CodeFact] = {}
    sxid: Mapping[str, CodeFact] = {}
    npu: Mapping[str, CodeFact] = {}
