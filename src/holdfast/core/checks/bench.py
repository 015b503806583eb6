"""Judges benchmark results against the baselines of the device and of its model, and the other devices of the
node. Pure.

A number is compared only if the device was otherwise idle, with its spread between repeats as tolerance. A
low number is reported and isolates no node; a wrong bit does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from msgspec import Struct

from holdfast.model.checks import (
    BASELINE,
    DEVICE_FAULT,
    FAIL,
    NO_FAULT,
    PASS,
    PEERS,
    RULE,
    SKIP,
    WARN,
    Baseline,
    Fact,
    Finding,
    Scene,
)
from holdfast.model.signatures import Words

LOW_WARN, LOW_FAIL = 0.07, 0.25
SPREADS = 3.0  # multiple of a result's spread that a difference must exceed
PEERS_MIN = 2
HAD_MIN = 0.9  # minimum share of the requested CPU time; with less, other processes were running
MODEL = "name"  # name of the learned fact with a device's model
PLACES_NAMED = 3


class Measure(Struct, frozen=True, kw_only=True):
    """One number of a benchmark.

    `value`: in `unit`. `spread`: interquartile range of its repeats, as a share of the value.
    """

    name: str
    value: float
    unit: str
    spread: float = 0.0
    low_is_bad: bool = True


class Bench(Struct, frozen=True, kw_only=True):
    """The benchmark results of one device.

    `key`: its permanent identity. `where`: its name for users; empty for the node itself. `beside`: readings during
    the benchmark (clock, temperature). `disturbed`: why the numbers cannot be used; empty if they can.
    """

    key: str
    model: str
    measures: tuple[Measure, ...]
    where: str = ""
    beside: str = ""
    disturbed: str = ""


class Expected(Struct, frozen=True):
    """The number with which a benchmark result is compared. `whence`, `words`: where it comes from, as a code and as
    text.
    """

    value: float
    whence: str
    words: str


def measure(name: str, rates: Sequence[float], unit: str, per: float, *, best: bool = False) -> Measure:
    """Returns a measure from the rates that a benchmark returned: lower quartile, median, upper quartile, best.

    `per`: rate that equals one `unit`. `best`: use the best rate instead of the median.
    """
    low, middle, high, top = (float(rate) for rate in rates)
    spread = (high - low) / middle if middle > 0 else 0.0
    return Measure(name=name, value=(top if best else middle) / per, unit=unit, spread=spread)


def disturbed(had: float) -> str:
    """Returns why a benchmark's numbers cannot be used, by the share `had` of requested CPU time that it received;
    empty if that was nearly all.
    """
    if had >= HAD_MIN:
        return ""
    return f"other processes were running: only {had:.0%} of the CPUs were free for the benchmark; run it again on an idle node"


def judged(benches: Sequence[Bench], baseline: Baseline) -> Iterator[Finding | Fact]:
    """Compares each device's benchmark results with those expected. Yields them as facts, and a finding for each
    device.
    """
    for bench in benches:
        yield from _facts(bench)
        yield _finding(bench, benches, baseline)


def _facts(bench: Bench) -> Iterator[Fact]:
    is_sound = not bench.disturbed
    if is_sound:
        yield Fact(name=MODEL, value=bench.model, device=bench.key, learn=True, model=bench.model)
    for one in bench.measures:
        yield Fact(
            name=one.name,
            value=round(one.value, 6),
            device=bench.key,
            learn=is_sound,
            peers=is_sound,
            low_is_bad=one.low_is_bad,
            spread=round(one.spread, 4),
            model=bench.model,
            unit=one.unit,
        )


def _finding(bench: Bench, benches: Sequence[Bench], baseline: Baseline) -> Finding:
    said = "; ".join(filter(None, [*(_words(one) for one in bench.measures), bench.beside]))
    if bench.disturbed:
        return Finding(status=SKIP, device=bench.where, measured=said, why=f"{said}; {bench.disturbed}")
    low = [
        (off, one, expected)
        for one in bench.measures
        for expected in _expectations(one, bench, benches, baseline)
        if (off := _off(one, expected.value)) > max(LOW_WARN, SPREADS * one.spread)
    ]
    if not low:
        return Finding(status=PASS, device=bench.where, measured=said)
    off, one, expected = max(low, key=lambda found: found[0])
    side = "below" if one.low_is_bad else "above"
    beside = f"; {bench.beside}" if bench.beside else ""
    return Finding(
        status=FAIL if off > LOW_FAIL else WARN,
        device=bench.where,
        measured=f"{_words(one)}{beside}",
        expected=f"about {expected.value:.4g} {one.unit}",
        whence=expected.whence,
        why=f"{one.name} is {off:.0%} {side} {expected.words}{beside}",
        advice=Words(
            en="Run the same benchmark again with the node idle; check clocks, temperature and power while it "
            "runs; if the result is still low, keep the node out of large runs and inspect it.",
            zh="在节点空闲时重跑同一基准，并观察时钟、温度和功耗；若仍偏离，请勿将其用于大规模训练并检修。",
        ),
    )


def _expectations(
    one: Measure, bench: Bench, benches: Sequence[Bench], baseline: Baseline
) -> Iterator[Expected]:
    own = _number(baseline.of(bench.key, one.name))
    if own is not None:
        yield Expected(own, BASELINE, f"its first measurement, {own:.4g} {one.unit}")
    else:
        before = [
            number
            for device in baseline.devices(bench.key.partition(":")[0])
            if device != bench.key and baseline.of(device, MODEL) == bench.model
            if (number := _number(baseline.of(device, one.name))) is not None
        ]
        if before:
            middle = median(before)
            yield Expected(
                middle,
                BASELINE,
                f"the median of {len(before)} earlier devices of this model, {middle:.4g} {one.unit}",
            )
    others = [
        other.value
        for peer in benches
        if peer is not bench and peer.model == bench.model and not peer.disturbed
        for other in peer.measures
        if other.name == one.name
    ]
    if len(others) >= PEERS_MIN:
        middle = median(others)
        yield Expected(middle, PEERS, f"the median of the {len(others)} others here, {middle:.4g} {one.unit}")


def _off(one: Measure, expected: float) -> float:
    """Returns by which share of the expected value a result is worse."""
    if expected <= 0:
        return 0.0
    return (expected - one.value if one.low_is_bad else one.value - expected) / expected


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and value > 0 else None  # type: ignore[arg-type, operator]


def _words(one: Measure) -> str:
    return f"{one.name}: {one.value:.4g} {one.unit}"


# Wrong results -------------------------------------------------------------------------------------------


def wrong_result(
    where: str,
    wrong_repeats: int,
    repeats: int,
    places: Sequence[Sequence[object]],
    *,
    what: str,
    category: str = "",
) -> Finding:
    """Returns the finding for a computation whose results differ between repeats.

    `places`: row, column and flipped bits of the first differences.
    """
    few = ", ".join(f"row {row} column {column} bits {bits}" for row, column, bits in places[:PLACES_NAMED])
    return Finding(
        status=FAIL,
        device=where,
        measured=f"{wrong_repeats} of {repeats} products differ: {few}",
        expected="the same bits each time",
        whence=RULE,
        why=f"{what} computes wrong results without an error: {wrong_repeats} of {repeats} repeats of one product"
        f" had other bits ({few})",
        advice=_WRONG,
        fault=DEVICE_FAULT,
        category=category,
    )


def wrong_always(where: str, why: str, *, others_are_right: bool, category: str = "") -> Finding:
    """Returns the finding for a result that is equal in all repeats but differs from the exact result.

    `others_are_right`: other devices compute the exact result; if not, the library is at fault, not the device.
    """
    return Finding(
        status=FAIL if others_are_right else WARN,
        device=where,
        measured=why,
        expected="the exact product",
        whence=PEERS if others_are_right else RULE,
        why=f"{why}{', and the other devices here computed it correctly' if others_are_right else ''}",
        advice=_WRONG,
        fault=DEVICE_FAULT if others_are_right else NO_FAULT,
        category=category,
    )


_WRONG = Words(
    en="Keep the node out of training: its results may be wrong. Run the same check again for longer (--option ...seconds=600) "
    "to confirm, then have the part replaced. Distrust checkpoints that it wrote.",
    zh="请隔离该节点：其训练结果可能已损坏。延长时间重跑同一检查（--option ...seconds=600）以确认，然后更换部件；"
    "对其写入的检查点保持怀疑。",
)


# Options -------------------------------------------------------------------------------------------------


class OptionRefused(ValueError):
    """Raised for an invalid value of a check's option; the message names it."""


def option(scene: Scene, check: str, key: str, default: float, low: float, high: float) -> float:
    """Returns the number given by `--option CHECK.KEY=NUMBER`, or the default. raises: OptionRefused"""
    text = scene.options.get(f"{check}.{key}", "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise OptionRefused(f"--option {check}.{key}={text}: a number from {low:g} to {high:g} is required")
    return value


def choice(options: Mapping[str, str], check: str, key: str, known: Iterable[str], default: str) -> str:
    """Returns the value of an option, one of `known`, or the default. raises: OptionRefused"""
    known = tuple(known)
    text = options.get(f"{check}.{key}", default)
    if text not in known:
        raise OptionRefused(f"--option {check}.{key}={text}: one of {', '.join(known)} is required")
    return text
