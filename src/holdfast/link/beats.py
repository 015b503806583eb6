"""Computes from heartbeats the offset of the other side's clock, and how long the other side has been silent. Pure.

A heartbeat carries its sender's time, the time of the last heartbeat that the sender received, and how long ago that
was. So each heartbeat completes a round trip: `rtt = now - echo - held`, and the other clock was at `sent + rtt / 2`
(as in NTP, RFC 5905, 8). The shortest round trip of the last minute is used, because it waited in no queue.
"""

import math
from collections import deque

from holdfast.link.messages import Beat

KEPT = 60


class Beats:
    """The heartbeats of one connection, and the clock offset that follows from them.

    `offset_s`: the other side's clock minus this side's, in seconds; None if unknown; initially that of an earlier
    connection.
    """

    def __init__(self, now_s: float, offset_s: float | None = None) -> None:
        self.offset_s = offset_s  # the other side's clock minus ours; None: not known yet
        self.heard_s = now_s
        self.sent_s = -math.inf
        self._echo_s = math.nan
        self._echo_at_s = math.nan
        self._trips: deque[tuple[float, float]] = deque(maxlen=KEPT)  # round trip, offset

    def heard(self, now_s: float) -> None:
        """Records when a message of the other side arrived. Any message, not only a heartbeat, shows that it
        lives.
        """
        self.heard_s = now_s

    def took(self, beat: Beat, now_s: float) -> None:
        self._echo_s, self._echo_at_s = beat.sent_s, now_s
        rtt_s = now_s - beat.echo_s - beat.held_s
        if 0 <= rtt_s < math.inf and math.isfinite(beat.sent_s):  # false for NaN too: no round trip yet
            self._trips.append((rtt_s, beat.sent_s + rtt_s / 2 - now_s))
            self.offset_s = min(self._trips)[1]  # here, not where it is asked for with each report

    def next(self, now_s: float) -> Beat:
        self.sent_s = now_s
        return Beat(now_s, self._echo_s, now_s - self._echo_at_s)
