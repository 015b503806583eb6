"""Judges network links: which of them failed, and which were taken down on purpose or never had a peer. Pure.

A link is a fault only after it had been up. These are none: a port without a cable, which says "down" at every
boot; a link that goes down with the machine (suspend, shutdown, reboot) or because a person or a network manager
takes it down.

    PM: suspend entry (deep)                        systemd-logind[880]: System is rebooting.
    e1000e 0000:00:1f.6 eno1: NIC Link is Down      mlx5_core 0000:3b:00.0 ens1f0np0: Link down
"""

from collections import defaultdict
from collections.abc import Sequence

from holdfast.core.diagnosis.devices.judgements import Judgement, host_of, seconds_between
from holdfast.core.diagnosis.events.boot import is_at_boot
from holdfast.core.diagnosis.events.outages import back_words, is_back, merged, outage_s
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Words

SHORT_BREAK_S = 30.0  # of a link: collectives wait 4.3 s eight times by default
PURPOSE_S = (-3.0, 60.0)  # from the line that tells why, to the driver's: a machine wakes within a minute
PURPOSE_BYTES = 16 << 10  # the same in a log without times, or for the last of many equal lines


def link_changes(
    ordered: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> list[Judgement]:
    """Returns judgements on network links: flapped if the link came up again, otherwise down.

    Changes during a boot, changes on purpose and ports that were never up are no fault.
    """
    by_name: dict[tuple[str, str], list[Match]] = defaultdict(list)
    boots = [one for one in ordered if known.has("kernel-boot", one)]
    reasons = [one for one in ordered if known.has("link-taken-down", one)]
    for one in ordered:
        if known.has("link-down", one) or known.has("link-up", one):
            name = one.captures.get("name") or one.captures.get("device", "")
            by_name[(host_of(one, sources, known), name)].append(one)
    found = []
    for (host, name), seen in by_name.items():
        downs = [one for one in seen if known.has("link-down", one)]
        ups = [one for one in seen if known.has("link-up", one)]
        if not downs:
            continue
        is_fault = not (
            all(is_at_boot(one, boots) for one in downs)
            or all(_is_on_purpose(one, reasons) for one in downs)
            or _was_never_up(downs, ups, boots)
        )
        found.append(_changed(downs, ups, host, name, is_fault=is_fault))
    return merged(found)


def _changed(
    downs: Sequence[Match], ups: Sequence[Match], host: str, name: str, *, is_fault: bool
) -> Judgement:
    has_recovered = is_back(downs, ups) or _came_between(downs, ups)
    length_s = outage_s(downs[0], ups) if has_recovered else None
    times = sum(one.count for one in downs)
    short = has_recovered and times == 1 and length_s is not None and length_s < SHORT_BREAK_S
    return Judgement(
        first=downs[0],
        category="nic_link_flap" if has_recovered else "nic_down",
        role="cause" if is_fault else "context",
        severity="error" if is_fault and not short else "warning",
        devices=(name,) if name else (),
        host=host or None,
        decided_by="recovered" if has_recovered else "signature",
        why=back_words(times, length_s) if has_recovered else Words(en="it did not recover", zh="未恢复"),
        explained=tuple(one for one in downs if one is not downs[0]),
        confidence=0.85 if has_recovered else 0.8,
        title=_flap_title(name, host, length_s if times == 1 else None) if has_recovered else None,
    )


def _is_on_purpose(down: Match, reasons: Sequence[Match]) -> bool:
    """Returns whether a line near each occurrence of a failure tells why the link was taken down."""
    near = [one for one in reasons if _is_about(one, down)]
    return any(_is_soon(one, down) for one in near) and (
        down.count == 1 or any(_ends_soon(one, down) for one in near)
    )


def _is_about(reason: Match, down: Match) -> bool:
    """Returns whether a reason is about the link: it names it, or is about the whole machine."""
    if reason.source != down.source and reason.writer.host != down.writer.host:
        return False
    link = reason.captures.get("link")
    names = (down.captures.get("name"), down.captures.get("device"))
    return link is None or link in names


def _is_soon(reason: Match, down: Match) -> bool:
    after_s = seconds_between(reason, down)
    is_timed = after_s is not None and PURPOSE_S[0] <= after_s <= PURPOSE_S[1]
    if is_timed or (after_s is not None and reason.count == 1) or reason.source != down.source:
        return is_timed
    return any(abs(down.offset - offset) < PURPOSE_BYTES for offset in (reason.offset, reason.last_offset))


def _ends_soon(reason: Match, down: Match) -> bool:
    return reason.source == down.source and abs(down.last_offset - reason.last_offset) < PURPOSE_BYTES


def _was_never_up(downs: Sequence[Match], ups: Sequence[Match], boots: Sequence[Match]) -> bool:
    """Returns whether a log that holds the machine's start shows no link before a port's last failure."""
    has_start = all(
        any(boot.source == down.source and boot.offset < down.offset for boot in boots) for down in downs
    )
    last = max(downs, key=lambda one: one.last_offset)
    return has_start and all(up.source == last.source and up.offset > last.last_offset for up in ups)


def _came_between(downs: Sequence[Match], ups: Sequence[Match]) -> bool:
    """Returns whether something was up between two failures, whatever its current state is."""
    return any(
        down.source == up.source and down.offset < up.last_offset and up.offset < other.last_offset
        for down in downs
        for other in downs
        for up in ups
        if other.source == down.source and other.last_offset > down.offset
    )


def _flap_title(name: str, host: str, outage_s: float | None) -> Words:
    where = " ".join(part for part in (name, f"on {host}" if host else "") if part)
    where_zh = " ".join(part for part in (host, name) if part)
    length_en = f" for {outage_s:.0f} s" if outage_s is not None else ""
    length_zh = f" {outage_s:.0f} 秒" if outage_s is not None else ""
    return Words(
        en=f"a network link was down{length_en} and came up again" + (f": {where}" if where else ""),
        zh=f"网络链路中断{length_zh}后恢复" + (f"：{where_zh}" if where_zh else ""),
    )
