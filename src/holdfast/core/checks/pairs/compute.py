"""Finds nodes that compute slowly, compared with nodes that have the same devices. Pure."""

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from holdfast.core.checks.pairs.evidence import FLOOR_MIN, MAD_TO_SIGMA, NEAR, likelihood
from holdfast.core.checks.pairs.results import Blame, Limits, Measured, NodeSample

TIMES_MIN = 2


class _Usual(NamedTuple):
    """The usual speed of a device model, in GFLOP/s. `nodes`: how many nodes have it."""

    middle: float
    slow: float
    nodes: int


def compute_blames(measured: Measured, limits: Limits) -> list[Blame]:
    """Returns the nodes that compute slower than others with the same devices, or whose results differ
    between runs.

    These are blames of kind "compute" and "wrong".
    """
    samples: dict[str, list[NodeSample]] = defaultdict(list)
    for sample in measured.singles:
        if not sample.error:
            samples[sample.node].append(sample)
    usual = _usual_by_model(measured, limits)
    found = []
    for node, own in samples.items():
        wrong = [sample.wrong for sample in own if sample.wrong]
        if wrong:
            found.append(Blame(kind="wrong", nodes=(node,), error=wrong[0], times=len(wrong), looks=len(own)))
        slow = _slow(node, own, usual, limits)
        if slow is not None:
            found.append(slow)
    return found


def _usual_by_model(measured: Measured, limits: Limits) -> dict[str, _Usual]:
    of: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in measured.singles:
        for speed in sample.compute.values():
            of[sample.model][sample.node].append(speed)
    found = {}
    for model, nodes in of.items():
        each = sorted(median(speeds) for speeds in nodes.values())
        middle = each[len(each) // 2]
        if middle <= 0:
            continue
        near = [s for speeds in nodes.values() for s in speeds if s >= NEAR * middle]
        sigma = MAD_TO_SIGMA * median(abs(math.log(s / middle)) for s in near)
        share = max(FLOOR_MIN, min(limits.slow_below, math.exp(-limits.sigmas * sigma)))
        found[model] = _Usual(middle, middle * share, len(nodes))
    return found


def _slow(node: str, own: Sequence[NodeSample], usual: dict[str, _Usual], limits: Limits) -> Blame | None:
    worst: list[tuple[float, str]] = []  # speed, device: where a device was slow
    slow_times = looks = 0
    expected = 0.0
    for sample in own:
        there = usual.get(sample.model)
        if there is None or not sample.compute:
            continue
        looks += 1
        expected = there.middle
        device = min(sample.compute, key=lambda name: sample.compute[name])
        if there.nodes > 1 and sample.compute[device] < there.slow:
            slow_times += 1
            worst.append((sample.compute[device], device))
    if slow_times < TIMES_MIN:
        return None
    chance = limits.hiccup**slow_times * (1 - limits.hiccup) ** (looks - slow_times)
    if likelihood(slow_times, looks) * limits.fault_before < limits.odds * chance:
        return None
    return Blame(
        kind="compute",
        nodes=(node,),
        what=max((device for _, device in worst), key=[device for _, device in worst].count),
        speed=median(speed for speed, _ in worst),
        expected=expected,
        times=slow_times,
        looks=looks,
        others=max(there.nodes for there in usual.values()) - 1,
    )
