"""Defines the settings of another system, and the policy that they are translated to. Pure."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from holdfast.model.policy import Policy

RESTARTS_MAX = 128

Value = int | float | bool | str | None


class BadPreset(ValueError):
    """Raised for an invalid argument of `--policy`; the message says why, and what is allowed."""


class Key(Struct, frozen=True, kw_only=True):
    """A fault-tolerance setting of another system, which `--policy` accepts.

    `kind`: whole (an integer), seconds, minutes, ratio, yes (a boolean) or text. `low`, `high`: the range of
    a number. `default`: the documented default; None if it is off or not documented.
    """

    name: str
    kind: str
    meaning: str
    default: Value = None
    low: float = 0
    high: float = 0
    words: tuple[str, ...] = ()  # the allowed values of a text; empty: any


class Preset(Struct, frozen=True, kw_only=True):
    """A policy translated from the settings of another system.

    `fields`: names of the settings that it determines, of Policy and of the two fields below. `notes`: what
    was not translated, for people.
    """

    policy: Policy
    fields: frozenset[str]
    notes: tuple[str, ...] = ()
    platform_hang_min: float | None = None
    termination_wait_s: float | None = None


class Given:
    """The values that a user gave for the settings of one system; the documented defaults apply
    to the rest.
    """

    def __init__(self, keys: tuple[Key, ...], values: Mapping[str, Value]) -> None:
        self.values = values
        self._defaults = {key.name: key.default for key in keys}

    def whole(self, name: str) -> int | None:
        """Returns the value of a setting as an integer; None if it has neither a value nor a default."""
        value = self.values.get(name, self._defaults[name])
        return None if value is None else int(value)

    def number(self, name: str) -> float | None:
        """Returns the value of a setting as a float; None if it has neither a value nor a default."""
        value = self.values.get(name, self._defaults[name])
        return None if value is None else float(value)

    def yes(self, name: str) -> bool:
        """Returns the value of a boolean setting."""
        return bool(self.values.get(name, self._defaults[name]))

    def text(self, name: str) -> str:
        """Returns the value of a setting as text; empty if it has neither a value nor a default."""
        return str(self.values.get(name, self._defaults[name]) or "")


class System(Struct, frozen=True, kw_only=True):
    """A training platform whose fault-tolerance settings are known.

    `translate`: makes a policy of their values.
    """

    name: str
    who: str
    keys: tuple[Key, ...]
    translate: Callable[[Given], Preset]


def preset(policy: dict[str, Value], notes: list[str], **beside: float | None) -> Preset:
    """Returns a preset that sets the given fields of the policy, even if a value equals Holdfast's default."""
    return Preset(
        policy=replace(Policy(), **policy), fields=frozenset((*policy, *beside)), notes=tuple(notes), **beside
    )


def notes_given(given: Given, notes: dict[str, str]) -> list[str]:
    """Returns the notes on those settings of another program that the user gave."""
    return [f"{name}: {text}" for name, text in notes.items() if name in given.values]
