"""Finds faults of a node in its kernel log, since boot or since a run last made progress here. Pure.

The rules of the diagnosis group lines into incidents and mark harmless ones.
"""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.checks.node_findings import failed, warned
from holdfast.core.diagnosis.candidates import Ruling, class_of, filled, kind_of
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.rulings import all_rulings
from holdfast.late_pattern import late
from holdfast.model.checks import DEVICE_FAULT, NO_FAULT, RULE, Finding
from holdfast.model.code_facts import CodeTables
from holdfast.model.matches import Match, Search
from holdfast.model.signatures import Signature, Words

CLASSES = frozenset(("hardware", "host", "network"))  # classes of faults of the node itself
KILLS = frozenset(("host_oom", "cgroup_oom"))  # mostly a fault of the job: reported only while new
OF_PROGRAMS = frozenset(("fix_code", "none"))  # actions for a program's fault, and for none
BROKEN = frozenset(("reboot_node", "isolate_node"))
# Faults that only a reboot or a new part ends. A PCIe port, for example, may have recovered since.
LASTING = late(r"gpu_missing|ecc_uncorrectable|sxid|xid_\d+")
SURE = 0.85
TEXT_MAX = 200
KILLS_NEWS_S = 3600.0


class Incident(Struct, frozen=True, kw_only=True):
    """Lines of the kernel log about one fault of the node.

    `times`: number of its lines. `last_s`: time of the last one in seconds since the epoch; None if unknown.
    """

    category: str
    severity: str
    action: str
    weight: float
    device: str
    text: str
    title: Words
    advice: Words
    times: int
    last_s: float | None = None


def incidents(
    search: Search, signatures: KnowledgeBase, tables: CodeTables, booted_s: float
) -> list[Incident]:
    """Returns the faults of the node in its kernel log that do not usually recover; one for each category and
    device.

    `booted_s`: time of the boot, in seconds since the epoch; kernel lines give seconds since the boot.
    """
    rulings = all_rulings(search, signatures, tables)
    found: dict[tuple[str, str], Incident] = {}
    for one in search.matches:
        signature = signatures[one.signature]
        ruling = rulings.get(id(one)) or Ruling(
            category=one.category,
            role=signature.role,
            severity=signature.severity,
            weight=signature.weight,
            action=signature.action,
        )
        if ruling.role != "cause" or ruling.severity not in ("fatal", "error"):
            continue
        incident = _incident(one, signature, ruling, booted_s)
        found.setdefault((incident.category, incident.device), incident)
    return [one for one in found.values() if class_of(one.category) in CLASSES or one.category in KILLS]


def _incident(one: Match, signature: Signature, ruling: Ruling, booted_s: float) -> Incident:
    culprits = [culprit.device for culprit in ruling.culprits or () if culprit.device]
    usual = kind_of(ruling.category)[1]
    at_s = one.writer.uptime_s
    return Incident(
        category=ruling.category,
        severity=ruling.severity,
        action=ruling.action or signature.action or ("" if usual.startswith("by ") else usual),
        weight=ruling.weight,
        device=culprits[0] if culprits else one.captures.get("device", ""),
        text=one.text.strip()[:TEXT_MAX],
        title=_words(ruling.title or signature.title, one),
        advice=_words(ruling.advice or signature.advice, one),
        times=one.count,
        last_s=None if at_s is None else booted_s + at_s,
    )


def _words(words: Words, one: Match) -> Words:
    return Words(en=filled(words.en, one.captures), zh=filled(words.zh, one.captures))


def judge_incidents(
    found: Sequence[Incident], now_s: float, good_s: float, *, without_xids: bool
) -> list[Finding]:
    """Returns findings about faults in the kernel log.

    `good_s`: when a run last made progress on the node. `without_xids`: another check reports Xids. Only error codes
    that the tables contain isolate the node.
    """
    since = "since the last good run" if good_s else "since boot"
    return [
        _finding(one, since)
        for one in found
        if one.action not in OF_PROGRAMS
        and not (without_xids and one.category.startswith("xid_"))
        and not (one.category in KILLS and not _is_news(one, now_s, good_s))
    ]


def _is_news(one: Incident, now_s: float, good_s: float) -> bool:
    return bool(good_s) or (one.last_s is not None and now_s - one.last_s < KILLS_NEWS_S)


def _finding(one: Incident, since: str) -> Finding:
    is_device = class_of(one.category) == "hardware" and one.severity == "fatal"
    is_broken = (
        is_device
        and one.action in BROKEN
        and one.weight >= SURE
        and LASTING.fullmatch(one.category) is not None
    )
    times = f"{one.times} times: " if one.times > 1 else ""
    arguments = (f"{times}{one.text}", f"no such line {since}", RULE)
    if is_device:
        return failed(
            *arguments,
            why=one.title.en,
            en=one.advice.en,
            zh=one.advice.zh,
            device=one.device,
            category=one.category,
            fault=DEVICE_FAULT if is_broken else NO_FAULT,
        )
    return warned(
        *arguments,
        why=one.title.en,
        en=one.advice.en,
        zh=one.advice.zh,
        device=one.device,
        category=one.category,
    )
