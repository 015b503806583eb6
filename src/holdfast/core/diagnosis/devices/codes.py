"""Interprets the text of a device error beyond its code: recovery action, register contents and sub-codes. Pure.

The meanings are in the table `xid-detail` of the rules; this module converts register contents into keys of that
table.

sources: NVIDIA, "Analyzing Xid errors with the Xid catalog" (Xid 74 register bits, Xid 144-150 decode, Xid 154);
NVIDIA open-gpu-kernel-modules, src/nvidia/src/kernel/gpu/rc and src/common/nvswitch.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from holdfast.core.diagnosis.candidates import filled
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.late_pattern import late
from holdfast.model.rules import Reading
from holdfast.model.signatures import Words

NO_WORDS = Words(en="", zh="")
PEER = "peer"  # id of the rows that blame the device at the other end of the link
HEX = late(r"0x[0-9a-fA-F]+")
REASON_SHIFT, REASON_MASK = 20, 0x3F  # where the first word of a link event holds the reason


class SubCode(Struct, frozen=True, kw_only=True):
    """Meaning of the text of a device error.

    `action`: "" if the text recommends none. `is_peer`: the device at the other end of the link is to blame.
    """

    action: str = ""
    says: Words
    is_peer: bool = False

    @property
    def is_harmless(self) -> bool:
        """Returns whether the driver itself reports that this error is not a fault."""
        return self.action == "none"


def sub_code(code: str, text: str, known: KnowledgeBase) -> SubCode | None:
    """Returns the meaning of an Xid's text beyond its code; None if it says nothing more."""
    coded = f"{code}: {text}"
    if announced := known.found("recovery-announced", coded):
        return recovery(announced["name"], known.text("recovery-announced"), known)
    detail, captures = _detail(coded, known)
    row = known.read("xid-detail", f"{code}: {detail}" if detail else coded)
    return None if row is None else _of_row(row, row.says, captures)


def recovery(name: str, says: Words, known: KnowledgeBase) -> SubCode | None:
    """Returns the recovery action of this name; None if the name is unknown."""
    row = known.read("recovery-action", name)
    return None if row is None else _of_row(row, says, {"name": name})


def _of_row(row: Reading, says: Words | None, captures: Mapping[str, str]) -> SubCode:
    text = says or NO_WORDS
    return SubCode(
        action=row.action,
        says=Words(en=filled(text.en, captures), zh=filled(text.zh, captures)),
        is_peer=row.id == PEER,
    )


def _detail(coded: str, known: KnowledgeBase) -> tuple[str, Mapping[str, str]]:
    """Returns the key of the table row for a text, and captured values.

    The key holds the set bits of a register, or a link event with its reason; "" for any other text.
    """
    if found := known.found("link-register", coded):
        first, *others = _words(found)
        bits = " ".join(str(bit) for bit in range(32) if first >> bit & 1)
        return f"bits {bits}" + (" more" if any(others) else ""), found.groupdict()
    if found := known.found("link-event", coded):
        reason = hex(_words(found)[0] >> REASON_SHIFT & REASON_MASK)
        return f"{found['kind']} {found['unit']} {reason}", {**found.groupdict(), "reason": reason}
    return "", {}


def _words(found: re.Match[str]) -> list[int]:
    return [int(word, 16) for word in HEX.findall(found["words"])]
