"""Parses the time stamp at a given position of a line. Pure, and never raises on its input.

    2026-11-20 21:45:36,123      2026-11-20T21:45:36.1+01:00   [2026-11-20 21:45:36.12]   11/20/2026 21:45:36
    Nov 20 21:45:36              Nov 20 2026 21:45:36          [Fri Nov 20 21:45:36 2026]
    W1120 21:45:36.003000        [E724 08:34:00.939 ...        I20261120 21:45:36.1       INFO 11-20 21:45:36
    [   12.345678]               [123456.789][  T12]           1795211136.123456          21:45:36

A stamp without a zone is read as UTC. One without a year gets the year that brings it nearest to `near_s`,
and one without a date its day; if `near_s` is unknown, they get the years 2000 and 1990, far from each other
and from real ones: stamps of one form can be compared with each other, and never by chance with others.

source: glog and absl, RawLog; Linux, kernel/printk/printk.c; dmesg(1); RFC 3164; Ascend plog
"""

import re

from msgspec import Struct

from holdfast.late_pattern import late
from holdfast.model.matches import DAY_UNKNOWN_S, YEAR_UNKNOWN

DAY_S = 86400
MONTHS = {
    name: number
    for number, name in enumerate("JanFebMarAprMayJunJulAugSepOctNovDec"[i : i + 3] for i in range(0, 36, 3))
}
# As journalctl and dmesg write them in other languages (glibc 2.36, localedata, `abmon`): German, French, Spanish, Italian,
# Portuguese, Dutch, Polish, Czech, Slovak, Hungarian, Romanian, Swedish, Norwegian, Finnish, Turkish, Greek, Russian,
# Ukrainian and Bulgarian. Croatian gives three of these names to other months, so it is left out.
FOREIGN_MONTHS = (
    "jan janv ene gen ian led sty tammi Oca Ιαν січ янв яну",
    "feb febr fev févr helmi lut úno Şub Φεβ лют фев",
    "mar mars mrt Mär bře maalis márc Μαρ Μάρ бер мар",
    "apr april avril abr ápr dub huhti kwi Nis Απρ апр кві",
    "mai Mai mag maj máj may mei kvě touko Μαΐ Μάι май мая тра",
    "jun juin juni jún cze čen giu iun kesä Haz Ιουν Ιούν июн июня чер юни",
    "jul juil juli júl čec heinä iul lip lug Tem Ιουλ Ιούλ июл июля лип юли",
    "aug ago août elo sie srp Ağu Αυγ Αύγ авг сер",
    "sep sept set szept syys wrz zář Eyl Σεπ вер сен сеп",
    "okt Okt oct loka ott out paź říj Eki Οκτ жов окт",
    "nov lis marras Kas Νοε Νοέ лис ноя ное",
    "dec Dez dez des dic déc gru joulu pro Ara Δεκ гру дек",
)


def _spellings(text: str) -> tuple[str, str]:
    """Returns the text, and its UTF-8 with a character for each byte, as heads of lines are read."""
    return text, text.encode().decode("latin-1")


MONTHS |= {
    spelled: number
    for number, names in enumerate(FOREIGN_MONTHS)
    for name in names.split()
    for spelled in _spellings(name)
}
DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

DIGITS = "0123456789"
GLOG_LEVELS = "IWEFCDV"
MONTH_INITIALS = "".join(sorted({name[0] for name in MONTHS} | set("MTWFS")))  # and of weekdays
ENGLISH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
FOREIGN = "|".join(sorted(MONTHS.keys() - ENGLISH.split("|")))
MONTH = rf"(?P<name>{ENGLISH})"
CLOCK = r"(?P<h>[0-2]?\d):(?P<m>[0-5]\d):(?P<s>[0-6]\d)(?:[.,](?P<frac>\d{1,9})(?:\.(?P<micro>\d{3}))?)?(?!\d|:\d)"
HALF = r"(?: (?P<half>[AP]M))?"
ZONE = r"(?P<zone>Z| ?[+-]\d\d:?\d\d(?!\d)| UTC| GMT)?"
WEEKDAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +"
MONTH_SIGNS = "|".join(
    spelled for sign in "月월" for spelled in _spellings(sign)
)  # Chinese, Japanese, Korean
NUMBERED_MONTH = rf"(?P<numbered>1[0-2]|[1-9])(?:{MONTH_SIGNS})"
EPOCH = r"(?P<epoch>1\d{9}\.\d{1,9})"

