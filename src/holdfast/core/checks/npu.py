"""Parses and judges the output of `npu-smi` for Ascend NPUs. Pure, and never raises for any text.

    | NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
    | Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
    +===========================+===============+====================================================+
    | 0     910B3               | OK            | 93.5        40                0    / 0             |
    | 0                         | 0000:C1:00.0  | 0           0    / 0          3161 / 65536         |
    +===========================+===============+====================================================+
    | NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
    +===========================+===============+====================================================+
    | 0       0                 | 12345         | python3                  | 30000                   |

source: Ascend npu-smi command reference; forms of versions 21 to 25
"""

import re
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from holdfast.core.diagnosis.devices.words import advice_of
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.plurals import counted
from holdfast.late_pattern import late
from holdfast.model.checks import (
    BASELINE,
    DEVICE_FAULT,
    FAIL,
    NO_FAULT,
    PASS,
    RULE,
    SKIP,
    STATED,
    WARN,
    Baseline,
    Fact,
    Finding,
)
from holdfast.model.code_facts import CodeFact
from holdfast.model.signatures import Words

COUNT = "NPUs"
GOOD = "OK"
UNREPORTED = ("UNKNOWN", "NA", "-", "")
SERIOUS = ("reset_gpu", "reboot_node", "isolate_node")
GRAVE = ("ALARM", "CRITICAL")
HELD_MIN_MB = 1024
ISOLATED_PAGES_MAX = 64
_PCI = late(r"^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$")
_OF = late(r"(\d+) */ *(\d+)")
_CODE = late(r"\b(?:0x)?([0-9A-Fa-f]{8,9})\b")
_COUNTER = late(r"^\s*(?P<name>[A-Za-z][A-Za-z0-9 ()-]*?)\s*:\s*(?P<count>\d+)\s*$", re.MULTILINE)


class Npu(Struct, frozen=True, kw_only=True):
    """One NPU chip. `index`: of the card; `chip`: number on the card. HBM in megabytes; None if unknown."""

    index: int
    chip: int = 0
    name: str = ""
    health: str = ""
    address: str = ""
    hbm_used: int | None = None
    hbm_total: int | None = None

    @property
    def where(self) -> str:
        """Returns the NPU's name for users: its PCI address, else its index."""
        return self.address or f"NPU {self.index}"


class NpuProcess(Struct, frozen=True):
    """A process that uses an NPU."""

    index: int
    pid: int
    name: str
    megabytes: int


class NpuTable(Struct, frozen=True):
    """The NPUs and their processes, as listed by `npu-smi info`."""

    npus: tuple[Npu, ...] = ()
    processes: tuple[NpuProcess, ...] = ()


def npu_table(text: str) -> NpuTable:
    """Parses the two tables of `npu-smi info`; other lines are skipped."""
    npus: list[Npu] = []
    processes: list[NpuProcess] = []
    head: tuple[int, str, str] | None = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.strip().startswith("|"):
            continue
        words = cells[0].split()
        if len(cells) == 4 and (process := _process(words, cells)) is not None:
            processes.append(process)
        elif len(cells) != 3 or not words or not words[0].isdecimal():
            head = None
        elif head is not None and (_PCI.match(cells[1]) or cells[1].upper() in UNREPORTED):
            npus.append(_npu(head, words, cells))
            head = None
        elif len(words) > 1:
            head = (int(words[0]), " ".join(words[1:]), cells[1])
    return NpuTable(tuple(npus), tuple(processes))


def _npu(head: tuple[int, str, str], words: Sequence[str], cells: Sequence[str]) -> Npu:
    index, name, health = head
    memories = _OF.findall(cells[2])
    used, total = memories[-1] if memories else (None, None)
    return Npu(
        index=index,
        chip=int(words[0]),
        name=name,
        health=health,
        address=cells[1].lower() if _PCI.match(cells[1]) else "",
        hbm_used=int(used) if used else None,
        hbm_total=int(total) if total else None,
    )


def _process(words: Sequence[str], cells: Sequence[str]) -> NpuProcess | None:
    if not words or not words[0].isdecimal() or not cells[1].isdecimal():
        return None
    held = cells[3].split()[0] if cells[3] else "0"
    return NpuProcess(int(words[0]), int(cells[1]), cells[2], int(held) if held.isdecimal() else 0)


