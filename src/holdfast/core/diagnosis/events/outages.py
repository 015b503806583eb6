"""Compares failures with recoveries: whether something is up again, after how long. Pure."""

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.diagnosis.devices.judgements import Judgement, seconds_between
from holdfast.model.matches import Match
from holdfast.model.signatures import Words


def is_back(downs: Sequence[Match], ups: Sequence[Match]) -> bool:
    """Returns whether something came up again after its last failure."""
    last = max(downs, key=lambda one: (one.source, one.last_offset))
    return any(
        up.source == last.source
        and max(up.offset, up.last_offset) > max(last.offset, last.last_offset)
        or up.source != last.source
        and (between := seconds_between(last, up)) is not None
        and between >= 0
        for up in ups
    )


def outage_s(down: Match, ups: Sequence[Match]) -> float | None:
    """Returns the seconds from the first failure to the next recovery; None without comparable times."""
    lengths = [length for up in ups if (length := seconds_between(down, up)) is not None and length >= 0]
    return min(lengths, default=None)


def back_words(times: int, outage_s: float | None) -> Words:
    length_en = f", {outage_s:.0f} s" if outage_s is not None else ""
    length_zh = f"，{outage_s:.0f} 秒" if outage_s is not None else ""
    return Words(
        en=f"{times} interruption(s){length_en}, then recovered", zh=f"中断 {times} 次{length_zh}，随后恢复"
    )


def merged(found: Sequence[Judgement]) -> list[Judgement]:
    """Returns the judgements with those of the same category, role and host merged: several switch ports,
    several DIMMs.
    """
    groups: dict[tuple[str, str, str | None], list[Judgement]] = defaultdict(list)
    for judgement in found:
        groups[(judgement.category, judgement.role, judgement.host)].append(judgement)
    made = []
    for group in groups.values():
        group.sort(key=lambda judgement: (judgement.first.source, judgement.first.offset))
        head, rest = group[0], group[1:]
        worst = next((one for one in group if one.severity == "error"), head)
        made.append(
            replace(
                head,
                severity=worst.severity,
                devices=tuple(dict.fromkeys(name for one in group for name in one.devices)),
                explained=(
                    *head.explained,
                    *(one for other in rest for one in (other.first, *other.explained)),
                ),
            )
        )
    return made
