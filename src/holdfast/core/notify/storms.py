"""Bounds storms: of many new notices within a minute one message says how many, and equal ones of a fleet are one. Pure."""

from collections import Counter

from msgspec.structs import replace

from holdfast.core.notify.outbox import STORM_NOTICES, STORM_S, Send
from holdfast.core.plurals import counted
from holdfast.model.documents.notices import Notice
from holdfast.model.documents.parts import Sentence
from holdfast.model.signatures import Words

NAMES_MAX = 5


class Storms:
    """Remembers the new notices of the last minute, by channel."""

    def __init__(self, notices: int = STORM_NOTICES, within_s: float = STORM_S) -> None:
        self._notices, self._within_s = notices, within_s
        self._sent_s: dict[str, list[float]] = {}

    def joined(self, due: list[Send], now_s: float) -> list[Send]:
        """First messages beyond the bound become one digest for each channel; updates go out as they are."""
        sends: list[Send] = []
        held: dict[str, list[Send]] = {}
        room: dict[str, int] = {}
        for send in due:
            if send.reference or send.count > 1:
                sends.append(send)
                continue
            left = room.setdefault(send.channel, self._room(send.channel, now_s))
            room[send.channel] = left - 1
            if left > 0:
                sends.append(send)
            else:
                held.setdefault(send.channel, []).append(send)
        for group in held.values():
            sends.append(group[0] if len(group) == 1 else _digest(group, now_s))
        return sends

    def begun(self, send: Send, now_s: float) -> None:
        """A message goes out; only the first one about a notice counts."""
        if not send.reference and send.count == 1:
            self._sent_s.setdefault(send.channel, []).append(now_s)

    def _room(self, channel: str, now_s: float) -> int:
        recent = [at_s for at_s in self._sent_s.get(channel, ()) if now_s - at_s < self._within_s]
        self._sent_s[channel] = recent
        return self._notices - len(recent)


def _digest(group: list[Send], now_s: float) -> Send:
    """In the name of the first of them, whose record it is delivered under."""
    first = group[0].notice
    jobs = list(dict.fromkeys(one.notice.job for one in group))
    causes = Counter(one.notice.category or one.notice.event for one in group).most_common(3)
    text = Words(
        en=f"{counted(len(group), 'notice')} within a minute, of {counted(len(jobs), 'job')}: "
        + ", ".join(f"{count} × {cause}" for cause, count in causes)
        + ".",
        zh=f"一分钟内 {len(group)} 条通知,涉及 {len(jobs)} 个作业:"
        + "、".join(f"{count} × {cause}" for cause, count in causes)
        + "。",
    )
    names = ", ".join(jobs[:NAMES_MAX]) + (f" +{len(jobs) - NAMES_MAX}" if len(jobs) > NAMES_MAX else "")
    worst = max((one.notice for one in group), key=_weight)
    notice = replace(
        first,
        event=worst.event,
        severity=worst.severity,
        title=Words(en=f"{len(group)} notices", zh=f"{len(group)} 条通知"),
        sentence=Sentence(text=text, tone=worst.sentence.tone, to_do=worst.sentence.to_do),
        facts=((Words(en="jobs", zh="作业"), Words(en=names, zh=names)),),
        link=first.link.partition("/jobs/")[0],
        at_s=now_s,
    )
    return replace(group[0], notice=notice, joined=tuple(one.notice for one in group))


def _weight(notice: Notice) -> int:
    return ("info", "warning", "critical").index(notice.severity)