def health_codes(text: str) -> tuple[str, ...]:
    """Parses the error codes in `npu-smi info -t health -i N`, with lines such as "Error Code : 80E01801"."""
    lines = [line.partition(":")[2] for line in text.splitlines() if "error code" in line.lower()]
    return tuple(dict.fromkeys(code.upper() for line in lines for code in _CODE.findall(line)))


def ecc_counters(text: str) -> dict[str, int]:
    """Parses the counters in `npu-smi info -t ecc`: {"hbm double bit error count": 0}."""
    return {found["name"].lower(): int(found["count"]) for found in _COUNTER.finditer(text)}


def count_facts(npus: Sequence[Npu]) -> list[Fact]:
    """Returns facts for the baseline: number and model of the NPUs."""
    if not npus:
        return []
    return [
        Fact(name=COUNT, value=len(npus), learn=True),
        Fact(name="NPU model", value=npus[0].name, same=True),
    ]


def judge_npu_count(npus: Sequence[Npu], on_bus: int | None, baseline: Baseline) -> list[Finding]:
    """Returns findings on the number of NPUs. A container may have fewer.

    `on_bus`: NPUs on the PCI bus; None if not visible.
    """
    learned = baseline.of("node", COUNT)
    if not npus and not (isinstance(learned, int) and learned):
        return [Finding(status=SKIP, why="`npu-smi info` lists no NPU")]
    if not isinstance(learned, int) or len(npus) >= learned:
        kinds = ", ".join(sorted({npu.name for npu in npus}))
        return [Finding(status=PASS, measured=f"{counted(len(npus), 'NPU')} ({kinds})")]
    has_left = on_bus is not None and on_bus < learned
    return [
        Finding(
            status=FAIL if has_left else WARN,
            measured=counted(len(npus), "NPU"),
            expected=counted(learned, "NPU"),
            whence=BASELINE,
            why=f"{learned - len(npus)} of the {learned} NPUs that this node had are missing",
            advice=Words(
                en="Check `npu-smi info -m` and `lspci -d 19e5:`, reboot the node (power off and on where a card is off"
                " the bus). If it was removed on purpose: `holdfast check --baseline reset`.",
                zh="查看 `npu-smi info -m` 与 `lspci -d 19e5:`，重启节点（掉卡时需断电重启）。若为有意移除："
                "`holdfast check --baseline reset`。",
            ),
            fault=DEVICE_FAULT if has_left else NO_FAULT,
            category="npu_fault",
        )
    ]


def judge_npu_health(
    npus: Sequence[Npu],
    codes: Mapping[int, Collection[str]],
    table: Mapping[str, CodeFact],
    known: KnowledgeBase,
) -> list[Finding]:
    """Returns findings about the health of NPUs. `codes`: error codes by index of the NPU.

    The action for a known code decides; without a known code, the health column decides.
    """
    found = []
    for npu in npus:
        if npu.health.upper() in (GOOD, *UNREPORTED):
            continue
        found.append(_unwell(npu, [table.get(code) or code for code in codes.get(npu.index, ())], known))
    silent = [npu for npu in npus if npu.health.upper() in UNREPORTED]
    if silent:
        found.append(
            Finding(
                status=SKIP, why=f"{silent[0].where}: npu-smi does not report its health ({silent[0].health})"
            )
        )
    if not found:
        found.append(
            Finding(status=PASS, measured=f"{counted(len(npus), 'NPU')} OK", expected=GOOD, whence=STATED)
        )
    return found


