"""Converts matches of device faults into events, and groups events of one node into episodes. Pure.

An episode has one first cause if the rest can follow from it: a failed link can cause a lost GPU, a lost GPU
failed NVSwitch ports, an ECC error a row remap, and any error Xid 45 (channels) and Xid 154 (recovery
action).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import Literal, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.diagnosis.devices.codes import SubCode, sub_code
from holdfast.core.diagnosis.devices.judgements import (
    device_above,
    headers,
    host_of,
    in_order,
    pci_address,
    same_device,
    seconds_between,
)
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.code_facts import CodeFact, CodeTables
from holdfast.model.matches import Match, Source

# The table `device-event` of the rules gives the kind of each signature.
Kind: TypeAlias = Literal["bus", "lost", "xid", "sxid", "fabric", "link", "after", "npu"]

WINDOW_S = 120.0  # a longer pause between two lines of one node separates two episodes
HEADER_BYTES = 600  # between a line and the header above it that names its device
GRAVITY = {"info": 0, "warning": 1, "error": 2, "fatal": 3}


class Event(Struct, frozen=True, kw_only=True, eq=False):
    """A device fault that one matched line reports.

    `code`: code of the Xid, SXid or NPU error, otherwise empty. `device`: empty if the line does not name it.
    """

    match: Match
    kind: Kind
    code: str = ""
    device: str = ""
    node: str
    fact: CodeFact | None = None
    sub: SubCode | None = None
    known: KnowledgeBase

    def has(self, tag: str) -> bool:
        """Returns whether the event's signature or Xid has a tag."""
        xid = f"xid_{self.code}" if self.kind in ("xid", "after") else ""
        return self.known.is_of(tag, self.match.signature, xid)

    @property
    def is_further_detail(self) -> bool:
        """Returns whether the event only adds details to an NVSwitch fault that another line reports."""
        return self.kind == "after" and self.has("switch-fault-detail")

    @property
    def likeness(self) -> tuple[object, ...]:
        """Returns a key that is equal for events that report the same fault."""
        return (
            self.match.signature,
            self.code,
            self.device,
            self.sub and (self.sub.action, self.sub.is_peer),
        )

    @property
    def is_lost(self) -> bool:
        return self.kind == "lost" or self.kind == "xid" and self.has("gpu-lost-xid")

    @property
    def is_fatal_word(self) -> bool:
        if self.kind == "sxid" and self.has("switch-fault-detail"):
            is_grave = self.fact is not None and self.fact.severity == "fatal"
            return is_grave and not self.known.says("switch-fault-not-fatal", self.match.text)
        return self.has("fatal-switch-fault")

    @property
    def gravity(self) -> int:
        """Returns the severity as a number from 0 to 3; 1 if a sub-code means "no fault"."""
        if self.sub is not None and self.sub.is_harmless:
            return 1
        if self.kind in ("sxid", "fabric"):
            return 3 if self.is_fatal_word else 1
        if self.kind == "after":
            return 1 if self.has("torn-down-channel-xid") else 2
        if self.fact is not None:
            return GRAVITY[self.fact.severity]
        return 3 if self.kind in ("bus", "lost") else 2


def events(
    matches: Sequence[Match], sources: Sequence[Source], tables: CodeTables, known: KnowledgeBase
) -> list[Event]:
    """Returns the device fault events of the matches, by log and offset."""
    named = headers(matches, known.tagged("names-gpu-below"))
    found = [
        _event(one, cast(Kind, row.id), sources, tables, known, named)
        for one in in_order(matches)
        if (row := known.read("device-event", one.signature)) is not None
    ]
    headed = {(event.node, event.device, event.code) for event in found if event.kind == "sxid"}
    return [_as_head(event, tables) if _is_headless(event, headed) else event for event in found]


def _is_headless(event: Event, headed: Set[tuple[str, str, str]]) -> bool:
    """Returns whether an event adds details to an SXid whose first line, with its severity, is missing."""
    return event.is_further_detail and (event.node, event.device, event.code) not in headed


def _as_head(event: Event, tables: CodeTables) -> Event:
    return replace(event, kind="sxid", fact=tables.sxid.get(event.code))


def episodes(seen: Sequence[Event]) -> list[list[Event]]:
    """Returns the events grouped by node, and split at pauses of more than WINDOW_S seconds."""
    by_node: dict[str, list[Event]] = defaultdict(list)
    for event in seen:
        by_node[event.node].append(event)
    parted: list[list[Event]] = []
    for group in by_node.values():
        current: list[Event] = []
        for event in _by_time(group):
            if current and _is_apart(current[-1], event):
                parted.append(current)
                current = []
            current.append(event)
        parted.append(current)
    return parted


