"""Reads what the text of a device error says beyond its code: the recovery action, register words, sub-codes. Pure.

sources: NVIDIA, "Analyzing Xid errors with the Xid catalog" (Xid 74 register bits, Xid 144-150 decode, Xid 154);
NVIDIA open-gpu-kernel-modules, src/nvidia/src/kernel/gpu/rc and src/common/nvswitch.
"""

import re

from msgspec import Struct

from holdfast.late_pattern import late
from holdfast.model.signatures import Words


class SubCode(Struct, frozen=True, kw_only=True):
    """What a text asks for. `action`: empty where it says nothing about that. `is_peer`: the other end is to blame.

    `is_harmless`: the driver itself counts this as no fault.
    """

    action: str = ""
    says: Words
    is_peer: bool = False
    is_harmless: bool = False
    is_program: bool = False


RECOVERY = late(r"recovery action changed from .*? to 0x[0-9a-fA-F]+ \(([^)]*)\)")
RECOVERY_ACTIONS = (  # the first word that stands in the announced action decides
    ("node reboot", "reboot_node"),
    ("system reboot", "reboot_node"),
    ("reset", "reset_gpu"),
    ("drain", "reset_gpu"),
    ("imex", "fix_env"),
    ("none", "none"),
)

NVLINK5 = late(
    r"\b(?P<unit>[A-Z][A-Z0-9_/]+) +(?P<kind>Fatal|Nonfatal) +XC ?\d+ +i ?\d+ +Link +(?P<link>-?\d+)"
    r" +[(\[](?P<words>0x[0-9a-fA-F]+(?: 0x[0-9a-fA-F]+)*)"
)
# Bits 25:20 of the first word, when the unit is NETIR_LINK_EVT (NETIR_LINK_DOWN): why the link went.
LINK_DOWN_PEER = frozenset({0x15, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25})
LINK_DOWN_SIGNAL = frozenset({0x02, 0x04, 0x0A, 0x2A, 0x2B})
LINK_DOWN_SOFTWARE = frozenset({0x0F, 0x10, 0x11, 0x12, 0x16})
LINK_DOWN_ORDERED = frozenset({0x26, 0x28})  # by software, or by the host

NVLINK4 = late(r"link (?P<link>\d+) ?\((?P<words>0x[0-9a-fA-F]+(?:,? ?0x[0-9a-fA-F]+)*)\)")
BITS_IGNORED = frozenset({0, 23, 30})
BITS_SECONDARY = frozenset({1, 20})
BITS_ECC = frozenset({4, 5})
BITS_MECHANICAL = frozenset({8, 9, 12, 16, 17, 24, 28})
BITS_SIGNAL = frozenset({21, 22})

PROGRAM_TEXT = late(
    r"Out Of Range|Illegal (?:Instruction|Address|Global|Local|Shared|Opcode)|Misaligned|Invalid (?:Address|Opcode)"
    r"|MMU Fault|FAULT_(?:PDE|PTE|RO_VIOLATION|WO_VIOLATION|ATOMIC_VIOLATION)|Stack (?:Error|Overflow)|API Stack"
    r"|Multiple Warp Errors|Oor\b|MMU NACK"
)
REMAP_FAILED = late(
    r"[Rr]emap\w* (?:failed|failure)|All reserved rows for bank are remapped|retirement failed"
)
REMAP_PENDING = late(r"reset gpu to activate|pending remap|[Rr]ow marked for remapping", re.IGNORECASE)


def recovery(text: str) -> SubCode | None:
    """What Xid 154 announces; None where the text announces nothing that is known."""
    found = RECOVERY.search(text)
    if found is None:
        return None
    name = found[1]
    action = next((action for word, action in RECOVERY_ACTIONS if word in name.lower()), "")
    if not action:
        return None
    return SubCode(
        action=action,
        says=Words(en=f"the driver announces: {name}", zh=f"驱动声明需要的恢复动作:{name}"),
        is_harmless=action == "none",
    )


def sub_code(code: str, text: str) -> SubCode | None:
    """What the text of an Xid says beyond its code; None where it says nothing more."""
    if code == "154":
        return recovery(text)
    if code in ("63", "64"):
        return _remap(text)
    if code in ("13", "31"):
        return _program(text)
    if code == "74":
        return _nvlink4(text)
    if code in ("144", "145", "146", "147", "148", "149", "150"):
        return _nvlink5(text)
    return None


