"""Plans deliveries: which version of which notice is to be sent to which channel now, and when to try again. Pure.

What was delivered is kept in an append-only log. After a restart the same notices come out of the journal again; those
whose version was delivered are not sent a second time. A delivery that was begun and has no result is sent again: nothing
is lost, and a receiver that knows idempotency keys shows it once.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from holdfast.model.documents.notices import AnyDelivery, Attempted, Delivered, Failed, Joined, Notice

FIRST_PAUSE_S, PAUSE_S_MAX = 2.0, 300.0
GIVE_UP_S = 24 * 3600.0  # after the first try of a version
STORM_NOTICES, STORM_S = 5, 60.0  # so many new notices of a channel within so long; the others are joined


class Channel(Struct, frozen=True, kw_only=True):
    """What the plan needs to know of a receiver. `can_update`: an earlier message can be changed or followed up."""

    name: str
    can_update: bool


class Send(Struct, frozen=True, kw_only=True):
    """An order. `reference`: of the earlier message of this notice; empty: it is the first. `key`: idempotent.

    `joined`: the notices that this message stands for, where it is about several.
    """

    channel: str
    notice: Notice
    reference: str
    count: int
    key: str
    joined: tuple[Notice, ...] = ()


class _Track(Struct):
    """One notice on one channel."""

    notice: Notice
    delivered: int = 0
    reference: str = ""
    count: int = 0
    first_try_s: float | None = None
    retry_at_s: float = 0.0
    is_given_up: bool = False
    into: str = ""
    is_in_flight: bool = False
    milestones: tuple[int, ...] = ()  # versions that wait, where a receiver cannot update


class Outbox:
    """`dice`: 0 to 1, spreads retries. Feed it notices and the log of deliveries; `due` returns what to send now."""

    def __init__(self, channels: Iterable[Channel], dice: Callable[[], float]) -> None:
        self._channels = {channel.name: channel for channel in channels}
        self._dice = dice
        self._tracks: dict[tuple[str, str], _Track] = {}
        self._versions: dict[tuple[str, str], dict[int, Notice]] = {}

    def put(self, notice: Notice, channels: Iterable[str]) -> None:
        """A version of a notice, for these channels. Versions that are old news are replaced by the newest."""
        for name in channels:
            if name not in self._channels:
                continue
            key = (notice.id, name)
            track = self._tracks.get(key)
            if track is None:
                track = self._tracks[key] = _Track(notice=notice)
            track.notice = notice
            if notice.version > track.delivered:
                track.is_given_up = False
            if not self._channels[name].can_update and notice.is_milestone:
                self._versions.setdefault(key, {})[notice.version] = notice
                track.milestones = (*track.milestones, notice.version)

    def heard(self, row: AnyDelivery) -> None:
        """A row of the log: of this process or of one before it."""
        track = self._tracks.get((row.notice, row.channel))
        if track is None:
            return
        match row:
            case Attempted():
                track.is_in_flight = True
                track.count = row.count
                track.first_try_s = row.at_s if track.first_try_s is None else track.first_try_s
            case Delivered():
                track.is_in_flight = False
                track.delivered = max(track.delivered, row.version)
                track.reference = row.reference or track.reference
                track.count, track.first_try_s, track.retry_at_s = 0, None, 0.0
                track.milestones = tuple(one for one in track.milestones if one > row.version)
            case Failed():
                track.is_in_flight = False
                track.count = row.count
                track.is_given_up = row.retry_at_s is None
                track.retry_at_s = row.retry_at_s or 0.0
            case Joined():
                track.into = row.into
                track.delivered = max(track.delivered, row.version)
                track.milestones = tuple(one for one in track.milestones if one > row.version)

    def restarted(self) -> int:
        """After the log of earlier processes was read: what they had begun is tried again. Returns how many such."""
        unsure = [track for track in self._tracks.values() if track.is_in_flight]
        for track in unsure:
            track.is_in_flight = False
        return len(unsure)

    def due(self, now_s: float) -> list[Send]:
        """What is to be sent now: at most one for each notice and channel, the oldest first."""
        found = []
        for (_, name), track in sorted(self._tracks.items(), key=lambda one: one[1].notice.at_s):
            if track.is_in_flight or track.is_given_up or now_s < track.retry_at_s:
                continue
            notice = self._next(name, track)
            if notice is None:
                continue
            found.append(
                Send(
                    channel=name,
                    notice=notice,
                    reference=track.reference,
                    count=track.count + 1,
                    key=f"{notice.id}/{notice.version}/{name}",
                )
            )
        return found

    def retry_s(self, send: Send, now_s: float, after_s: float | None = None) -> float | None:
        """When to try again; None: it is given up. `after_s`: what the receiver asks for."""
        track = self._tracks[(send.notice.id, send.channel)]
        if track.first_try_s is not None and now_s - track.first_try_s > GIVE_UP_S:
            return None
        doubled_s = min(PAUSE_S_MAX, FIRST_PAUSE_S * 2.0 ** min(send.count - 1, 20))
        return now_s + max(doubled_s * (0.5 + self._dice()), after_s or 0.0)

    def next_s(self, now_s: float) -> float | None:
        """When something may be due; None: nothing waits."""
        waiting = [
            track.retry_at_s
            for (_, name), track in self._tracks.items()
            if not track.is_given_up and not track.is_in_flight and self._next(name, track) is not None
        ]
        return max(now_s, min(waiting)) if waiting else None

    def _next(self, name: str, track: _Track) -> Notice | None:
        """The version to send: the newest; of a receiver that cannot update, the next milestone."""
        if self._channels[name].can_update or not track.delivered:
            if track.notice.version <= track.delivered:
                return None
            return track.notice
        left = [one for one in track.milestones if one > track.delivered]
        return self._versions[(track.notice.id, name)][left[-1]] if left else None