# By the first character, after a "[" if there is one. Tried in this order.
DIGIT_FORMS = tuple(
    late(form, re.ASCII)
    for form in (
        r"(?P<year>[12]\d{3})[-/.](?P<month>[01]?\d)[-/.](?P<day>[0-3]?\d)[T _-]{1,2}" + CLOCK + HALF + ZONE,
        r"(?P<month>[0-3]?\d)/(?P<day>[0-3]?\d)/(?P<year>[12]\d{3}|\d\d)[ -]" + CLOCK + HALF + ZONE,
        r"(?P<month>[01]\d)[-/](?P<day>[0-3]\d) " + CLOCK,
        r"(?=\d\d)" + CLOCK + r"(?=[\]\s,|:]|$)",  # "1:02:03" and "[15:02:33<05:08" are durations
        EPOCH,
        rf"(?P<day>[0-3]\d) {MONTH},? (?:(?P<year>[12]\d{{3}}),? )?{CLOCK}",
        rf"{NUMBERED_MONTH} +(?P<day>[0-3]?\d) {CLOCK}",
    )
)
MONTH_FORMS = tuple(
    late(form, re.ASCII)
    for form in (
        rf"(?:{WEEKDAY})?{MONTH} +(?P<day>[0-3]?\d),? (?:(?P<before>[12]\d{{3}}) )?{CLOCK}{HALF}"
        r"(?:(?: [A-Z]{3,4})? (?P<year>[12]\d{3}))?" + ZONE,
        rf"{MONTH}(?P<day>[0-3]\d) (?P<h>[0-2]\d):(?P<m>[0-5]\d)(?=\])",
        rf"(?P<name>{FOREIGN})\.? +(?P<day>[0-3]?\d) {CLOCK}",
    )
)
# dmesg -T: "[Sa Mai 11 10:22:17 2024]", "[六 5月 11 10:22:17 2024]".
FOREIGN_DATE = late(
    rf"[^\s\[\]:]{{1,12}},? +(?:{NUMBERED_MONTH}|(?P<name>{ENGLISH}|{FOREIGN})\.?) +(?P<day>[0-3]?\d) {CLOCK}"
    r"(?: (?P<year>[12]\d{3}))?(?=\])",
    re.ASCII,
)
GLOG_FORMS = tuple(
    late(form, re.ASCII)
    for form in (
        rf"[IWEFCDV](?P<year>[12]\d{{3}})(?P<month>[01]\d)(?P<day>[0-3]\d) {CLOCK}",
        rf"[IWEFCDV](?P<month>1[0-2]|0?\d)(?P<day>[0-3]\d) {CLOCK}",
        rf"[IWEFCDV]\d{{4}} 00:00:{EPOCH}",
    )
)
# Whole seconds only before a space: "[1]:" is a counter.
UPTIME = late(r"\[ {0,6}(?P<up>\d{1,9}\.\d{1,9}|\d{1,12}(?=\] ))\](?:\[ *[TC]\d{1,9}\])?", re.ASCII)
UPTIME_DELTA = late(r"\[ {0,6}[<+] *[+\d.]{1,20}>?\]", re.ASCII)


class Stamp(Struct, frozen=True, kw_only=True):
    """A time stamp, and the offset after it.

    Both times None: one without information, such as dmesg's deltas.
    `is_syslog`: begins with the name of a month, or with a day and such a name. A host and a program follow.
    """

    stamp_s: float | None = None
    uptime_s: float | None = None
    end: int
    is_syslog: bool = False


