"""Parses and formats durations with units, points in time, and timestamps with seconds.

Never reads the clock: the caller passes the current time.
"""

import re
from datetime import datetime
from math import isfinite

_UNITS_S = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?")
MOMENTS = "2026-01-01 15:19:58, 15:19:58 (today), 10min ago, or seconds since the epoch"


class NotATime(ValueError):
    """Raised when a text is no valid duration or time. The message says what is valid."""


def seconds(text: str) -> float:
    """Parses a duration such as `90s`, `10min`, `1h30min`, `1.5h`, `250ms` or `2d` into seconds.

    Raises NotATime.
    """
    plain = text.strip().lower()
    if _NUMBER.fullmatch(plain):
        number = plain.removesuffix(".").lstrip("-")
        raise NotATime(f"{text.strip()!r} has no unit: write {number}s or {number}min")
    parts = _PART.findall(plain) if _WHOLE.fullmatch(plain) else []
    if not parts or any(unit not in _UNITS_S for _, unit in parts):
        raise NotATime(f"{text.strip()!r} is not a duration: write it like 90s, 10min or 1h30min")
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def length(value_s: float) -> str:
    """Formats a duration in the shortest exact way: `1min30s` for 90 seconds, `1d` for 86400."""
    if value_s != int(value_s):
        return f"{value_s:g}s"
    rest, parts = int(value_s), list[str]()
    for unit, unit_s in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, unit_s)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def duration(value_s: float | None, unknown: str = "unknown") -> str:
    """Formats a step time with three significant digits: `12.3 µs`, `431 ms`, `3.10 s`, `12min5s`."""
    if value_s is None or not isfinite(value_s):
        return unknown
    if 0 < value_s < 0.9995e-3:
        return f"{three_figures(value_s * 1e6)} µs"
    if value_s < 0.9995:
        return f"{three_figures(value_s * 1000)} ms"
    if value_s < 599.5:
        return f"{three_figures(value_s)} s"
    return length(round(value_s))


def three_figures(value: float) -> str:
    """Formats a number with three significant digits and without an exponent."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def moment(text: str, now_s: float) -> float:
    """Parses a point in time into seconds since the epoch; local time unless a time zone is given.

    Raises NotATime.

    Forms: `2026-01-01 15:19:58`, ISO 8601 with a zone, `15:19:58` (today), `10min ago` or `-10min`, seconds
    since the epoch.
    """
    plain = text.strip()
    if _NUMBER.fullmatch(plain):
        return float(plain)
    ago = (
        plain.removesuffix("ago")
        if plain.endswith("ago")
        else plain.removeprefix("-")
        if plain[:1] == "-"
        else ""
    )
    if ago:
        return now_s - seconds(ago)
    clock = _CLOCK.fullmatch(plain)
    try:
        if clock:
            day = datetime.fromtimestamp(now_s).astimezone().date()
            hours, minutes, rest = clock.groups()
            plain = f"{day}T{int(hours):02}:{minutes}:{rest or '00'}"
        found = datetime.fromisoformat(plain)
    except ValueError as error:
        raise NotATime(f"{text.strip()!r} is not a time: write it like {MOMENTS}") from error
    return (found if found.tzinfo else found.astimezone()).timestamp()


def stamp(at_s: float) -> str:
    """Formats a time as local time with seconds: `2026-01-01 15:19:58`."""
    return f"{datetime.fromtimestamp(int(at_s)).astimezone():%Y-%m-%d %H:%M:%S}"
