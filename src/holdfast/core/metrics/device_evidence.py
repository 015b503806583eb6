"""Compares the metrics of all devices of a job around an incident, as evidence: utilisation, SM and tensor
activity, power.

If all devices became idle, their ranks wait for one rank. If one device became idle, its rank is at fault.
High utilisation with low SM activity means blocked communication. High SM activity with low tensor activity
means a spinning collective. A further rule finds the device that changed first. The rules follow the
platforms' handbooks. Pure.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from holdfast.model.diagnoses import Diagnosis, Fact
from holdfast.model.signatures import Words

FILE = "prometheus"
BLANK = 9e18  # DCGM's blank values are near 2^63
BEFORE_S, BEFORE_END_S = (
    600.0,
    120.0,
)  # baseline: from this long before the incident to this long before it
# the level in the incident: from this long before it was found to this long after
DURING_S, AFTER_S = 60.0, 5.0
WORKS = 0.02  # tensor or SM activity below this counts as idle
FELL = 0.25  # of the baseline
HALF = 0.5
BUSY, IDLE_SM, SPINS_SM, NO_TENSOR = 0.9, 0.1, 0.8, 0.01
ALL, FEW = 0.9, 0.1  # shares of the devices
CNP_PER_S, CNP_RATIO = 100.0, 10.0
NAMED_MAX = 4
FACTS_MAX = 8
# Activities and their names, the most specific first.
MEASURES = {
    "gpu_tensor": Words(en="tensor activity", zh="Tensor 活跃度"),
    "gpu_sm": Words(en="SM activity", zh="SM 活跃度"),
    "gpu_util": Words(en="utilisation", zh="GPU 利用率"),
}


class Reading(Struct, frozen=True, kw_only=True):
    """The time series of one quantity of one device. `device`: GPU number, or name of an RDMA device.

    `values`: (seconds since the epoch, value) pairs, ascending.
    """

    quantity: str
    node: str
    device: str
    values: tuple[tuple[float, float], ...]


class Levels(Struct, frozen=True):
    """The median of a quantity before and during an incident; None without values."""

    before: float | None
    during: float | None


Place = tuple[str, str]
ByPlace = Mapping[Place, tuple[tuple[float, float], ...]]


def facts(readings: Sequence[Reading], at_s: float) -> list[Fact]:
    """Returns evidence about the incident that was found at `at_s`, the most significant first."""
    series = _by_quantity(readings)
    found = [
        *_xids(series, at_s),
        *_silent(series, at_s),
        *_activity(series, at_s),
        *_blocked(series, at_s),
        *_power(series, at_s),
        *_congestion(series, at_s),
    ]
    return found[:FACTS_MAX]


def with_device_metrics(answer: Diagnosis, found: Sequence[Fact], note: Words | None = None) -> Diagnosis:
    """Returns the diagnosis with device metrics added as evidence. `note`: why some are missing."""
    notes = (*answer.notes, note) if note is not None else answer.notes
    return replace(answer, evidence=(*answer.evidence, *found), notes=notes)


def _by_quantity(readings: Sequence[Reading]) -> dict[str, dict[Place, tuple[tuple[float, float], ...]]]:
    """Groups values by quantity. Drops NaN and DCGM's blank values: they are unknown, not zero."""
    found: dict[str, dict[Place, tuple[tuple[float, float], ...]]] = {}
    for one in readings:
        values = tuple((at_s, value) for at_s, value in one.values if math.isfinite(value) and value < BLANK)
        if values:
            found.setdefault(one.quantity, {})[one.node, one.device] = values
    return found


def _levels(series: ByPlace, at_s: float) -> dict[Place, Levels]:
    return {
        place: Levels(
            _level(values, at_s - BEFORE_S, at_s - BEFORE_END_S),
            _level(values, at_s - DURING_S, at_s + AFTER_S),
        )
        for place, values in series.items()
    }


def _level(values: Sequence[tuple[float, float]], from_s: float, to_s: float) -> float | None:
    inside = [value for at_s, value in values if from_s <= at_s <= to_s]
    return median(inside) if inside else None


# Activity ------------------------------------------------------------------------------------------------


def _activity(series: Mapping[str, ByPlace], at_s: float) -> Iterator[Fact]:
    """Yields evidence on the most specific activity measure in which a busy device became idle."""
    for quantity in MEASURES:
        levels = _levels(series.get(quantity, {}), at_s)
        worked = {place: one for place, one in levels.items() if (one.before or 0.0) > WORKS}
        known = {place: one for place, one in worked.items() if one.during is not None}
        if len(known) < 2:
            continue
        fell = [place for place, one in known.items() if (one.during or 0.0) < FELL * (one.before or 0.0)]
        yield from _fallen(quantity, series[quantity], known, fell, at_s)
        return


