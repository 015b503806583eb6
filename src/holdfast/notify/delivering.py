"""Delivers notifications that are due, each channel in a thread of its own, and records every attempt to
deliver.

A slow or dead receiver delays only its own channel, which makes one delivery at a time.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, tzinfo

from msgspec.structs import replace

from holdfast.core.notify.outbox import Channel, Outbox, Send
from holdfast.core.notify.routes import Moment, Rule, channels_of
from holdfast.core.notify.storms import Storms
from holdfast.model.documents.notices import (
    SEVERITIES,
    AnyDelivery,
    Attempted,
    Delivered,
    Failed,
    Joined,
    Notice,
    Severity,
)
from holdfast.notify.delivery_log import DeliveryLog
from holdfast.notify.secrets import without_secrets
from holdfast.notify.sender import Rejected, Sender, TryLater

ERROR_CHARS_MAX = 300
COMPLAINTS_MAX = 1_000  # different ones
_Done = queue.Queue[tuple[Send, Delivered | Failed, bool]]


class Post:
    """Delivery service for notifications. All its methods are called from one thread; senders run in threads
    of their own.

    `tell`: receives a line about notifications that cannot be delivered. `secrets`: texts of each channel
    that are masked in every message. `every`: channels that get each notification as its own message.
    """

    def __init__(
        self,
        senders: Mapping[str, Sender],
        rules: tuple[Rule, ...],
        zone: tzinfo,
        log: DeliveryLog,
        *,
        clock: Callable[[], float],
        dice: Callable[[], float],
        tell: Callable[[str], None],
        secrets: Mapping[str, tuple[str, ...]],
        every: Iterable[str] = (),
    ) -> None:
        self._rules, self._zone, self._log = rules, zone, log
        self._clock, self._tell = clock, tell
        self._outbox = Outbox(
            (Channel(name=name, can_update=one.can_update) for name, one in senders.items()), dice
        )
        self._storms = Storms((*every, *(name for name, one in senders.items() if one.bounds_itself)))
        self._done: _Done = queue.Queue()
        self._woken = threading.Event()
        self._workers = {
            name: _Worker(sender, self._done, self._woken, clock, secrets.get(name, ()), name)
            for name, sender in senders.items()
        }
        self._worst: dict[str, Severity] = {}  # by notice
        self._said: set[tuple[str, str]] = set()
        self._is_unwritable = False
        self.unsure = 0  # deliveries that an earlier process had begun: they may arrive twice

    def begin(self, notices: Iterable[Notice]) -> None:
        """Loads all notifications of the journal so far, and the record of their deliveries."""
        for notice in notices:
            self.put(notice)
        for row in self._log.read():
            self._outbox.heard(row)
        self.unsure = self._outbox.restarted()
        for name, worker in self._workers.items():
            worker.start(self._outbox.delivered_to(name))

    def put(self, notice: Notice) -> None:
        """Adds a notification for the channels that the routing rules select, by the worst severity that the
        notification ever had.

        So a channel that was notified of a problem is also notified of its end.
        """
        worst = max(notice.severity, self._worst.get(notice.id, notice.severity), key=SEVERITIES.index)
        self._worst[notice.id] = worst
        self._outbox.put(
            notice,
            channels_of(replace(notice, severity=worst), self._rules, moment(notice.at_s, self._zone)),
        )

    def turn(self) -> None:
        """Processes results of deliveries, and starts those that are due. Never blocks."""
        while True:
            try:
                send, result, is_final = self._done.get_nowait()
            except queue.Empty:
                break
            self._took(send, result, is_final)
        now_s = self._clock()
        for send in self._storms.joined(self._outbox.due(now_s), now_s):
            worker = self._workers[send.channel]
            if worker.is_busy:
                continue
            for notice in send.joined or (send.notice,):
                self._record(
                    Attempted(
                        notice=notice.id,
                        channel=send.channel,
                        version=notice.version,
                        at_s=now_s,
                        count=send.count,
                    )
                )
            worker.give(send)

    def wait(self, at_most_s: float) -> None:
        """Waits until a delivery ends, at most `at_most_s` seconds."""
        self._woken.wait(at_most_s)
        self._woken.clear()

    @property
    def is_idle(self) -> bool:
        """Returns True if no delivery is running or waiting."""
        busy = any(worker.is_busy for worker in self._workers.values())
        return not busy and self._done.empty() and self._outbox.is_idle

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._log.close()

    def _took(self, send: Send, result: Delivered | Failed, is_final: bool) -> None:
        """Records the result of a delivery; that of a message about several notifications holds for all of
        them.
        """
        retry_at_s: float | None = None
        if isinstance(result, Failed) and not is_final:
            first = send.joined[0] if send.joined else send.notice
            retry_at_s, in_a_row = self._outbox.retry(
                replace(send, notice=first), self._clock(), result.retry_at_s
            )
            result = replace(result, in_a_row=in_a_row)
        if retry_at_s is None:
            self._storms.delivered(send)
        for notice in send.joined or (send.notice,):
            self._record(_of(notice, send, result, retry_at_s))
        if isinstance(result, Failed):
            self._complain(send.channel, result.why, is_final=retry_at_s is None)

    def _complain(self, channel: str, why: str, *, is_final: bool) -> None:
        """Reports a delivery problem, once for each channel and reason."""
        if (channel, why) not in self._said and len(self._said) < COMPLAINTS_MAX:
            self._said.add((channel, why))
            then = "giving up" if is_final else "retrying"
            self._tell(f"notifications to {channel} are not delivered ({why}); {then}")

    def _record(self, row: AnyDelivery) -> None:
        self._outbox.heard(row)
        if not self._log.write(row) and not self._is_unwritable:
            self._is_unwritable = True
            self._tell(
                f"{self._log.path} cannot be written: after a restart, notifications may be sent twice"
            )


def moment(at_s: float, zone: tzinfo) -> Moment:
    """Returns the weekday and the minute of the day at `at_s`, in the time zone of the routing rules."""
    local = datetime.fromtimestamp(at_s, zone)
    return Moment(weekday=local.weekday(), minute=60 * local.hour + local.minute)


def _of(notice: Notice, send: Send, result: Delivered | Failed, retry_at_s: float | None) -> AnyDelivery:
    """Returns the result of a message as a row for one of the notifications in it."""
    if isinstance(result, Failed):
        return replace(result, notice=notice.id, version=notice.version, retry_at_s=retry_at_s)
    if send.joined:
        return Joined(
            notice=notice.id,
            channel=send.channel,
            version=notice.version,
            at_s=result.at_s,
            into=send.notice.id,
        )
    return result


class _Worker:
    """The thread of one channel."""

    def __init__(
        self,
        sender: Sender,
        done: _Done,
        woken: threading.Event,
        clock: Callable[[], float],
        secrets: tuple[str, ...],
        name: str,
    ) -> None:
        self._sender, self._done, self._woken = sender, done, woken
        self._clock, self._secrets = clock, secrets
        self._todo: queue.Queue[Send | None] = queue.Queue(1)
        self._earlier: list[Notice] = []
        self.is_busy = False
        self._thread = threading.Thread(target=self._run, name=f"notify-{name}", daemon=True)

    def start(self, earlier: list[Notice]) -> None:
        self._earlier = earlier
        self._thread.start()

    def give(self, send: Send) -> None:
        self.is_busy = True
        self._todo.put(send)

    def close(self) -> None:
        """Ends the thread, without waiting for a running delivery."""
        if self._thread.is_alive() and not self.is_busy:
            self._todo.put(None)
            self._thread.join(1.0)

    def _run(self) -> None:
        self._sender.begin(self._earlier)
        while True:
            try:
                send = self._todo.get(timeout=self._sender.again_s)
            except queue.Empty:
                self._again()
                continue
            if send is None:
                return
            result, is_final = self._delivered(send)
            self._done.put((send, result, is_final))
            self.is_busy = False
            self._woken.set()

    def _again(self) -> None:
        """Repeats open alerts; a failure is repeated with the next turn."""
        try:
            self._sender.again()
        except (Rejected, TryLater):
            pass

    def _delivered(self, send: Send) -> tuple[Delivered | Failed, bool]:
        """Delivers one message. Returns the result, and whether a retry is useless.

        `retry_at_s` of the result is the pause that the receiver requests.
        """
        notice = send.notice
        try:
            sent = self._sender.send(send)
        except Rejected as error:
            return self._failed(send, str(error), None), True
        except TryLater as error:
            return self._failed(send, str(error), error.after_s), False
        except Exception as error:  # noqa: BLE001 - a fault of one sender is not to end the others
            return self._failed(send, f"{type(error).__name__}: {error}", None), False
        return (
            Delivered(
                notice=notice.id,
                channel=send.channel,
                version=notice.version,
                at_s=self._clock(),
                reference=sent.reference,
            ),
            False,
        )

    def _failed(self, send: Send, why: str, after_s: float | None) -> Failed:
        return Failed(
            notice=send.notice.id,
            channel=send.channel,
            version=send.notice.version,
            at_s=self._clock(),
            count=send.count,
            why=without_secrets(why, self._secrets)[:ERROR_CHARS_MAX],
            retry_at_s=after_s,
        )
