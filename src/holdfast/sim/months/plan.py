"""Parses a plan (YAML) for simulating a fleet over months, and reads the traces and published figures that it
names.

    gpus: 16384
    days: 54
    rate: rsc-1
    policies: [naive, modelarts, holdfast, {name: mine, policy: "holdfast:max-restarts=20", hang_s: 60}]

An unknown key is an error.
"""

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from holdfast.archive.fleet_figures import FOLDER, Mix, Slow, mix, rates, repairs, slow
from holdfast.core.job.presets.preset import BadPreset
from holdfast.core.job.presets.translate import translate
from holdfast.core.reliability.outages import (
    DAY_S,
    Outage,
    TraceRefused,
    gaps_of,
    outages_of,
    summary,
)
from holdfast.core.reliability.weibull import fit
from holdfast.core.replay.deciding import UnknownSetting, changed
from holdfast.model.policy import Policy

Positive = Annotated[float, Meta(gt=0, le=1e9)]
NotNegative = Annotated[float, Meta(ge=0, le=1e9)]
Count = Annotated[int, Meta(ge=0, le=100_000)]
SHAPE = 0.6  # of published fleets, where no trace is given
TRACE_BYTES_MAX = 64 << 20


class PlanRefused(ValueError):
    """Raised when the plan is invalid. The message says where, and what is valid."""