def _fallen(
    quantity: str, series: ByPlace, known: Mapping[Place, Levels], fell: Sequence[Place], at_s: float
) -> Iterator[Fact]:
    measure = MEASURES[quantity]
    if len(fell) >= ALL * len(known):
        yield _fact(
            f"{measure.en} of {len(fell)} of {len(known)} devices fell from {_mean(known, fell)}",
            Words(
                en=f"All devices became idle at the same time ({measure.en}), as they do when all other ranks wait for one rank.",
                zh=f"所有设备的{measure.zh}同时下降：都在等待其中一个。",
            ),
            at_s,
        )
        yield from _first(series, fell, at_s, measure)
    elif 0 < len(fell) <= max(1.0, FEW * len(known)):
        yield _fact(
            f"{measure.en} of {_named(fell)} fell from {_mean(known, fell)};"
            f" that of the {len(known) - len(fell)} others did not",
            Words(
                en=f"Only {_named(fell)} became idle: check it first.",
                zh=f"只有 {_named(fell)} 停止工作，其他设备没有：请先检查它。",
            ),
            at_s,
        )


def _first(series: ByPlace, fell: Sequence[Place], at_s: float, measure: Words) -> Iterator[Fact]:
    """Yields the device that fell first, if it led the others by more than the sampling interval."""
    changed = {place: when for place in fell if (when := _changed_s(series[place], at_s)) is not None}
    if len(changed) < 2:
        return
    first = min(changed, key=lambda place: changed[place])
    others = median(when for place, when in changed.items() if place != first)
    ahead_s = others - changed[first]
    if ahead_s < 1.5 * _interval_s(series[first]):
        return
    node, _ = first
    if all(place[0] == node or when - changed[first] > 0 for place, when in changed.items()):
        yield _fact(
            f"{measure.en} of {_named([first])} fell {ahead_s:.0f} s before that of the others",
            Words(
                en=f"{_named([first])} changed first: check it first.",
                zh=f"{_named([first])} 最先变化：请先检查它。",
            ),
            changed[first],
        )


def _changed_s(values: Sequence[tuple[float, float]], at_s: float) -> float | None:
    """Returns when the value fell permanently below half of its baseline."""
    usual = _level(values, at_s - BEFORE_S, at_s - BEFORE_END_S)
    if not usual:
        return None
    found = None
    for when_s, value in values:
        if when_s > at_s + AFTER_S:
            break
        if value >= HALF * usual:
            found = None
        elif found is None:
            found = when_s
    return found


def _interval_s(values: Sequence[tuple[float, float]]) -> float:
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(values)]
    return median(gaps) if gaps else 0.0


# Two measures together -----------------------------------------------------------------------------------


def _blocked(series: Mapping[str, ByPlace], at_s: float) -> Iterator[Fact]:
    used, sm = _during(series, "gpu_util", at_s), _during(series, "gpu_sm", at_s)
    tensor = _during(series, "gpu_tensor", at_s)
    waits = [place for place in used.keys() & sm.keys() if used[place] > BUSY and sm[place] < IDLE_SM]
    if waits:
        yield _fact(
            f"{_some(waits, len(used))}: utilisation above {BUSY:.0%}, SM activity below {IDLE_SM:.0%}",
            Words(
                en="A kernel runs there but is idle: it waits in a collective, and communication is blocked.",
                zh="内核在运行但没有计算：在集合通信中等待，通信受阻。",
            ),
            at_s,
        )
    before = _levels(series.get("gpu_tensor", {}), at_s)
    spins = [
        place
        for place in sm.keys() & tensor.keys()
        if sm[place] > SPINS_SM and tensor[place] < NO_TENSOR and (before[place].before or 0.0) > WORKS
    ]
    if spins:
        yield _fact(
            f"{_some(spins, len(sm))}: SM activity above {SPINS_SM:.0%}, tensor activity below {NO_TENSOR:.0%}",
            Words(
                en="The SMs are busy without work for the tensor cores: a collective spins there.",
                zh="SM 忙碌而 Tensor 核心空闲：集合通信在自旋等待。",
            ),
            at_s,
        )


def _during(series: Mapping[str, ByPlace], quantity: str, at_s: float) -> dict[Place, float]:
    levels = _levels(series.get(quantity, {}), at_s)
    return {place: one.during for place, one in levels.items() if one.during is not None}