def accounts_for(cause: Event, effect: Event, before: bool) -> bool:
    """Returns whether a cause explains an effect of the same episode.

    `before`: the cause was written first.
    """
    if cause.kind == "after":
        return False
    if effect.kind == "after":
        return cause.kind != "npu"
    if cause.kind == "bus":
        return _bus_accounts_for(effect, before)
    if cause.is_lost:
        return _lost_accounts_for(cause, effect, before)
    if cause.kind == "xid":
        return _xid_accounts_for(cause, effect, before)
    if cause.kind == "sxid":
        if effect.kind == "fabric":
            return cause.code == effect.code or cause.is_fatal_word
        return (
            cause.is_fatal_word and before and effect.kind in ("sxid", "link", "xid") and not effect.is_lost
        )
    return cause.kind == effect.kind and before and cause.is_fatal_word and not effect.is_fatal_word


def is_same_device(one: Event, other: Event) -> bool:
    named = bool(one.device and other.device)
    return named and one.node == other.node and same_device(one.device, other.device)


def _bus_accounts_for(effect: Event, before: bool) -> bool:
    """Returns whether a failed PCIe link explains an effect.

    It makes the devices behind it fail; it does not make a program access a wrong address.
    """
    if effect.kind == "npu" or effect.fact is not None and effect.fact.cause == "app":
        return False
    return before or effect.kind != "bus" and not effect.is_lost


def _lost_accounts_for(cause: Event, effect: Event, before: bool) -> bool:
    if effect.is_lost:
        duplicate = is_same_device(cause, effect) or not (cause.device and effect.device)
        return duplicate and (
            cause.kind == "xid" and effect.kind != "xid" or cause.kind == effect.kind and before
        )
    if effect.kind in ("sxid", "fabric", "link"):
        return True
    if effect.kind == "xid":
        return is_same_device(cause, effect) and (before or effect.gravity < 3) or effect.has("link-xid")
    return False


def _xid_accounts_for(cause: Event, effect: Event, before: bool) -> bool:
    if effect.kind in ("sxid", "fabric", "link"):
        return cause.gravity >= 2 and not effect.is_fatal_word or cause.has("link-xid") and before
    if effect.kind == "lost":
        return before and is_same_device(cause, effect) and cause.gravity >= 2
    if effect.kind != "xid":
        return False
    if is_same_device(cause, effect):
        if cause.has("ecc-error-xid") and effect.has("ecc-record-xid"):
            return True
        if effect.has("ecc-error-xid") and cause.has("ecc-record-xid"):
            return False
        if effect.has("stopped-channel-xid"):
            return not cause.has("stopped-channel-xid")
        return before and cause.gravity >= effect.gravity or cause.gravity == 3 and effect.gravity <= 1
    linked = cause.has("link-xid") and effect.has("link-xid")
    blames_peer = effect.sub is not None and effect.sub.is_peer and not (cause.sub and cause.sub.is_peer)
    return linked and blames_peer and cause.gravity >= effect.gravity


def _event(
    one: Match,
    kind: Kind,
    sources: Sequence[Source],
    tables: CodeTables,
    known: KnowledgeBase,
    named: Mapping[int, list[Match]],
) -> Event:
    captures = one.captures
    fact, code, sub = None, "", None
    device = captures.get("device", "")
    if kind == "xid" or known.has("xid-after-fault", one):
        code = captures.get("xid", "").lstrip("0")
        fact, sub = tables.xid.get(code), sub_code(code, one.text, known)
    elif kind in ("sxid", "fabric"):
        code = captures.get("sxid", "").lstrip("0")
        fact = tables.sxid.get(code)
    elif known.has("switch-fault-detail", one):
        code = captures.get("sxid", "").lstrip("0")
    elif kind == "npu":
        code = captures.get("code", "").upper()
        fact = tables.npu.get(code)
        device = f"NPU {device}" if device else ""
    if not device and known.has("gpu-named-above", one):
        device = device_above(one, named, HEADER_BYTES)
    return Event(
        match=one,
        kind=kind,
        code=code,
        device=pci_address(device),
        node=host_of(one, sources, known),
        fact=fact,
        sub=sub,
        known=known,
    )


def _by_time(group: Sequence[Event]) -> list[Event]:
    """Returns the events by time if all have times of one clock; otherwise in the order of the logs."""
    stamps = [event.match.writer.stamp_s for event in group]
    if len({event.match.source for event in group}) > 1 and all(stamp is not None for stamp in stamps):
        return sorted(group, key=lambda event: event.match.writer.stamp_s or 0.0)
    return list(group)


def _is_apart(one: Event, other: Event) -> bool:
    between = seconds_between(one.match, other.match)
    return between is not None and abs(between) > WINDOW_S
