"""Measures pairs of nodes for `holdfast check --nodes A,B,C`."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.checks.training_python.pairs import ROUND_S, Done, PairRun, Settings
from holdfast.core.checks.pairs.results import Limits, Round, Verdict
from holdfast.core.checks.pairs.verdict import verdict
from holdfast.core.checks.pairs.words import CHECK, node_outcomes
from holdfast.core.plurals import counted
from holdfast.model.checks import Baseline, NodeChecks, Spec
from holdfast.settings.times import NotATime, seconds

NODES_MAX = 1024
ROUNDS_MAX = 64
SIZE_MIN, SIZE_MAX = 4, 8 << 30
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "B": 1}
_KEYS = ("python", "spares", "rounds", "sizes", "round-timeout")


class BadOption(ValueError):
    """Raised when an option `comm-pairs.KEY=VALUE` is invalid. The message says which and why."""


def wants_pairs(specs: Sequence[Spec]) -> bool:
    """Returns True if the checks include the measurement of node pairs."""
    return any(spec.name == CHECK for spec in specs)


def wants_only_pairs(only: Sequence[str]) -> bool:
    """Returns True if the measurement of node pairs is the only check selected with --only."""
    return set(only) == {CHECK}


def check_pairs(
    nodes: Sequence[str],
    via: str,
    within_s: float,
    options: Mapping[str, str],
    known: Baseline | None = None,
    on_answer: Callable[[NodeChecks], None] | None = None,
) -> tuple[NodeChecks, ...]:
    """Measures compute and network speed of pairs of nodes, and returns the results in the order of `nodes`. Raises
    BadVia and BadOption.

    `via`: template of the command that reaches a node. `within_s`: time limit of all measurements. `options`: options
    of all checks, of which this one reads its own. `on_answer`: called with each result.
    """
    settings, spares = _settings(via, within_s, options)
    if len(nodes) + len(spares) > NODES_MAX:
        raise BadOption(
            f"pair measurements support at most {NODES_MAX} nodes, not {len(nodes) + len(spares)}"
        )
    began_s = time.monotonic()
    run = PairRun(nodes, settings, spares, _usual(known))

    def tell(number: int, chosen: Round) -> None:
        if on_answer is not None:
            on_answer(NodeChecks(node=f"{CHECK}: round {number + 1}, {counted(len(chosen.pairs), 'pair')}"))

    done = run.run(tell)
    found = verdict(done.measured, settings.limits)
    return answers_of(done, found, time.monotonic() - began_s)


def answers_of(done: Done, found: Verdict, took_s: float) -> tuple[NodeChecks, ...]:
    """Returns the check results of each measured node, and of each spare that is at fault."""
    blamed = {node for blame in found.blames for node in blame.nodes}
    nodes = (*done.measured.nodes, *(node for node in done.measured.spares if node in blamed))
    measured = msgspec.structs.replace(done.measured, nodes=tuple(dict.fromkeys(nodes)))
    return node_outcomes(measured, found, late=done.late, seconds=took_s)


def with_pairs(answers: Sequence[NodeChecks], pairs: Sequence[NodeChecks]) -> tuple[NodeChecks, ...]:
    """Returns the nodes' check results with the pair measurement added."""
    by_node = {one.node: one for one in pairs}
    joined = [
        msgspec.structs.replace(
            answer,
            outcomes=(
                *(outcome for outcome in answer.outcomes if outcome.check != CHECK),
                *by_node.pop(answer.node, NodeChecks(node="")).outcomes,
            ),
        )
        for answer in answers
    ]
    return (*joined, *by_node.values())


def _usual(known: Baseline | None) -> dict[str, dict[str, float]]:
    """Returns the expected values of the baseline by kind of nodes; empty without a baseline."""
    if known is None:
        return {}
    return {
        device.partition(":")[2]: {
            name: float(value)
            for name, value in known.facts[device].items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        for device in known.devices("pairs")
    }


def _settings(via: str, within_s: float, options: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
    own = {
        name.removeprefix(f"{CHECK}."): value
        for name, value in options.items()
        if name.startswith(f"{CHECK}.")
    }
    for key in own:
        if key not in _KEYS:
            raise BadOption(f"{CHECK}.{key} is not an option; options are {', '.join(_KEYS)}")
    limits = Limits()
    if "rounds" in own:
        rounds = _whole(own["rounds"], "rounds", ROUNDS_MAX)
        limits = Limits(rounds_min=rounds, rounds_max=rounds)
    settings = Settings(
        via=via,
        python=own.get("python") or sys.executable,
        within_s=within_s,
        sizes=_sizes(own.get("sizes", "")),
        limits=limits,
        round_s=_time(own["round-timeout"]) if "round-timeout" in own else ROUND_S,
    )
    spares = tuple(name.strip() for name in own.get("spares", "").split(",") if name.strip())
    return settings, spares


def _whole(text: str, key: str, most: int) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) <= most:
        return int(text)
    raise BadOption(f"{CHECK}.{key}={text}: it must be a whole number from 1 to {most}")


def _time(text: str) -> float:
    try:
        return seconds(text)
    except NotATime as error:
        raise BadOption(f"{CHECK}.round-timeout: {error}") from error


def _sizes(text: str) -> tuple[int, ...]:
    """Parses message sizes, ascending: (1024, 8388608) for `1KiB,8MiB`. Raises BadOption."""
    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        unit = next((name for name in _UNITS if word.endswith(name)), "")
        number = word.removesuffix(unit)
        is_whole = bool(unit) and number.isascii() and number.isdigit() and len(number) < 12
        if not is_whole or not SIZE_MIN <= int(number) * _UNITS[unit] <= SIZE_MAX:
            raise BadOption(f"{CHECK}.sizes: {word!r} is not a size from 4B to 8GiB, such as 8MiB")
        found.append(int(number) * _UNITS[unit])
    return tuple(sorted(set(found)))