def _unwell(npu: Npu, codes: Sequence[CodeFact | str], known: KnowledgeBase) -> Finding:
    facts = [code for code in codes if isinstance(code, CodeFact)]
    worst = max(
        facts, key=lambda fact: SERIOUS.index(fact.action) if fact.action in SERIOUS else -1, default=None
    )
    is_grave = worst.action in SERIOUS if worst is not None else npu.health.upper() in GRAVE
    named = ", ".join(code if isinstance(code, str) else code.code for code in codes)
    why = f"npu-smi reports health {npu.health}" + (f" (codes {named})" if named else "")
    if worst is not None:
        why += f": {worst.meaning.en}"
    words = advice_of(worst, worst.action, npu.where, known) if worst is not None else None
    return Finding(
        status=FAIL if is_grave else WARN,
        device=npu.where,
        measured=f"{npu.health}" + (f", {named}" if named else ""),
        expected=GOOD,
        whence=STATED,
        why=why,
        advice=words
        or Words(
            en=f"Check `npu-smi info -t health -i {npu.index}` and the device log; reset the NPU"
            f" (`npu-smi set -t reset -i {npu.index} -c {npu.chip}`) with no process on it, and keep the node out if it"
            " comes back.",
            zh=f"查看 `npu-smi info -t health -i {npu.index}` 与设备日志；无进程占用时复位 NPU"
            f"（`npu-smi set -t reset -i {npu.index} -c {npu.chip}`），若复现则隔离节点。",
        ),
        fault=DEVICE_FAULT if is_grave else NO_FAULT,
        category="npu_fault",
    )


def judge_npu_ecc(npus: Sequence[Npu], counters: Mapping[int, Mapping[str, int]]) -> list[Finding]:
    """Returns findings on ECC errors. `counters`: by index of the NPU, from `npu-smi info -t ecc`."""
    found = []
    counting = 0
    for npu in npus:
        of_npu = counters.get(npu.index, {})
        double = [(name, count) for name, count in of_npu.items() if "double bit" in name]
        counting += bool(double)
        now = sum(count for name, count in double if "aggregate" not in name and "page" not in name)
        pages = sum(count for name, count in double if "page" in name)
        if now:
            why = f"{counted(now, 'uncorrected memory error')} of this NPU"
            found.append(_npu_memory(npu, FAIL, f"{now} double bit errors", "0", STATED, why))
        elif pages >= ISOLATED_PAGES_MAX:
            why = f"{pages} memory pages of this NPU are isolated"
            found.append(_npu_memory(npu, WARN, f"{pages} pages", f"below {ISOLATED_PAGES_MAX}", RULE, why))
    if found:
        return found
    if not counting:
        return [Finding(status=SKIP, why="npu-smi reports no ECC counters here")]
    return [
        Finding(status=PASS, measured=f"0 uncorrected errors on {counted(counting, 'NPU')}", expected="0")
    ]


def _npu_memory(npu: Npu, status: str, measured: str, expected: str, whence: str, why: str) -> Finding:
    return Finding(
        status=status,
        device=npu.where,
        measured=measured,
        expected=expected,
        whence=whence,
        why=why,
        advice=Words(
            en=f"End what uses the NPU and reset it (`npu-smi set -t reset -i {npu.index} -c {npu.chip}`); if it counts"
            " again, keep the node out and have the card replaced.",
            zh=f"结束占用进程并复位 NPU（`npu-smi set -t reset -i {npu.index} -c {npu.chip}`）；若计数再次增长，隔离节点并更换。",
        ),
        fault=DEVICE_FAULT if status == FAIL else NO_FAULT,
        category="ecc_uncorrectable",
    )


def judge_npu_use(table: NpuTable, own: Collection[int]) -> list[Finding]:
    """Returns warnings on other processes that use an NPU. `own`: pids of the run's processes."""
    found = []
    for npu in table.npus:
        others = [one for one in table.processes if one.index == npu.index and one.pid not in own]
        held = sum(one.megabytes for one in others)
        if held < HELD_MIN_MB:
            continue
        who = ", ".join(f"pid {one.pid} ({one.name}, {one.megabytes} MB)" for one in others[:3])
        found.append(
            Finding(
                status=WARN,
                device=npu.where,
                measured=f"{held} MB held by {who}",
                expected="no other process",
                whence=RULE,
                why=f"other processes hold {held} MB of the NPU's memory: {who}",
                advice=Words(
                    en="Find their owner (`npu-smi info`, `ps -p PID`), end processes left by an earlier job, or use a free"
                    " node.",
                    zh="确认占用者（`npu-smi info`、`ps -p PID`），结束先前作业的残留进程，或改用空闲节点。",
                ),
                category="gpu_busy",
            )
        )
    return found or [
        Finding(status=PASS, measured=f"no other process uses {counted(len(table.npus), 'NPU')}")
    ]