def stamp_at(text: str, place: int, near_s: float | None = None) -> Stamp | None:
    """Returns the time stamp that begins at `place`, including its brackets and one space after it; None if
    there is none.
    """
    is_bracketed = text.startswith("[", place)
    if is_bracketed:
        if up := UPTIME.match(text, place):
            return _uptime(up, text)
        if delta := UPTIME_DELTA.match(text, place):
            return Stamp(end=_behind(text, delta.end(), is_bracketed=False))
    forms = _forms(text[place + is_bracketed : place + is_bracketed + 2])
    for form in (*forms, FOREIGN_DATE) if is_bracketed else forms:
        if (match := form.match(text, place + is_bracketed)) and (
            found := _seconds(match, near_s)
        ) is not None:
            return Stamp(
                stamp_s=found,
                end=_behind(text, match.end(), is_bracketed=is_bracketed),
                is_syslog=not is_bracketed and 0 <= _month_at(match) - place <= len("27 "),
            )
    return None


def _month_at(match: re.Match[str]) -> int:
    """Returns the offset of the month's name; -1 if the month has none."""
    groups = match.re.groupindex.keys() & {"name", "numbered"}
    return max((match.start(group) for group in groups), default=-1)


def _forms(begin: str) -> tuple[re.Pattern[str], ...]:
    """Returns the patterns that can match text with this beginning; most text is no time stamp."""
    if begin[:1] in DIGITS:
        return DIGIT_FORMS if begin else ()
    if begin[1:] in DIGITS:
        return GLOG_FORMS if begin[1:] and begin[0] in GLOG_LEVELS else ()
    return MONTH_FORMS if begin[0] in MONTH_INITIALS else ()


def _behind(text: str, end: int, *, is_bracketed: bool) -> int:
    if is_bracketed and text[end : end + 1] == "]":
        end += 1
    return end + (text[end : end + 1] in (" ", "\t"))


def _uptime(up: re.Match[str], text: str) -> Stamp:
    value = float(up["up"])
    end = _behind(text, up.end(), is_bracketed=False)
    # As uptime this would be 31 years: UCX and journalctl -o short-unix write seconds since the epoch.
    return Stamp(stamp_s=value, end=end) if value >= 1e9 else Stamp(uptime_s=value, end=end)


def _seconds(match: re.Match[str], near_s: float | None) -> float | None:
    part = match.groupdict()
    if epoch := part.get("epoch"):
        return float(epoch)
    name = part.get("name")
    month = MONTHS[name] + 1 if name else int(part.get("numbered") or part.get("month") or 0)
    day = int(part.get("day") or 0)
    if not name and "year" in part and "/" in match[0] and month > 12 >= day:
        month, day = day, month  # 20/11/2026
    clock_s = _clock_s(part)
    if clock_s is None:
        return None
    if month == 0 and day == 0:
        return (DAY_UNKNOWN_S if near_s is None else near_s // DAY_S * DAY_S) + clock_s
    if not 1 <= month <= 12 or not 1 <= day <= DAYS[month - 1]:
        return None
    clock_s -= _zone_s(part.get("zone"))
    year = part.get("year") or part.get("before")
    if year:
        whole = int(year) + 2000 if len(year) == 2 else int(year)
        return _days(whole, month, day) * DAY_S + clock_s
    return _nearest(month, day, clock_s, near_s)


def _clock_s(part: dict[str, str | None]) -> float | None:
    """Returns the seconds since midnight; None for an invalid time of day."""
    hour = int(part["h"] or 0)
    if half := part.get("half"):
        hour = hour % 12 + 12 * (half == "PM")
    if hour > 23:
        return None
    fraction = float(f"0.{part.get('frac') or 0}{part.get('micro') or ''}")
    return hour * 3600 + int(part["m"] or 0) * 60 + int(part.get("s") or 0) + fraction


def _nearest(month: int, day: int, clock_s: float, near_s: float | None) -> float:
    if near_s is None:
        return _days(YEAR_UNKNOWN, month, day) * DAY_S + clock_s
    year = 1970 + int(near_s // (365.2425 * DAY_S))
    around = [_days(one, month, day) * DAY_S + clock_s for one in (year - 1, year, year + 1)]
    return min(around, key=lambda stamp_s: abs(stamp_s - near_s))


def _zone_s(zone: str | None) -> int:
    digits = re.sub(r"\D", "", zone or "")
    if len(digits) != 4:
        return 0
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if "-" in (zone or "") else seconds


def _days(year: int, month: int, day: int) -> int:
    """Returns the days since 1970 of a date of the Gregorian calendar.

    Internally the year begins in March.
    """
    year -= month <= 2
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + of_year - 719468
