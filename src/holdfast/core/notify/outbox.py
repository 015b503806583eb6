"""Plans deliveries: which version of which notice is sent to which channel now, and when to try again. Pure.

Deliveries are recorded in an append-only log. After a restart the journal yields the same notices again;
versions that the log has as delivered are not sent a second time. A delivery that was begun and has no result
is sent again, so that none is lost; a receiver that supports idempotency keys shows it once.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from holdfast.model.documents.notices import AnyDelivery, Attempted, Delivered, Failed, Joined, Notice

FIRST_PAUSE_S, PAUSE_S_MAX = 2.0, 300.0
AFTER_S_MAX = 3_600.0  # a receiver that asks for a longer pause is tried after this
GIVE_UP_S = (
    24 * 3_600.0
)  # after the first try of a version; what is older when it is found is not sent at all


class Channel(Struct, frozen=True, kw_only=True):
    """A configured receiver of notices, as the delivery plan needs it.

    `can_update`: a sent message can be changed in place.
    """

    name: str
    can_update: bool


class Send(Struct, frozen=True, kw_only=True):
    """A delivery to make: one version of a notification to one channel.

    `reference`: the receiver's id of the earlier message about this notification; empty for the first. `key`: the
    idempotency key. `is_update`: change the earlier message instead of sending a new one. `count`: number of this
    try, from 1. `joined`: all notifications, if the message is about several.
    """

    channel: str
    notice: Notice
    reference: str
    count: int
    key: str
    is_update: bool = False
    joined: tuple[Notice, ...] = ()


class _Line(Struct):
    """The state of one channel.

    `failures`: temporary failures in a row; nothing is sent before `retry_at_s`.
    """

    can_update: bool
    failures: int = 0
    retry_at_s: float = 0.0


class _Track(Struct):
    """The delivery state of one notice on one channel.

    `notice` None: it is in the delivery log and not yet in the journal.

    `milestone`: the newest version that justifies a message of its own.
    """

    notice: Notice | None = None
    milestone: Notice | None = None
    delivered: int = 0
    given_up: int = 0
    reference: str = ""
    count: int = 0
    first_try_s: float | None = None
    is_in_flight: bool = False


class Outbox:
    """The queue of notices to deliver; `due` returns what to send now.

    Its inputs are notices and the rows of the delivery log. `dice`: returns random numbers, 0 to 1, that
    spread the retries.
    """

    def __init__(self, channels: Iterable[Channel], dice: Callable[[], float]) -> None:
        self._lines = {channel.name: _Line(can_update=channel.can_update) for channel in channels}
        self._dice = dice
        self._tracks: dict[tuple[str, str], _Track] = {}
        self._open: set[tuple[str, str]] = set()  # tracks that may have something to send

    def put(self, notice: Notice, channels: Iterable[str]) -> None:
        """Adds a version of a notice for the given channels, and for channels that can update an earlier
        version.

        An undelivered older version is dropped.
        """
        updated = [
            name for name, line in self._lines.items() if line.can_update and self._has(notice.id, name)
        ]
        for name in dict.fromkeys((*channels, *updated)):
            if name not in self._lines:
                continue
            track = self._tracks.setdefault((notice.id, name), _Track())
            if track.notice is not None and notice.version < track.notice.version:
                continue  # a journal that was read again
            track.notice = notice
            if notice.is_milestone:
                track.milestone = notice
            self._open.add((notice.id, name))

    def heard(self, row: AnyDelivery) -> None:
        """Processes a row of the delivery log, written by this process or by an earlier one."""
        if row.channel not in self._lines:
            return
        track = self._tracks.setdefault((row.notice, row.channel), _Track())
        line = self._lines[row.channel]
        match row:
            case Attempted():
                track.is_in_flight = True
                track.count = row.count
                track.first_try_s = row.at_s if track.first_try_s is None else track.first_try_s
            case Failed():
                track.is_in_flight = False
                track.count = row.count
                if row.retry_at_s is None:
                    track.given_up = max(track.given_up, row.version)
                    track.count, track.first_try_s = 0, None
                else:
                    line.failures, line.retry_at_s = row.in_a_row, row.retry_at_s
            case Delivered() | Joined():
                track.is_in_flight = False
                track.delivered = max(track.delivered, row.version)
                track.count, track.first_try_s = 0, None
                line.failures, line.retry_at_s = 0, 0.0
                if isinstance(row, Delivered):
                    track.reference = row.reference or track.reference

    def restarted(self) -> int:
        """Marks deliveries that an earlier process began without a result as not begun; returns their number.

        Called once, after the delivery log was read.
        """
        unsure = [track for track in self._tracks.values() if track.is_in_flight]
        for track in unsure:
            track.is_in_flight = False
        return len(unsure)

    def due(self, now_s: float) -> list[Send]:
        """Returns the messages to send now, at most one per notice and channel; fewest attempts first, then
        oldest first.
        """
        found: list[Send] = []
        for key in list(self._open):
            name, track = key[1], self._tracks[key]
            line = self._lines[name]
            if track.is_in_flight or now_s < line.retry_at_s:
                continue
            notice = _next(track, line)
            if notice is None or (track.count == 0 and now_s - notice.at_s > GIVE_UP_S):
                self._open.discard(key)
                continue
            found.append(
                Send(
                    channel=name,
                    notice=notice,
                    reference=track.reference,
                    count=track.count + 1,
                    key=f"{notice.id}/{notice.version}/{name}",
                    is_update=line.can_update and bool(track.reference),
                )
            )
        return sorted(found, key=lambda send: (send.count, send.notice.at_s, send.notice.id, send.channel))

    def retry(self, send: Send, now_s: float, after_s: float | None = None) -> tuple[float | None, int]:
        """Returns when a failed delivery is tried again (None: it is given up), and the channel's failures in
        a row.

        `after_s`: the pause in seconds that the receiver asked for.
        """
        in_a_row = self._lines[send.channel].failures + 1
        track = self._tracks[(send.notice.id, send.channel)]
        if track.first_try_s is not None and now_s - track.first_try_s > GIVE_UP_S:
            return None, in_a_row
        doubled_s = min(PAUSE_S_MAX, FIRST_PAUSE_S * 2.0 ** min(in_a_row - 1, 20))
        pause_s = max(doubled_s * (0.5 + self._dice()), min(after_s or 0.0, AFTER_S_MAX))
        return now_s + pause_s, in_a_row

    @property
    def is_idle(self) -> bool:
        """Returns whether no delivery is in progress and none is waiting.

        Valid only after a call of `due`.
        """
        return not any(
            self._tracks[key].is_in_flight or _next(self._tracks[key], self._lines[key[1]]) is not None
            for key in self._open
        )

    def delivered_to(self, channel: str) -> list[Notice]:
        """Returns the notices that this channel has received and that may still change."""
        return [
            track.notice
            for (_, name), track in self._tracks.items()
            if name == channel
            and track.notice is not None
            and track.delivered > 0
            and not track.notice.is_over
        ]

    def _has(self, notice: str, channel: str) -> bool:
        track = self._tracks.get((notice, channel))
        return track is not None and (track.notice is not None or track.delivered > 0)


def _next(track: _Track, line: _Line) -> Notice | None:
    """Returns the version of a notice to send next; None if there is none.

    It is the newest one, or the newest milestone if the channel cannot update its earlier message.
    """
    follows = bool(track.delivered) and not (line.can_update and track.reference)
    notice = track.milestone if follows else track.notice
    if notice is None or notice.version <= max(track.delivered, track.given_up):
        return None
    return notice
