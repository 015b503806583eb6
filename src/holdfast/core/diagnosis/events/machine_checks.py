"""Judges machine checks by the bits of their status register. Pure.

    mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 4: a600000000020408
    [Hardware Error]: CPU:44 (19:11:1) MC0_STATUS[-|UE|MiscV|AddrV|-|TCC|SyndV|-|Poison|-|-]: 0xbc00080001010135
    mcelog: STATUS fa00000000400405 MCGSTATUS 0

An error is a fault of the machine if it was not corrected (bit 61, UC) and its report was enabled (bit 60, EN).
Firmware leaves banks with EN clear behind at every boot. A bank that is read while the machine starts is about the
run before: the machine went down with it.

Source: Intel SDM, volume 3B, section 17.3.2.2 (IA32_MCi_STATUS); AMD64 APM, volume 2, section 9.3.2.
"""

from collections.abc import Sequence, Set

from holdfast.core.diagnosis.devices.judgements import Judgement, host_of
from holdfast.core.diagnosis.events.boot import is_at_boot
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Words

UNCORRECTED, ENABLED = 1 << 61, 1 << 60
AGAIN_MAX = 9  # corrected events of one kind that are no sign of bad memory


def machine_checks(
    ordered: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> list[Judgement]:
    """Returns judgements on machine checks whose status register is in the log."""
    boots = [one for one in ordered if known.has("kernel-boot", one)]
    statuses = [
        (one, status)
        for one in ordered
        if known.has("machine-check-status", one) and (status := _status(one)) is not None
    ]
    uncorrected = [one for one, status in statuses if is_uncorrected(status)]
    found = [
        _uncorrected(
            one,
            host_of(one, sources, known),
            at_boot=is_at_boot(one, boots) and not known.has("machine-check-exception", one),
        )
        for one in uncorrected
    ]
    corrected_only = {one.source for one, _ in statuses} - {one.source for one in uncorrected}
    return [*found, *_decoded_corrected(ordered, corrected_only, known)]


def is_uncorrected(status: int) -> bool:
    """Returns whether a status register reports an error that was not corrected, and was meant to be reported."""
    return bool(status & UNCORRECTED) and bool(status & ENABLED)


def _uncorrected(one: Match, host: str, *, at_boot: bool) -> Judgement:
    return Judgement(
        first=one,
        category="mce_edac",
        severity="warning" if at_boot else "fatal",
        action="isolate_node",
        host=host or None,
        decided_by="state flags",
        why=Words(en="status register: not corrected", zh="状态寄存器：未纠正"),
        confidence=0.6 if at_boot else 0.9,
        title=Words(
            en="an uncorrected hardware error ended the machine's run before this boot",
            zh="本次启动之前，不可纠正的硬件错误导致机器停机",
        )
        if at_boot
        else Words(en="uncorrected machine check", zh="不可纠正的硬件错误（machine check）"),
    )


def _decoded_corrected(
    ordered: Sequence[Match], corrected_only: Set[int], known: KnowledgeBase
) -> list[Judgement]:
    """Returns judgements "no fault" on events that mcelog decoded. Many of one kind keep their signature's weight.

    `corrected_only`: sources that have status registers, none of them of an uncorrected error.
    """
    return [
        Judgement(first=one, category=one.category, role="context", severity="info")
        for one in ordered
        if known.has("machine-check-decoded", one) and one.source in corrected_only and one.count <= AGAIN_MAX
    ]


def _status(one: Match) -> int | None:
    text = one.captures.get("status", "")
    try:
        return int(text, 16) if len(text) <= 16 else None
    except ValueError:
        return None