def _congestion(series: Mapping[str, ByPlace], at_s: float) -> Iterator[Fact]:
    levels = _levels(series.get("cnp_handled", {}), at_s)
    now = {place: one.during for place, one in levels.items() if one.during is not None}
    high = [place for place, rate in now.items() if rate > CNP_PER_S]
    if not high:
        return
    usual = median(now.values())
    outliers = [place for place in high if now[place] > CNP_RATIO * max(usual, 1.0)]
    grew = [place for place in high if now[place] > CNP_RATIO * max(levels[place].before or 0.0, 1.0)]
    if outliers and len(now) > 2:
        yield _fact(
            f"{_named(outliers)}: {max(now[place] for place in outliers):.0f} congestion notifications a second, the median is {usual:.0f}",
            Words(
                en=f"Only {_named(outliers)} is congested: check its link, switch port and flow control.",
                zh=f"只有 {_named(outliers)} 拥塞：检查其链路、交换机端口与流控。",
            ),
            at_s,
        )
    elif len(grew) >= ALL * len(now):
        yield _fact(
            f"{len(grew)} of {len(now)} ports: congestion notifications rose to {usual:.0f} a second",
            Words(
                en="All ports are congested together: check the fabric, not one node.",
                zh="所有端口同时拥塞：是网络整体的问题，而非某个节点。",
            ),
            at_s,
        )


# One device ----------------------------------------------------------------------------------------------


def _xids(series: Mapping[str, ByPlace], at_s: float) -> Iterator[Fact]:
    """Yields new values of the Xid gauge. An older value is no evidence, because the gauge never resets."""
    for place, values in sorted(series.get("gpu_xid", {}).items()):
        earlier = next((value for when_s, value in values if when_s >= at_s - BEFORE_S), None)
        news = [(when_s, value) for when_s, value in values if value and value != earlier]
        if earlier is not None and news:
            when_s, value = news[0]
            yield _fact(
                f"{_named([place])}: the gauge of the last Xid became {value:.0f}",
                Words(
                    en=f"{_named([place])} reported Xid {value:.0f}.",
                    zh=f"{_named([place])} 报告了 Xid {value:.0f}。",
                ),
                when_s,
            )


def _power(series: Mapping[str, ByPlace], at_s: float) -> Iterator[Fact]:
    without = [place for place, watts in _during(series, "gpu_power", at_s).items() if watts == 0.0]
    if without:
        yield _fact(
            f"{_named(without)}: power 0 W",
            Words(
                en=f"{_named(without)} draws no power: it fell off the bus, or its driver does not respond.",
                zh=f"{_named(without)} 功率为 0：设备掉线或驱动无响应。",
            ),
            at_s,
        )


def _silent(series: Mapping[str, ByPlace], at_s: float) -> Iterator[Fact]:
    """Yields the first node whose values end before the incident while those of others continue."""
    last: dict[str, float] = {}
    gap_s = 0.0
    for (node, _), values in series.get("gpu_util", {}).items():
        last[node] = max(last.get(node, values[-1][0]), values[-1][0])
        gap_s = max(gap_s, _interval_s(values))
    limit_s = at_s - max(DURING_S, 2.5 * gap_s)
    silent = sorted((when_s, node) for node, when_s in last.items() if when_s < limit_s)
    if silent and len(silent) < len(last):
        when_s, node = silent[0]
        yield _fact(
            f"{len(silent)} of {len(last)} nodes stopped reporting values; the first was {node}, {at_s - when_s:.0f} s before",
            Words(
                en=f"{node} stopped reporting first, while others continued: check it first.",
                zh=f"{node} 最先没有数据，而其他节点仍在上报：请先检查它。",
            ),
            when_s,
        )


# Words ---------------------------------------------------------------------------------------------------


def _fact(text: str, says: Words, at_s: float) -> Fact:
    return Fact(file=FILE, line=None, text=text, says=says, at_s=at_s)


def _mean(known: Mapping[Place, Levels], places: Sequence[Place]) -> str:
    before = median(known[place].before or 0.0 for place in places)
    during = median(known[place].during or 0.0 for place in places)
    return f"{before:.0%} to {during:.0%}"


def _named(places: Sequence[Place]) -> str:
    names = [f"{node} {_device(device)}" for node, device in sorted(places)]
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _device(device: str) -> str:
    return f"GPU {device}" if device.isdecimal() else device


def _some(places: Sequence[Place], total: int) -> str:
    return f"{len(places)} of {total} devices" if len(places) > NAMED_MAX else _named(places)
