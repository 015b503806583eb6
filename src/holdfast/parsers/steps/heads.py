"""Parses rank and time in the text before a step. Pure; faster than `line_heads`, with fewer forms.

[default7]: ...   [rank3]:[titan] 2026-05-24 20:29:02,920 - root - INFO - ...   3: ...   [rank 2] Step: ...
[12/22 19:35:53] d2.utils.events ...    [HCTR][06:43:48.900][INFO][RK0][main]: ...    0: DLL 2025-04-26 05:02:56.45 - ...
"""

import re
from collections.abc import Sequence

from holdfast.late_pattern import late
from holdfast.parsers.log_lines.stamps import stamp_at

HEAD_BYTES_MAX = 400  # no prefix is longer
REMEMBERED_MAX = 4096
RANK = late(
    rb"\[rank\s?(\d{1,7})\]|\[(?:Rank|RANK|rank)[ :=](\d{1,7})\]|(?i:\brank)[:= ]\s?(\d{1,7})\b|^\s*(\d{1,6}): |\[RK(\d{1,6})\]"
    rb"|^\[\d+,(\d{1,6})\]<std|\[default(\d{1,4})\]:"
)
FULL = late(
    rb"((?:19|20)\d\d)([-/.])([01]?\d)\2([0-3]?\d)[ T_]([0-2]?\d:[0-5]\d):([0-6]\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
)
# Where a time stamp of another form may begin: a date or a time of day, after a bracket, a space or nothing.
PLACE = late(
    rb"(?:^|(?<=[\s\[|(:]))(?=\[?\d{1,2}[/:-]\d\d|[IWE]\d{4}|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)|1\d{9}\.)"
)
PLACES_MAX = 4


class Heads:
    """Parses prefixes of lines; caches day and minute of a time stamp, which the next lines share."""

    def __init__(self) -> None:
        self._minutes: dict[bytes, float] = {}
        self._ranks: dict[bytes, int | None] = {}

    def rank(self, head: bytes) -> int | None:
        """Returns the rank that wrote the line, from the first match; None if there is none."""
        head = head[:HEAD_BYTES_MAX]
        if not head or head.isspace():
            return None
        known = self._ranks.get(head, -1)
        if known != -1:
            return known
        found = None
        for match in RANK.finditer(head):
            found = int(match[match.lastindex or 0])
            if match.lastindex != 7:  # a local rank only where nothing better is said
                break
        if len(self._ranks) < REMEMBERED_MAX:
            self._ranks[head] = found
        return found

    def stamp_s(self, head: bytes) -> tuple[float, bool] | None:
        """Returns the last time stamp, in seconds, and whether it has sub-second precision; None if there is
        none.

        A repetition of an earlier stamp in the line does not count.
        """
        head = head[:HEAD_BYTES_MAX]
        match = FULL.search(head)
        if match is not None:
            minute = self._minute(match)
            if minute is not None:
                fraction = match[7]
                rest = int(match[6]) + (float(b"0." + fraction) if fraction else 0.0)
                return minute + rest, fraction is not None
        text = ""
        for count, place in enumerate(PLACE.finditer(head)):
            text = text or head.decode("latin-1")
            stamp = stamp_at(text, place.start())
            if stamp is not None and stamp.stamp_s is not None:
                return stamp.stamp_s, stamp.stamp_s != int(stamp.stamp_s)
            if count >= PLACES_MAX:
                break
        return None

    def stamps_s(self, texts: Sequence[bytes]) -> list[float] | None:
        """Returns the times of texts that consist of a time stamp; None if one does not, or has a zone."""
        minutes, found = self._minutes, []
        for text in texts:
            minute = minutes.get(text[:16])
            if minute is None or text[16:17] != b":":
                stamp = self.stamp_s(text)
                if stamp is None:
                    return None
                found.append(stamp[0])
                continue
            try:
                found.append(minute + float(text[17:].replace(b",", b".")))
            except ValueError:
                return None
        return found

    def _minute(self, match: re.Match[bytes]) -> float | None:
        key = match[0][: match.end(5) - match.start()] + (match[8] or b"")
        found = self._minutes.get(key)
        if found is None:
            stamp = stamp_at(
                f"{match[1].decode()}-{match[3].decode()}-{match[4].decode()} {match[5].decode()}:00"
                + (match[8] or b"").decode(),
                0,
            )
            if stamp is None or stamp.stamp_s is None:
                return None
            if len(self._minutes) >= REMEMBERED_MAX:
                self._minutes.clear()
            self._minutes[key] = found = stamp.stamp_s
        return found
