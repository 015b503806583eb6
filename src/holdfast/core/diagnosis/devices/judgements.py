"""Defines a judgement on related matches, and functions that compare devices, hosts and times. Pure."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.code_facts import CodeFact
from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Role, Severity, Words


class Judgement(Struct, frozen=True, kw_only=True, eq=False):
    """The judgement on one incident of a device or host, from all its matches.

    Its matches count once, as `first`, with these words instead of the signature's. `first`: the first cause; one of
    the given matches (the same object). `explained`: other matches of the incident or its consequences; none of them
    may become a cause. `category`, `action`: of the taxonomy. `role`: "cause"; "symptom", a cause only if there is no
    other; "context", no fault (a low rate of corrected errors, an interface that comes up at boot). `devices`: as
    logs write them, PCI domains with four digits; the culprit's first. `host`: None if no line names one.
    `decided_by`: "recovery action", "state flags", "sub-code", "repetition", "exoneration", "table", "signature",
    "recovered". `why`: the reason of that source, as a sentence. `disagree`: "NVIDIA: reset_gpu", one for each source
    with another action. `fact`: entry in the table of codes. `confidence`: probability that the category is right.
    `title`, `advice`: None means the signature's.
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
    """Returns the time of a match and its clock: (False, Unix time) or (True, seconds since boot); None
    without a time.
    """
    if match.writer.stamp_s is not None:
        return False, match.writer.stamp_s
    if match.writer.uptime_s is not None:
        return True, match.writer.uptime_s
    return None


def seconds_between(one: Match, other: Match) -> float | None:
    """Returns the seconds between two matches; None if their clocks cannot be compared."""
    first, second = where_of(one), where_of(other)
    if first is None or second is None or first[0] != second[0]:
        return None
    if first[0] and one.source != other.source and one.writer.host != other.writer.host:
        return None  # seconds since the boots of two machines
    return second[1] - first[1]


def pci_address(text: str) -> str:
    """Returns a PCI address in its short form: `0000:86:00.0` for `00000000:86:00.0`.

    Other texts are unchanged.
    """
    head, colon, rest = text.partition(":")
    return f"{head[-4:]}{colon}{rest}".lower() if colon and len(head) == 8 else text


def same_device(one: str, other: str) -> bool:
    """Returns whether two texts name the same device, such as `0000:91:00` (Xid) and `0000:91:00.0`."""
    return _without_function(one) == _without_function(other)


def _without_function(address: str) -> str:
    return pci_address(address).lower().split(".")[0]


def distinct_devices(named: Iterable[str]) -> tuple[str, ...]:
    """Returns each device once, by the first of its names."""
    found: dict[str, str] = {}
    for name in named:
        if name:
            found.setdefault(_without_function(name), name)
    return tuple(found.values())


def headers(matches: Sequence[Match], signatures: Collection[str]) -> dict[int, list[Match]]:
    """Returns by log the lines of these signatures, in order. Each names the device of the lines below it."""
    found: dict[int, list[Match]] = defaultdict(list)
    for one in in_order(matches):
        if one.signature in signatures:
            found[one.source].append(one)
    return found


def device_above(one: Match, named: Mapping[int, Sequence[Match]], within: int | None = None) -> str:
    """Returns the device in the last header above a line; "" if there is none.

    `within`: maximum distance in bytes; None means any.
    """
    above = named.get(one.source, ())
    at = bisect_right(above, one.offset, key=lambda header: header.offset)
    if at == 0 or within is not None and one.offset - above[at - 1].offset > within:
        return ""
    return above[at - 1].captures.get("device", "")


def host_of(one: Match, sources: Sequence[Source], known: KnowledgeBase) -> str:
    """Returns the host of a line: the one it names, else the host of its log; "" if unknown."""
    written = one.captures.get("host") or one.writer.host or ""
    if written and not known.is_whole("driver-name", written):
        return written
    return (sources[one.source].writer.host or "") if 0 <= one.source < len(sources) else ""


def in_order(matches: Sequence[Match]) -> list[Match]:
    """Returns the matches sorted by log and offset."""
    return sorted(matches, key=lambda one: (one.source, one.offset))