def _remap(text: str) -> SubCode | None:
    if REMAP_FAILED.search(text):
        return SubCode(
            action="isolate_node",
            says=Words(en="no spare row is left: the GPU is to be replaced", zh="备用行已用尽:需要更换 GPU"),
        )
    if REMAP_PENDING.search(text):
        return SubCode(
            action="reset_gpu",
            says=Words(en="a row remap waits for a reset of the GPU", zh="行重映射待 GPU 重置后生效"),
        )
    return None


def _program(text: str) -> SubCode | None:
    if not PROGRAM_TEXT.search(text):
        return None
    return SubCode(
        action="fix_code",
        says=Words(
            en="the text names an access or instruction of the program", zh="文本指明是程序的访问或指令出错"
        ),
        is_program=True,
    )


def _nvlink4(text: str) -> SubCode | None:
    """Xid 74 up to NVLink 4: which bits of the first register word are set."""
    found = NVLINK4.search(text)
    if found is None:
        return None
    words = [int(word, 16) for word in re.findall(r"0x[0-9a-fA-F]+", found["words"])]
    bits = {bit for bit in range(32) if words[0] >> bit & 1}
    others = any(words[1:])
    link = found["link"]
    if bits and bits <= BITS_IGNORED and not others:
        return SubCode(
            action="none",
            says=Words(en=f"link {link}: only bits that mean nothing", zh=f"链路 {link}:仅有可忽略的位"),
            is_harmless=True,
        )
    if bits & BITS_ECC:
        return SubCode(
            action="reset_gpu",
            says=Words(en=f"link {link}: ECC or parity error", zh=f"链路 {link}:ECC 或奇偶校验错误"),
        )
    if bits & BITS_MECHANICAL:
        return SubCode(
            action="reset_gpu",
            says=Words(
                en=f"link {link}: hardware, perhaps the seating of bridge or module",
                zh=f"链路 {link}:硬件问题,可能是桥接器或模块插接不良",
            ),
        )
    if bits & BITS_SIGNAL:
        return SubCode(
            action="reset_gpu",
            says=Words(en=f"link {link}: marginal signals", zh=f"链路 {link}:信号质量临界"),
        )
    if bits and bits <= BITS_SECONDARY | BITS_IGNORED and not others:
        return SubCode(
            action="reset_gpu",
            says=Words(
                en=f"link {link}: a consequence of another error, perhaps at the peer",
                zh=f"链路 {link}:其他错误(可能在对端)的后果",
            ),
            is_peer=True,
        )
    return None


def _nvlink5(text: str) -> SubCode | None:
    """Xid 144-150: Fatal or Nonfatal, and the reason of a link loss."""
    found = NVLINK5.search(text)
    if found is None:
        return None
    unit, link = found["unit"], found["link"]
    if found["kind"] == "Nonfatal":
        return SubCode(
            action="none",
            says=Words(en=f"{unit}: not fatal, link {link}", zh=f"{unit}:非致命,链路 {link}"),
            is_harmless=True,
        )
    reason = int(found["words"].split()[0], 16) >> 20 & 0x3F
    if not unit.startswith("NETIR_LINK"):
        return SubCode(
            action="reset_gpu", says=Words(en=f"{unit}: fatal, link {link}", zh=f"{unit}:致命,链路 {link}")
        )
    if reason in LINK_DOWN_PEER:
        return SubCode(
            action="reset_gpu",
            says=Words(
                en=f"link {link} went down from the other end: look at the peer too",
                zh=f"链路 {link} 由对端断开:同时检查对端设备",
            ),
            is_peer=True,
        )
    if reason in LINK_DOWN_ORDERED:
        return SubCode(
            action="none",
            says=Words(en=f"link {link} was taken down by software", zh=f"链路 {link} 由软件关闭"),
            is_harmless=True,
        )
    why_en, why_zh = (
        ("bad signals or cable", "信号或线缆不良")
        if reason in LINK_DOWN_SIGNAL
        else ("software or user", "软件或用户操作")
        if reason in LINK_DOWN_SOFTWARE
        else ("reason " + hex(reason), "原因 " + hex(reason))
    )
    return SubCode(
        action="reset_gpu",
        says=Words(en=f"link {link} went down: {why_en}", zh=f"链路 {link} 断开:{why_zh}"),
    )