class Contender(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A recovery policy to compare, with the properties of the system around it, as in
    fleet_figures/contenders.toml.
    """

    name: str = ""
    who: str = ""
    policy: str = ""
    settings: dict[str, Any] = {}
    start_s: Positive = 900.0
    save_s: NotNegative = 40.0
    checkpoint_every_s: Positive | None = None
    hang_s: Positive = 10.0
    node_lost_s: Positive = 12.0
    person_s: Positive = 3_600.0
    blind: bool = False
    hang_exits: bool = False
    keeps_nodes: bool = False

    def rules(self) -> Policy:
        """Returns the policy. Raises PlanRefused."""
        try:
            base = translate(self.policy).policy if self.policy else Policy()
            return changed(base, self.settings)
        except (BadPreset, UnknownSetting) as error:
            raise PlanRefused(f"policy {self.name}: {error}") from error


class Lemons(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes that fail more often than others: `count` nodes, `factor` times as often.

    source: 40 in 3,000 nodes, arXiv 2410.21680
    """

    count: Count = 0
    factor: Annotated[float, Meta(ge=1, le=1_000)] = 25.0


class Plan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan: the fleet, the job, the faults, the policies.

    `rate`: a name in fleet_figures/rates.toml, or failures in 1,000 node-days. `trace`: replaces `rate`,
    `shape` and the repair times. `healing`: share of device faults that a reset repairs. `switch_nodes`:
    nodes lost together.
    """

    gpus: Annotated[int, Meta(ge=1, le=1_000_000)] = 16_384
    gpus_per_node: Annotated[int, Meta(ge=1, le=1_024)] = 8
    spares: Count = 64
    days: Annotated[float, Meta(gt=0, le=3_660)] = 54.0
    rate: str | Positive = "llama-3"
    trace: str = ""
    trace_nodes: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    shape: Annotated[float, Meta(ge=0.2, le=5)] = SHAPE
    repeated: Annotated[float, Meta(ge=0, le=0.95)] | None = None
    healing: Annotated[float, Meta(ge=0, le=1)] = 0.5
    mix: Mix | None = None
    slow: Slow | None = None
    lemons: Lemons = Lemons()
    switch_nodes: Annotated[int, Meta(ge=2, le=1_024)] = 16
    switch_minutes: NotNegative = 30.0
    runs: Annotated[int, Meta(ge=1, le=1_000)] = 5
    seed: int = 1
    policies: tuple[str | Contender, ...] = ("naive", "modelarts", "holdfast")

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.gpus_per_node)


class World(Struct, frozen=True, kw_only=True):
    """A plan after its rates and traces were read.

    `mean_s`: mean time between interruptions of the whole job.
    """

    plan: Plan
    mean_s: float
    shape: float
    repeated: float
    repairs_s: tuple[float, ...]
    mix: Mix
    slow: Slow
    contenders: tuple[Contender, ...]
    notes: tuple[str, ...] = ()


def read(path: Path) -> World:
    """Reads a plan. Raises PlanRefused."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise PlanRefused(f"{path} cannot be read: {error.strerror}") from error
    try:
        return settled(parse(text), path.parent)
    except PlanRefused as error:
        raise PlanRefused(f"{path}: {error}") from error


def parse(text: bytes) -> Plan:
    """Parses a plan. Raises PlanRefused."""
    try:
        return msgspec.convert(msgspec.yaml.decode(text) or {}, Plan)
    except ImportError as error:
        raise PlanRefused("plans need PyYAML: pip install 'holdfast[sim]'") from error
    except msgspec.ValidationError as error:
        raise PlanRefused(str(error).replace("`$.", "`")) from error
    except msgspec.DecodeError as error:
        raise PlanRefused(f"the plan is not valid YAML: {error}") from error


def settled(plan: Plan, folder: Path = Path()) -> World:
    """Reads rates, traces and policies of a plan. Raises PlanRefused."""
    kinds = plan.mix if plan.mix is not None else mix()
    total = sum(msgspec.structs.asdict(kinds).values())
    if not abs(total - 1.0) < 1e-6 or min(msgspec.structs.asdict(kinds).values()) < 0.0:
        raise PlanRefused(f"the shares of mix add up to {total:g}, not to 1")
    away = repairs()
    world = World(
        plan=plan,
        mean_s=DAY_S / (plan.nodes * _per_node_day(plan.rate)),
        shape=plan.shape,
        repeated=plan.repeated if plan.repeated is not None else away.repeated_within_week,
        repairs_s=tuple(3_600.0 * hours for hours in away.quantiles_h),
        mix=kinds,
        slow=plan.slow if plan.slow is not None else slow(),
        contenders=_contenders(plan),
    )
    return _with_trace(world, folder / plan.trace) if plan.trace else world


def known_contenders() -> dict[str, Contender]:
    raw = tomllib.loads(files("holdfast").joinpath(FOLDER, "contenders.toml").read_text(encoding="utf-8"))
    return {name: replace(msgspec.convert(one, Contender), name=name) for name, one in raw.items()}


def read_trace(text: bytes) -> list[Outage]:
    """Parses faults in the format of InfiniteHBD-Trace: objects with node_id, event_time (days), event_type.

    A fault that ends without a start is left out; one that starts during another of its node is separate.
    Raises PlanRefused.
    """

    class Entry(Struct):
        node_id: str
        event_time: float
        event_type: str

    try:
        entries = msgspec.json.decode(text, type=list[Entry])
    except msgspec.MsgspecError as error:
        raise PlanRefused(f"not a valid trace of faults: {error}") from error
    begun: dict[str, list[float]] = {}
    found = list[Outage]()
    for entry in sorted(entries, key=lambda one: (one.event_time, one.event_type != "fault_start")):
        mine = begun.setdefault(entry.node_id, [])
        if entry.event_type == "fault_start":
            mine.append(entry.event_time)
        elif mine:
            found.append(Outage(entry.node_id, mine.pop(0) * DAY_S, entry.event_time * DAY_S))
    return found + [Outage(node, at * DAY_S, None) for node, mine in begun.items() for at in mine]


def _per_node_day(rate: str | float) -> float:
    if isinstance(rate, str):
        known = rates()
        if rate not in known:
            raise PlanRefused(f"rate {rate!r} is not known: give a number, or one of {', '.join(known)}")
        return known[rate].per_1000_node_days / 1000.0
    return rate / 1000.0


def _contenders(plan: Plan) -> tuple[Contender, ...]:
    known, found = known_contenders(), list[Contender]()
    for given in plan.policies:
        if isinstance(given, str):
            if given not in known:
                raise PlanRefused(
                    f"policy {given!r} is not known: {', '.join(known)}, or one of your own with a name"
                )
            given = known[given]
        if not given.name:
            raise PlanRefused("a policy of your own needs a name")
        given.rules()
        found.append(given)
    if not found or len({one.name for one in found}) < len(found):
        raise PlanRefused("give at least one policy, and each name once")
    return tuple(found)


def _with_trace(world: World, path: Path) -> World:
    try:
        size = path.stat().st_size
        if size > TRACE_BYTES_MAX:
            raise PlanRefused(f"{path} has {size} bytes: at most {TRACE_BYTES_MAX} are read")
        faults = read_trace(path.read_bytes())
        nodes = world.plan.trace_nodes or max(1, len({one.node for one in faults}))
        outages = outages_of(faults, nodes)
    except OSError as error:
        raise PlanRefused(f"{path} cannot be read: {error.strerror}") from error
    except TraceRefused as error:
        raise PlanRefused(f"{path}: {error}") from error
    gaps, known = gaps_of(outages), summary(outages)
    if not gaps.failed or not known.repairs_s:
        raise PlanRefused(f"{path} has too few faults: two that have ended are needed")
    fitted = fit(gaps, expected_mean=sum(gaps.failed) / len(gaps.failed))
    last = len(known.repairs_s) - 1
    notes = [f"{path.name}: {len(outages.all)} outages of {nodes} nodes in {outages.days:.0f} days"]
    notes += (
        [f"{outages.merged} faults overlapped with another one of the same node"] if outages.merged else []
    )
    notes += [f"{outages.unfinished} have no end"] if outages.unfinished else []
    return replace(
        world,
        mean_s=fitted.mean.middle * nodes / world.plan.nodes,
        shape=fitted.shape.middle,
        repeated=min(0.95, known.repeated),
        repairs_s=tuple(known.repairs_s[round(at / 40 * last)] for at in range(41)),
        notes=tuple(notes),
    )
