"""Defines a judgement on matches that belong together, with how devices, hosts and times are compared. Pure."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.code_facts import CodeFact
from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Role, Severity, Words


class Judgement(Struct, frozen=True, kw_only=True, eq=False):
    """One incident. Its matches count once, as `first`, with these words instead of its signature's.

    `first`: the first cause, one of the given matches (the same object). `explained`: other matches of the incident
    or its consequences; none may be a cause. `category`, `action`: of the taxonomy. `role`: cause; symptom, a cause
    only if there is no other; context, no fault (a low rate of corrected errors, an interface that comes up at boot).
    `devices`: as logs write them, PCI domains of four digits; the culprit's first. `host`: None if no line names one.
    `decided_by`: "recovery action", "state flags", "sub-code", "repetition", "exoneration", "table", "signature",
    "recovered". `why`: that source's reason, in a sentence. `disagree`: "NVIDIA: reset_gpu", one for each source with
    another action. `fact`: entry in the table of codes. `confidence`: that the category is right. `title`, `advice`:
    instead of the signature's; None: the signature's are used.
    """

    first: Match
    category: str
    role: Role = "cause"
    severity: Severity = "error"
    action: str = ""
    devices: tuple[str, ...] = ()
    host: str | None = None
    decided_by: str = "signature"
    why: Words | None = None
    disagree: tuple[str, ...] = ()
    explained: tuple[Match, ...] = ()
    fact: CodeFact | None = None
    confidence: float = 0.9
    title: Words | None = None
    advice: Words | None = None


def where_of(match: Match) -> tuple[bool, float] | None:
    """The time and its clock: (False, epoch seconds) or (True, seconds since boot)."""
    if match.writer.stamp_s is not None:
        return False, match.writer.stamp_s
    if match.writer.uptime_s is not None:
        return True, match.writer.uptime_s
    return None


def seconds_between(one: Match, other: Match) -> float | None:
    """Seconds between two times; None if their clocks cannot be compared."""
    first, second = where_of(one), where_of(other)
    if first is None or second is None or first[0] != second[0]:
        return None
    if first[0] and one.source != other.source and one.writer.host != other.writer.host:
        return None  # seconds since the boots of two machines
    return second[1] - first[1]


def pci_address(text: str) -> str:
    """`00000000:86:00.0` and `0000:86:00.0` are the same device; anything else stays as it is."""
    head, colon, rest = text.partition(":")
    return f"{head[-4:]}{colon}{rest}".lower() if colon and len(head) == 8 else text


def same_device(one: str, other: str) -> bool:
    """`0000:91:00` (Xid) and `0000:91:00.0` are the same device."""
    return _without_function(one) == _without_function(other)


def _without_function(address: str) -> str:
    return pci_address(address).lower().split(".")[0]


def distinct_devices(named: Iterable[str]) -> tuple[str, ...]:
    """Each device once, by its first name."""
    found: dict[str, str] = {}
    for name in named:
        if name:
            found.setdefault(_without_function(name), name)
    return tuple(found.values())


def headers(matches: Sequence[Match], signatures: Collection[str]) -> dict[int, list[Match]]:
    """By source, the lines of these signatures, which name the device of the next lines, in order."""
    found: dict[int, list[Match]] = defaultdict(list)
    for one in in_order(matches):
        if one.signature in signatures:
            found[one.source].append(one)
    return found


def device_above(one: Match, named: Mapping[int, Sequence[Match]], within: int | None = None) -> str:
    """The device of the header above a line, within this many bytes; empty if there is none."""
    above = named.get(one.source, ())
    at = bisect_right(above, one.offset, key=lambda header: header.offset)
    if at == 0 or within is not None and one.offset - above[at - 1].offset > within:
        return ""
    return above[at - 1].captures.get("device", "")


def host_of(one: Match, sources: Sequence[Source], known: KnowledgeBase) -> str:
    """The machine of a line: its own host, else its file's; empty if neither names one."""
    written = one.captures.get("host") or one.writer.host or ""
    if written and not known.is_whole("driver-name", written):
        return written
    return (sources[one.source].writer.host or "") if 0 <= one.source < len(sources) else ""


def in_order(matches: Sequence[Match]) -> list[Match]:
    """Sort key by source and offset."""
    return sorted(matches, key=lambda one: (one.source, one.offset))
