"""Describes a system's settings and the policy that they translate to. Pure."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from holdfast.model.policy import Policy

RESTARTS_MAX = 128

Value = int | float | bool | str | None


class BadPreset(ValueError):
    """The text after --policy cannot be understood; the text of the error says why and what would do."""


class Key(Struct, frozen=True, kw_only=True):
    """One setting of a system. `kind`: whole, seconds, minutes, yes or text. `low`, `high`: the range of numbers.

    `default`: what its documents say; None: off, or not said.
    """

    name: str
    kind: str
    meaning: str
    default: Value = None
    low: float = 0
    high: float = 0
    words: tuple[str, ...] = ()  # of a text: the only ones allowed


class Preset(Struct, frozen=True, kw_only=True):
    """`fields` names the settings that the preset decides: fields of Policy, and the two kept beside it here."""

    policy: Policy
    fields: frozenset[str]
    notes: tuple[str, ...] = ()
    platform_hang_min: float | None = None
    termination_wait_s: float | None = None


class Given:
    """The values given for one system, with its defaults behind them."""

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
    """Every field named is decided by the preset, also where it says what the default says."""
    return Preset(
        policy=replace(Policy(), **policy), fields=frozenset((*policy, *beside)), notes=tuple(notes), **beside
    )


def notes_given(given: Given, notes: dict[str, str]) -> list[str]:
    """The notes of those settings that were given."""
    return [f"{name}: {text}" for name, text in notes.items() if name in given.values]
