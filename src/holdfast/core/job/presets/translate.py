"""Parses the argument of `--policy`, `NAME[:key=value,...]`, and translates it into a policy. Pure.

A setting without a counterpart becomes a note.
"""

import difflib
from collections.abc import Mapping

from holdfast.core.job.presets.preset import BadPreset, Given, Key, Preset, System, Value
from holdfast.core.job.presets.systems import SYSTEMS

YES = frozenset(("true", "yes", "on", "1"))
NO = frozenset(("false", "no", "off", "0"))


def translate(text: str) -> Preset:
    """Returns the preset for an argument of `--policy`: "modelarts",
    "modelarts:job-retry-num=3,hang-retry=true".

    raises: BadPreset
    """
    name, _, rest = text.strip().partition(":")
    system = SYSTEMS.get(name.strip().lower())
    if system is None:
        raise BadPreset(
            f"there is no preset {name!r}{_nearest(name.lower(), SYSTEMS)}; known: {', '.join(SYSTEMS)}"
        )
    given: dict[str, Value] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, value = _one(system, part)
        given[key.name] = value
    return system.translate(Given(system.keys, given))


def _one(system: System, part: str) -> tuple[Key, Value]:
    name, equals, raw = part.partition("=")
    key = _key(system, name.strip())
    if not equals:
        if key.kind != "yes":
            raise BadPreset(f"{system.name}: {key.name} needs a value: {key.name}={_range(key)}")
        return key, True
    return key, _value(system, key, raw.strip().strip("\"'"))


def _key(system: System, name: str) -> Key:
    """Returns the setting with this name, ignoring an annotation prefix, a parent section, and hyphens of a
    flag.

    raises: BadPreset
    """
    plain = _plain(name)
    for key in system.keys:
        if _plain(key.name) == plain:
            return key
    names = [key.name for key in system.keys]
    near = _nearest(plain, {_plain(known): known for known in names})
    raise BadPreset(f"{system.name} has no setting {name!r}{near}; known: {', '.join(names)}")


def _plain(name: str) -> str:
    return name.lstrip("-").rpartition("/")[2].rpartition(".")[2].lower().replace("_", "-")


def _nearest(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    if not close:
        return ""
    value = known[close[0]]
    return f" (did you mean {value if isinstance(value, str) else close[0]}?)"


def _value(system: System, key: Key, raw: str) -> Value:
    match key.kind:
        case "yes":
            if raw.lower() in YES or raw.lower() in NO:
                return raw.lower() in YES
        case "text":
            found = [word for word in key.words if word.lower() == raw.lower()]
            if found or not key.words:
                return found[0] if found else raw
        case _:
            number = _number(raw, key)
            if number is not None:
                return number
    raise BadPreset(f"{system.name}: {key.name} cannot be {raw!r}: {_range(key)} is allowed")


def _number(raw: str, key: Key) -> int | float | None:
    try:
        number = int(raw) if key.kind == "whole" else float(raw)
    except ValueError:
        return None
    return number if key.low <= number <= key.high else None


def _range(key: Key) -> str:
    match key.kind:
        case "yes":
            return "true or false"
        case "text":
            return " or ".join(key.words) or "a text"
        case "whole":
            return f"{key.low:g} to {key.high:g}"
        case kind:
            return f"{key.low:g} to {key.high:g} ({kind})"
