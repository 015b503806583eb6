"""Limits bursts of notifications: many new messages become one digest, and equal notices of several jobs
become one. Pure.

A channel gets at most `STORM_NOTICES` new messages within `STORM_S` seconds; the others wait until that time
has passed, and are then sent as one digest. Notices with the same cause, from several jobs, are sent as one
message at most every `CAUSE_S` seconds.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from holdfast.core.notify.outbox import GIVE_UP_S, Send
from holdfast.core.plurals import counted
from holdfast.model.documents.notices import SEVERITIES, Notice
from holdfast.model.documents.parts import Sentence
from holdfast.model.signatures import Words

STORM_NOTICES, STORM_S = 5, 60.0
CAUSE_S = 60.0
NAMES_MAX = 5
_Key = tuple[str, str]  # channel, notice


class Storms:
    """Limits the rate of new messages of each channel; remembers those of the last minute."""

    def __init__(
        self, unbounded: Iterable[str] = (), notices: int = STORM_NOTICES, within_s: float = STORM_S
    ) -> None:
        """Sets the limits. `unbounded`: channels without a limit."""
        self._unbounded = frozenset(unbounded)
        self._notices, self._within_s = notices, within_s
        self._admitted: dict[_Key, float] = {}
        self._recent: dict[str, list[float]] = {}
        self._until_s: dict[str, float] = {}  # by channel: a storm is on until then
        self._members: set[_Key] = set()  # sent together with others, until that is delivered
        self._causes: dict[tuple[str, str], tuple[float, str]] = {}  # when, and of which job

    def joined(self, due: list[Send], now_s: float) -> list[Send]:
        """Returns what may be sent now of the deliveries that are due.

        Updates are not limited; new messages may be merged into one or held back.
        """
        self._forget(now_s)
        sends: list[Send] = []
        waiting: dict[str, list[Send]] = {}
        members: dict[str, list[Send]] = {}
        for send in due:
            if send.is_update or send.channel in self._unbounded or _key(send) in self._admitted:
                sends.append(send)
            elif _key(send) in self._members:
                members.setdefault(send.channel, []).append(send)
            else:
                waiting.setdefault(send.channel, []).append(send)
        for group in members.values():
            sends.append(_digest(group, now_s))
        for channel, group in waiting.items():
            sends += self._new(channel, group, now_s)
        return sends

    def _new(self, channel: str, firsts: list[Send], now_s: float) -> list[Send]:
        until_s = self._until_s.get(channel)
        if until_s is not None:
            if now_s < until_s:
                return []
            del self._until_s[channel]
            return self._admit([firsts], now_s)
        groups = self._by_cause(firsts, now_s)
        recent = self._recent.setdefault(channel, [])
        left = self._notices - len(recent)
        if len(groups) > left:
            self._until_s[channel] = (recent[0] if recent else now_s) + self._within_s
        return self._admit(groups[: max(0, left)], now_s)

    def _by_cause(self, firsts: list[Send], now_s: float) -> list[list[Send]]:
        """Groups new messages by cause; holds back those whose cause was sent for another job a
        moment ago.
        """
        groups: dict[tuple[str, str], list[Send]] = {}
        for send in firsts:
            notice = send.notice
            if not notice.cause:
                groups[(notice.id, "")] = [send]
                continue
            sent = self._causes.get((send.channel, notice.cause))
            if sent is None or sent[1] == notice.job:
                groups.setdefault(("", notice.cause), []).append(send)
        return list(groups.values())

    def _admit(self, groups: list[list[Send]], now_s: float) -> list[Send]:
        sends = []
        for group in groups:
            first = group[0]
            self._recent.setdefault(first.channel, []).append(now_s)
            if len(group) == 1:
                self._admitted[_key(first)] = now_s
                sends.append(first)
            else:
                self._members.update(map(_key, group))
                sends.append(_digest(group, now_s))
            for send in group:
                if send.notice.cause:
                    self._causes.setdefault((send.channel, send.notice.cause), (now_s, send.notice.job))
        return sends

    def _forget(self, now_s: float) -> None:
        self._recent = {
            channel: [at_s for at_s in times if now_s - at_s < self._within_s]
            for channel, times in self._recent.items()
        }
        self._causes = {key: sent for key, sent in self._causes.items() if now_s - sent[0] < CAUSE_S}
        if len(self._admitted) > 1_000:
            self._admitted = {key: at_s for key, at_s in self._admitted.items() if now_s - at_s < GIVE_UP_S}

    def delivered(self, send: Send) -> None:
        """Removes the state of a message that was delivered, or whose delivery was given up."""
        for notice in send.joined or (send.notice,):
            key = (send.channel, notice.id)
            self._members.discard(key)
            self._admitted.pop(key, None)


def _key(send: Send) -> _Key:
    return send.channel, send.notice.id


def _digest(group: list[Send], now_s: float) -> Send:
    """Returns one message about a group of notices.

    A retry with the same notices has the same idempotency key.
    """
    if len(group) == 1:
        return group[0]
    notices = [send.notice for send in group]
    jobs = list(dict.fromkeys(one.job for one in notices))
    causes = Counter(one.category or one.event for one in notices).most_common(3)
    text = Words(
        en=f"{counted(len(group), 'notice')} within a minute, of {counted(len(jobs), 'job')}: "
        + ", ".join(f"{count} × {cause}" for cause, count in causes)
        + ".",
        zh=f"一分钟内 {len(group)} 条通知，涉及 {len(jobs)} 个作业："
        + "、".join(f"{count} × {cause}" for cause, count in causes)
        + "。",
    )
    names = ", ".join(jobs[:NAMES_MAX]) + (f" +{len(jobs) - NAMES_MAX}" if len(jobs) > NAMES_MAX else "")
    worst = max(notices, key=lambda one: SEVERITIES.index(one.severity))
    mark = hashlib.sha256("\n".join(sorted(f"{one.id}/{one.version}" for one in notices)).encode())
    name = f"digest-{mark.hexdigest()[:16]}"
    notice = Notice(
        id=name,
        version=1,
        event=worst.event,
        severity=worst.severity,
        at_s=now_s,
        job=jobs[0] if len(jobs) == 1 else counted(len(jobs), "job"),
        title=Words(en=f"{len(group)} notices", zh=f"{len(group)} 条通知"),
        sentence=Sentence(text=text, tone=worst.sentence.tone, to_do=worst.sentence.to_do),
        facts=((Words(en="jobs", zh="作业"), Words(en=names, zh=names)),),
        link=_common_link(notices),
        is_over=True,
    )
    key = f"{name}/1/{group[0].channel}"
    return replace(group[0], notice=notice, key=key, reference="", joined=tuple(notices))


def _common_link(notices: list[Notice]) -> str:
    """Returns the link to the notices' common job, or to the list of jobs if they are of several."""
    first = notices[0].link
    if len({one.job for one in notices}) == 1:
        return first.partition("/incidents/")[0]
    return first.partition("/jobs/")[0]
