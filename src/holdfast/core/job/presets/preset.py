"""Describes a system's settings and the policy that they translate to. Pure."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from holdfast.model.policy import Policy

RESTARTS_MAX = 128

Value = int | float | bool | str | None


class BadPreset(ValueError):
    """The text after --policy is not valid; the message says why, and what is allowed."""


class Key(Struct, frozen=True, kw_only=True):
    """One setting of a system. `kind`: whole, seconds, minutes, ratio, yes or text. `low`, `high`: the range of numbers.

    `default`: as its documents say; None: off, or not documented.
    """

    name: str
    kind: str
    meaning: str
    default: Value = None
    low: float = 0
    high: float = 0
    words: tuple[str, ...] = ()  # the allowed values of a text; empty: any


class Preset(Struct, frozen=True, kw_only=True):
    """`fields`: names of the settings that the preset decides, of Policy and of the two fields below."""

    policy: Policy
    fields: frozenset[str]
    notes: tuple[str, ...] = ()
    platform_hang_min: float | None = None
    termination_wait_s: float | None = None


class Given:
    """The values given for one system; its defaults apply to the rest."""

    def __init__(self, keys: tuple[Key, ...], values: Mapping[str, Value]) -> None:
        self.values = values
        self._defaults = {key.name: key.default for key in keys}

    def whole(self, name: str) -> int | None:
        value = self.values.get(name, self._defaults[name])
        return None if value is None else int(value)

    def number(self, name: str) -> float | None:
        value = self.values.get(name, self._defaults[name])
        return None if value is None else float(value)

    def yes(self, name: str) -> bool:
        return bool(self.values.get(name, self._defaults[name]))

    def text(self, name: str) -> str:
        return str(self.values.get(name, self._defaults[name]) or "")


class System(Struct, frozen=True, kw_only=True):
    name: str
    who: str
    keys: tuple[Key, ...]
    translate: Callable[[Given], Preset]


def preset(policy: dict[str, Value], notes: list[str], **beside: float | None) -> Preset:
    """The preset decides every field named here, even if the value equals the default."""
    return Preset(
        policy=replace(Policy(), **policy), fields=frozenset((*policy, *beside)), notes=tuple(notes), **beside
    )


def notes_given(given: Given, notes: dict[str, str]) -> list[str]:
    """The notes of those settings that were given."""
    return [f"{name}: {text}" for name, text in notes.items() if name in given.values]
