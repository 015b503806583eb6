"""Defines the tables of device error codes: NVIDIA's Xid, NVSwitch's SXid, Ascend's NPU codes.

No behaviour.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.model.signatures import Severity, Words

CodeKind: TypeAlias = Literal["xid", "sxid", "npu"]


class Repeats(Struct, frozen=True, kw_only=True):
    """A rule for repeated codes: `count` times within `within_s` seconds on one device requires `action`
    instead.
    """

    count: int
    within_s: int
    action: str = "isolate_node"


class CodeFact(Struct, frozen=True, kw_only=True):
    """The facts about one device error code.

    `code`: as in logs, without leading zeros for Xid and SXid ("79", "20034", "80E01801"). `cause`: app,
    driver, hardware, bus, fabric, thermal or unknown. `program`: the training program can cause it.
    `verdicts`: by source, the action that it recommends; sources without a recommendation are left out.
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
    """All known device error codes, by kind and code."""

    xid: Mapping[str, CodeFact] = {}
    sxid: Mapping[str, CodeFact] = {}
    npu: Mapping[str, CodeFact] = {}
