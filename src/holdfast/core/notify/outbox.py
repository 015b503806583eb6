"""Plans deliveries: which version of which notice is to be sent to which channel now, and when to try again. Pure.

What was delivered is kept in an append-only log. After a restart the same notices come out of the journal again; those
whose version was delivered are not sent a second time. A delivery that was begun and has no result is sent again: nothing
is lost, and a receiver that uses idempotency keys shows it once.
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
    """What the plan needs of a receiver. `can_update`: an earlier message can be changed in place."""

    name: str
    can_update: bool


class Send(Struct, frozen=True, kw_only=True):
    """An order. `reference`: of the earlier message of this notice; empty: it is the first. `key`: idempotent.

    `is_update`: an earlier message is changed, no new one is made. `count`: of tries of this version, this one included.
    `joined`: the notices that this message stands for, where it is about several.
    """

    channel: str
    notice: Notice
    reference: str
    count: int
    key: str
    is_update: bool = False
    joined: tuple[Notice, ...] = ()


class _Line(Struct):
    """A channel. `failures`: deliveries in a row that failed for now; until `retry_at_s` nothing is sent there."""

    can_update: bool
    failures: int = 0
    retry_at_s: float = 0.0


class _Track(Struct):
    """One notice on one channel. `notice` None: the log has it, and the journal does not, yet.

    `milestone`: the newest version that is worth a message of its own.
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
    """`dice`: 0 to 1, spreads retries. Takes notices and the log of deliveries; `due` returns what to send now."""

    def __init__(self, channels: Iterable[Channel], dice: Callable[[], float]) -> None:
        self._lines = {channel.name: _Line(can_update=channel.can_update) for channel in channels}
        self._dice = dice
        self._tracks: dict[tuple[str, str], _Track] = {}
        self._open: set[tuple[str, str]] = set()  # tracks that may have something to send

    def put(self, notice: Notice, channels: Iterable[str]) -> None:
        """A version of a notice, for these channels, and for those that can update what they have of it.

        Versions that are old news are replaced by the newest.
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
        """A row of the log: of this process or of one before it."""
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
        """After the log of earlier processes was read: what they had begun is tried again. Returns how many such."""
        unsure = [track for track in self._tracks.values() if track.is_in_flight]
        for track in unsure:
            track.is_in_flight = False
        return len(unsure)

    def due(self, now_s: float) -> list[Send]:
        """What is to be sent now: at most one for each notice and channel; the least tried first, then the oldest."""
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
        """When its channel is tried again, None: it is given up; and how many failures in a row that channel has.

        `after_s`: the pause that the receiver asks for.
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
        """Whether nothing is under way and nothing waits. True only after `due` was asked."""
        return not any(
            self._tracks[key].is_in_flight or _next(self._tracks[key], self._lines[key[1]]) is not None
            for key in self._open
        )

    def told(self, channel: str) -> list[Notice]:
        """The notices that this channel has, and that are not over."""
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
    """The version to send: the newest; where that would be another message about the same, the newest milestone."""
    follows = bool(track.delivered) and not (line.can_update and track.reference)
    notice = track.milestone if follows else track.notice
    if notice is None or notice.version <= max(track.delivered, track.given_up):
        return None
    return notice
