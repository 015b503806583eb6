"""Loads published figures of other fleets: failure rates, repair times, kinds of failures, policies."""

import tomllib
from functools import cache
from importlib.resources import files

import msgspec
from msgspec import Struct

FOLDER = "fleet_figures"
DEFAULT_RATE = "llama-3"  # the median of the published rates; used for a fleet without a record


class Rate(Struct, frozen=True, kw_only=True):
    """A published failure rate, with its source."""

    per_1000_node_days: float
    source: str


class Repairs(Struct, frozen=True, kw_only=True):
    """Repair times of nodes. `quantiles_h`: hours at equally spaced quantiles, ascending."""

    quantiles_h: tuple[float, ...]
    mean_h: float
    repeated_within_week: float


class Mix(Struct, frozen=True, kw_only=True):
    """Shares of all interruptions by kind; they add up to 1."""

    device: float = 0.0
    node: float = 0.0
    software: float = 0.0
    hang: float = 0.0
    switch: float = 0.0


class Slow(Struct, frozen=True, kw_only=True):
    """How often, how long and how much a node is slow without an interruption."""

    per_week: float = 0.0
    minutes: float = 0.0
    ratio: float = 1.0


@cache
def rates() -> dict[str, Rate]:
    return msgspec.convert(_read("rates.toml"), dict[str, Rate])


@cache
def repairs() -> Repairs:
    return msgspec.convert(_read("repairs.toml"), Repairs)


@cache
def mix() -> Mix:
    return msgspec.convert(_read("mix.toml")["llama-3"], Mix)


@cache
def slow() -> Slow:
    return msgspec.convert(_read("mix.toml")["slow"], Slow)


def _read(name: str) -> dict[str, object]:
    return tomllib.loads(files("holdfast").joinpath(FOLDER, name).read_text(encoding="utf-8"))
