"""Parses and formats values of settings, and describes what is valid. Pure."""

import re

from holdfast.settings.table import Setting, Value
from holdfast.settings.times import NotATime, length, seconds

YES = frozenset(("true", "yes", "on", "1"))


NO = frozenset(("false", "no", "off", "0"))

_HOST = r"(?:\[[0-9A-Fa-f:.%a-z]+\]|[\w.-]+)"
_ADDRESS = re.compile(rf"(?:{_HOST})?:(?P<port>\d{{1,5}})")
_URL = re.compile(rf"https?://{_HOST}(?::(?P<port>\d{{1,5}}))?(?:/[\w./~%-]*)?")


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?b)?")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
LABELS_MAX = 64
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}=[^\x00-\x1f]{0,255}")


class BadValue(ValueError):
    """Raised when a value is invalid for its setting. The message says what is valid."""


def read(setting: Setting, raw: object) -> Value:
    """Parses the text of a setting from a flag, the environment or a file. Raises BadValue."""
    text = raw.strip() if isinstance(raw, str) else raw
    if setting.word and isinstance(text, str) and text.lower() == setting.word:
        return None
    match setting.kind:
        case "yes":
            return _yes(setting, text)
        case "whole":
            return _whole(setting, text)
        case "length":
            return _length(setting, text)
        case "size":
            return _size(setting, text)
        case "texts":
            return _texts(setting, text)
        case "labels":
            return _labels(setting, text)
        case "choice":
            return _choice(setting, text)
        case "address" | "url":
            return _place(setting, text)
        case _:
            if isinstance(text, str) and text:
                return text
            raise _bad(setting, raw)


def read_foreign(setting: Setting, raw: str) -> Value:
    """Parses the value of a platform's environment variable (see Foreign), a number without unit. Raises
    BadValue.
    """
    foreign = setting.foreign
    assert foreign is not None, "only asked for settings with a foreign name"
    try:
        number = float(raw)
    except ValueError:
        number = float("nan")
    if number == foreign.nothing:
        return None
    low, high = setting.low / foreign.unit_s, setting.high / foreign.unit_s
    if low <= number <= high:
        return number * foreign.unit_s / setting.scale
    nothing = f", or {foreign.nothing:g}" if foreign.nothing is not None else ""
    raise BadValue(f"cannot be {raw!r}; allowed: {low:g} to {high:g}{nothing}")


def spelled(setting: Setting, value: Value) -> str:
    """Formats a value as it is written in files and flags."""
    match value:
        case None:
            return setting.word
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case int() | float() if setting.kind == "length":
            return length(value * setting.scale)
        case int() if setting.kind == "size":
            return exact_size(value)
        case _:
            return str(value)


def allowed(setting: Setting) -> str:
    """Returns the valid values in words: `1 to 128, or none`."""
    words = {
        "yes": "true or false",
        "text": "a text",
        "choice": " or ".join(filter(None, (", ".join(setting.choices[:-1]), *setting.choices[-1:]))),
        "texts": "comma-separated texts",
        "labels": f"at most {LABELS_MAX} KEY=VALUE with commas between",
        "path": "a path",
        "address": "HOST:PORT",
        "url": "http://HOST:PORT",
        "whole": f"{setting.low:.0f} to {setting.high:.0f}",
        "size": f"{exact_size(int(setting.low))} to {exact_size(int(setting.high))}",
        "length": f"{length(setting.low)} to {length(setting.high)}",
    }[setting.kind]
    return f"{words}, or {setting.word}" if setting.word else words


def _bad(setting: Setting, raw: object) -> BadValue:
    return BadValue(f"cannot be {raw!r}; allowed: {allowed(setting)}")


def _yes(setting: Setting, raw: object) -> bool:
    word = str(raw).lower()
    if word not in YES and word not in NO:
        raise _bad(setting, raw)
    return word in YES


def _choice(setting: Setting, raw: object) -> str:
    word = str(raw).lower()
    if word not in setting.choices:
        raise _bad(setting, raw)
    return word


def _whole(setting: Setting, raw: object) -> int:
    try:
        number = int(raw) if isinstance(raw, str) else raw
    except ValueError:
        raise _bad(setting, raw) from None
    if isinstance(number, bool) or not isinstance(number, int) or not setting.low <= number <= setting.high:
        raise _bad(setting, raw)
    return number


def _length(setting: Setting, raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise _bad(setting, raw)
    try:
        value_s = seconds(str(raw))
    except NotATime as error:
        raise BadValue(f"cannot be read: {error}; allowed: {allowed(setting)}") from error
    if not setting.low <= value_s <= setting.high:
        raise _bad(setting, raw)
    return value_s / setting.scale


def _size(setting: Setting, raw: object) -> int:
    """Parses `20GiB` or `20G` (of 1024) and `20GB` (of 1000). A bare number has no unit and is refused."""
    found = _SIZE.fullmatch(raw.lower()) if isinstance(raw, str) else None
    if found is None or not (found[2] or found[3]):
        raise _bad(setting, raw)
    unit = float((1000 if found[3] == "b" else 1024) ** _POWERS[found[2]])
    value = round(float(found[1]) * unit)
    if not setting.low <= value <= setting.high:
        raise _bad(setting, raw)
    return value


def exact_size(value: int) -> str:
    """Formats a number of bytes in the largest unit that divides it: `20GiB`, `1536MiB`."""
    for unit in ("PiB", "TiB", "GiB", "MiB", "KiB"):
        whole, rest = divmod(value, 1 << 10 * _POWERS[unit[0].lower()])
        if whole and not rest:
            return f"{whole}{unit}"
    return f"{value}B"


def _texts(setting: Setting, raw: object) -> tuple[str, ...]:
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise _bad(setting, raw)
    return tuple(part.strip() for part in parts if part.strip())


def _labels(setting: Setting, raw: object) -> tuple[str, ...]:
    found = _texts(setting, raw)
    if len(found) > LABELS_MAX or not all(map(_LABEL.fullmatch, found)):
        raise _bad(setting, raw)
    return found


def _place(setting: Setting, raw: object) -> str:
    """Parses HOST:PORT, or a URL without a password, because settings are stored in the journal.

    Raises BadValue.
    """
    pattern = _ADDRESS if setting.kind == "address" else _URL
    if (
        not isinstance(raw, str)
        or not (found := pattern.fullmatch(raw))
        or int(found["port"] or 0) >= 1 << 16
    ):
        raise _bad(setting, raw)
    return raw
