"""Sends notifications to Alertmanager as alerts that resolve. Open alerts are repeated, because they expire.

Alertmanager identifies an alert by its labels, so sending it twice does not duplicate it.
"""

import time
from collections.abc import Callable, Sequence

from holdfast.core.metrics.alerts import LIVES_S, NAME, RESEND_S
from holdfast.core.notify.outbox import Send
from holdfast.metrics.alertmanager import AlertmanagerUnavailable, post
from holdfast.model.documents.notices import Notice
from holdfast.model.monitoring.alerts import Alert
from holdfast.notify.config import ChannelConfig
from holdfast.notify.forms import Tongue, cut, is_resolved, shown
from holdfast.notify.sender import Plain, Rejected, Sent, TryLater

WORDS_MAX = 400
OPEN_MAX = 10_000


class Alertmanager(Plain):
    """Sender to Alertmanager."""

    can_update = True
    bounds_itself = True
    again_s: float | None = RESEND_S

    def __init__(self, url: str, language: Tongue, clock: Callable[[], float] = time.time) -> None:
        self._url, self._language, self._clock = url, language, clock
        self._open: dict[str, tuple[Notice, float]] = {}  # by notice, and when it began
        self._resent_s = float("-inf")

    def begin(self, delivered: Sequence[Notice]) -> None:
        for notice in delivered[-OPEN_MAX:]:
            self._open[notice.id] = (notice, notice.at_s)

    def send(self, send: Send) -> Sent:
        """Sends the alert of a notification. Raises Rejected and TryLater."""
        notice = send.notice
        began_s = self._open.get(notice.id, (notice, notice.at_s))[1]
        self._post([self._alert(notice, began_s)])
        if notice.is_over:
            self._open.pop(notice.id, None)
        elif len(self._open) < OPEN_MAX or notice.id in self._open:
            self._open[notice.id] = (notice, began_s)
        if self._clock() - self._resent_s >= RESEND_S:
            self.again()
        return Sent(reference=notice.id)

    def again(self) -> None:
        """Sends all open alerts again. Raises Rejected and TryLater."""
        self._resent_s = self._clock()
        if self._open:
            self._post([self._alert(notice, began_s) for notice, began_s in self._open.values()])

    def _post(self, alerts: Sequence[Alert]) -> None:
        try:
            post(self._url, alerts)
        except AlertmanagerUnavailable as error:
            if error.is_for_good:
                raise Rejected(str(error)) from error
            raise TryLater(str(error), error.retry_after_s) from error

    def _alert(self, notice: Notice, began_s: float) -> Alert:
        """Returns the alert of a notification.

        A job's failure has no later end, so its alert expires by itself.
        """
        one = shown(notice, self._language)
        annotations = {
            "summary": cut(f"{one.title}: {one.sentence}", WORDS_MAX),
            "description": cut("\n".join(one.lines[1:]), WORDS_MAX),
            "category": notice.category,
        }
        ends_s = notice.at_s if is_resolved(notice) else self._clock() + LIVES_S
        return Alert(
            labels={
                "alertname": NAME,
                "severity": "warning" if notice.severity == "info" else notice.severity,
                "job_name": notice.job,
                **(
                    {"incident": str(notice.incident)}
                    if notice.incident is not None
                    else {"notice": notice.id}
                ),
            },
            annotations={name: text for name, text in annotations.items() if text},
            starts_s=began_s,
            ends_s=max(ends_s, began_s),
            url=notice.link,
        )


def alertmanager(channel: ChannelConfig) -> Alertmanager:
    """Creates the sender of a channel. Raises ConfigRefused."""
    return Alertmanager(channel.text("url").rstrip("/"), channel.language)
