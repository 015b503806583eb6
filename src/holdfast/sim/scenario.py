"""Parses scenarios (YAML): a simulated cluster, a policy and faults.

    cluster: {workers: 4, spares: 1, devices_per_node: 8}
    policy: {max_restarts: 8, hang_timeout: 10min}
    faults:
      - {at_s: 100, kind: exit, worker: 2, rank: 17, exit_code: 1, error: "RuntimeError: boom"}

It only parses and checks. An unknown key is an error that names the nearest valid one.
"""

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from holdfast.model.policy import Policy

AtLeastZero = Annotated[float, Meta(ge=0)]
AboveZero = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
T = TypeVar("T")

_UNITS_S = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)\s*")


class ScenarioRefused(ValueError):
    """Raised when the scenario is invalid. The message says where, and what is valid."""


class ClusterSize(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Size of the simulated cluster. Nodes node-0, ... run the workers, further ones are spares."""

    workers: Count = 1
    spares: Annotated[int, Meta(ge=0)] = 0
    devices_per_node: Count = 8


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault of a scenario. It happens at a time, or in place of a step.

    `worker`: the fault is on the node that runs this worker at that time; `node`: the fault is on this node. `times`
    without `every_s`: in this many attempts that reach the step; `every_attempt`: in all.
    """

    kind: Literal["exit", "hang", "device", "node_down"]
    at_s: AtLeastZero | None = None
    at_step: Count | None = None
    every_attempt: bool = False
    worker: Annotated[int, Meta(ge=0)] | None = None
    node: str | None = None
    rank: Annotated[int, Meta(ge=0)] | None = None
    exit_code: int = 1
    error: str = ""
    device: int | str = 0
    code: str = "80E01801"
    heals: bool = True
    times: Count = 1
    every_s: AboveZero | None = None


class WorkerExpected(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Expected node and start counters of a worker."""

    node: str | None = None
    schedule_cnt: int | None = None
    proc_start_cnt: int | None = None


class Expected(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Expected results of a scenario; missing ones are not checked. `workers`: after the last decision."""

    rungs: tuple[str, ...] | None = None
    outcome: str | None = None
    restarts: int | None = None
    hardware_reschedules: int | None = None
    isolated: tuple[str, ...] | None = None
    workers: dict[str, WorkerExpected] = {}


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario.

    `sick`: nodes that are faulty from the start, with the probability that a check detects it.
    """

    cluster: ClusterSize = ClusterSize()
    policy: Policy = Policy()
    step_s: AboveZero = 1.0
    checkpoint_every_steps: Annotated[int, Meta(ge=0)] = 100  # 0: never
    start_s: AtLeastZero = 5.0
    total_steps: Count = 1_000
    until_s: AboveZero = 86_400.0
    faults: tuple[Fault, ...] = ()
    sick: dict[str, Annotated[float, Meta(ge=0, le=1)]] = {}
    expect: Expected | None = None


def read(path: Path) -> Scenario:
    """Reads a scenario file. Raises ScenarioRefused."""
    try:
        return parse(path.read_bytes())
    except OSError as error:
        raise ScenarioRefused(f"{path} cannot be read: {error.strerror}") from error
    except ScenarioRefused as error:
        raise ScenarioRefused(f"{path}: {error}") from error


def parse(text: bytes) -> Scenario:
    """Parses a scenario. Raises ScenarioRefused."""
    try:
        raw = msgspec.yaml.decode(text)
    except ImportError as error:
        raise ScenarioRefused("scenarios need PyYAML: pip install 'holdfast[sim]'") from error
    except msgspec.DecodeError as error:
        raise ScenarioRefused(f"the scenario is not valid YAML: {error}") from error
    if not isinstance(raw, dict):
        raise ScenarioRefused(
            "a scenario is a mapping with the keys " + ", ".join(Scenario.__struct_fields__)
        )
    raw = {**raw, "policy": _policy(raw.get("policy"))}
    scenario = _convert(raw, Scenario)
    _check_sick(scenario)
    for number, fault in enumerate(scenario.faults):
        _check(fault, f"faults[{number}]", scenario)
    return scenario


def _policy(raw: Any) -> Any:
    """Converts `hang_timeout: 10min` to the field `hang_timeout_s` of the policy; auto is None."""
    if not isinstance(raw, dict) or "hang_timeout" not in raw:
        return {} if raw is None else raw
    given = raw["hang_timeout"]
    timeout_s = None if given in ("auto", None) else _seconds(given)
    return {**{key: raw[key] for key in raw if key != "hang_timeout"}, "hang_timeout_s": timeout_s}


def _seconds(given: Any) -> float:
    if isinstance(given, int | float) and given > 0:
        return float(given)
    found = _LENGTH.fullmatch(str(given))
    if not found:
        raise ScenarioRefused(f"policy.hang_timeout is {given!r}: write it like 90s, 10min or auto")
    return float(found[1]) * _UNITS_S[found[2]]


def _convert(raw: Any, wanted: type[T]) -> T:
    try:
        return msgspec.convert(raw, wanted)
    except msgspec.ValidationError as error:
        raise ScenarioRefused(_with_nearest_key(str(error))) from error


def _with_nearest_key(message: str) -> str:
    """Returns msgspec's message with the valid key that was probably meant."""
    found = re.search(r"unknown field `(.+?)`(?: - at `\$\.?(.*?)`)?$", message)
    if not found:
        return message.replace("`$.", "`")
    key, where = found[1], found[2] or ""
    known = _fields_at(where)
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
    place = f" in {where}" if where else ""
    return f"unknown key {key!r}{place}" + (
        f": did you mean {near[0]!r}?" if near else f": known are {', '.join(known)}"
    )


def _fields_at(where: str) -> tuple[str, ...]:
    head = re.split(r"[.\[]", where, maxsplit=1)[0]
    if head == "policy":
        return (*(name for name in Policy.__struct_fields__ if name != "hang_timeout_s"), "hang_timeout")
    if head == "expect":
        return (WorkerExpected if "workers" in where else Expected).__struct_fields__
    kinds: dict[str, type[Struct]] = {"cluster": ClusterSize, "faults": Fault}
    return kinds.get(head, Scenario).__struct_fields__


def _check_sick(scenario: Scenario) -> None:
    """Raises ScenarioRefused if `sick` names an unknown node."""
    nodes = _nodes(scenario.cluster)
    for name in scenario.sick:
        if name not in nodes:
            raise ScenarioRefused(f"sick: there is no {name!r}; the last is {nodes[-1]}")


def _nodes(size: ClusterSize) -> list[str]:
    return [f"node-{number}" for number in range(size.workers + size.spares)]


def _check(fault: Fault, where: str, scenario: Scenario) -> None:
    """Checks what types cannot express. Raises ScenarioRefused."""
    size = scenario.cluster
    if (fault.at_s is None) == (fault.at_step is None):
        raise ScenarioRefused(f"{where} needs either at_s or at_step")
    if fault.every_attempt and fault.at_step is None:
        raise ScenarioRefused(f"{where}: every_attempt goes with at_step; at a time, use times and every_s")
    if fault.every_attempt and (fault.every_s is not None or fault.times > 1):
        raise ScenarioRefused(f"{where}: every_attempt goes without times and every_s")
    if fault.at_s is not None and fault.times > 1 and fault.every_s is None:
        raise ScenarioRefused(f"{where}: times: {fault.times} needs every_s")
    if (fault.worker is None) == (fault.node is None):
        raise ScenarioRefused(f"{where} needs either worker or node")
    if fault.worker is not None and fault.worker >= size.workers:
        raise ScenarioRefused(f"{where}: there is no worker {fault.worker}; the last is {size.workers - 1}")
    nodes = _nodes(size)
    if fault.node is not None and fault.node not in nodes:
        raise ScenarioRefused(f"{where}: there is no {fault.node!r}; the last is {nodes[-1]}")
