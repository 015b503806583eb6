"""Judges lines that healthy machines write while they start, and errors of removable disks. Pure."""

from collections.abc import Sequence

from holdfast.core.diagnosis.devices.judgements import Judgement, seconds_between
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match

BOOT_S = 300.0  # of uptime: while drivers start, links go up and down
DRIVERS_FIRST_S = 60.0
BOOT_BYTES = 512 << 10  # of a log, where neither uptime nor stamps tell


def is_at_boot(one: Match, boots: Sequence[Match]) -> bool:
    """Returns whether a line was written while the machine booted: by the uptime in the line; without one, by its
    distance from the kernel's first lines.
    """
    if one.writer.uptime_s is not None:
        return one.writer.uptime_s < BOOT_S
    above = [boot for boot in boots if boot.source == one.source and boot.offset < one.offset]
    below = [boot for boot in boots if boot.source == one.source and boot.offset > one.offset]
    if below and 0 <= (seconds_between(one, below[0]) or -1.0) < DRIVERS_FIRST_S:
        return True  # a log that begins in the middle of the start: drivers come before services
    if not above:
        return False
    since_s = seconds_between(above[-1], one)
    return one.offset - above[-1].offset < BOOT_BYTES if since_s is None else since_s < BOOT_S


def boot_complaints(ordered: Sequence[Match], known: KnowledgeBase) -> list[Judgement]:
    """Returns judgements by which errors that drivers and services report while a machine boots are no fault, if the
    log contains the boot.

    In such a log of a whole machine, units of systemd that fail are no fault either, whenever they do, unless jobs
    need them.
    """
    boots = [one for one in ordered if known.has("kernel-boot", one)]
    logs = {boot.source for boot in boots}
    return [
        _no_fault(one)
        for one in ordered
        if one.source in logs
        and (_is_unit_of_system(one, known) or known.has("complaint-at-boot", one) and is_at_boot(one, boots))
    ]


def _is_unit_of_system(one: Match, known: KnowledgeBase) -> bool:
    return (
        known.has("ended-unit", one)
        and known.says("line-of-systemd", one.text)
        and not known.says("unit-that-jobs-need", one.text)
    )


def removable_disks(ordered: Sequence[Match], known: KnowledgeBase) -> list[Judgement]:
    """Returns judgements by which errors of a USB stick or a card reader are no fault, because no job writes
    there.
    """
    removable = {(one.source, one.captures["device"]) for one in ordered if known.has("removable-disk", one)}
    return [
        _no_fault(one)
        for one in ordered
        if known.has("disk-error", one)
        and (one.source, one.captures.get("device", "").rstrip("0123456789")) in removable
    ]


def _no_fault(one: Match) -> Judgement:
    return Judgement(first=one, category=one.category, role="context", severity="info")
