"""Checks error counters and link flaps of RDMA ports: since boot, since the baseline, and between two
readings.
"""

import time
from collections.abc import Iterator

from holdfast.checks.readers.infiniband import counters, ports
from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.registry import Check, Seen
from holdfast.core import plurals
from holdfast.core.checks.counter_rise import Sample, risen
from holdfast.core.checks.node_findings import passed, skipped
from holdfast.core.checks.rdma import Counted, Port, judge_counters
from holdfast.model.checks import (
    BOOT,
    CONTINUOUS,
    EPILOG,
    MANUAL,
    ON_FAILURE,
    PROLOG,
    Baseline,
    Fact,
    Scene,
    Spec,
)
from holdfast.model.signatures import Words

BETWEEN_S = 1.0
NO_PORT = "no RDMA port is active"


def look_at_errors(scene: Scene) -> Iterator[Seen]:
    """Yields findings about error counters of RDMA ports that grow.

    The counters are read twice only during troubleshooting, because a boot check must be quick.
    """
    files = NodeFiles(scene)
    active = [port for port in ports(files) if port.is_active]
    if not active:
        yield skipped(NO_PORT)
        return
    first = {port.name: counters(files, port.device, port.number) for port in active}
    uptime_s = files.uptime_s()
    second = _again(files, active) if scene.context in (ON_FAILURE, MANUAL) and not scene.quick else {}
    for port in active:
        counted = _counted(port, first[port.name], second.get(port.name, {}), uptime_s, scene)
        yield from judge_counters(port.name, counted) or [
            passed(
                f"{plurals.counted(sum(first[port.name].values()), 'error or flap', 'errors and flaps')} since boot",
                port.name,
            )
        ]
        for name, value in first[port.name].items():
            yield Fact(name=name, value=value, device=port.key, learn=True)
        if first[port.name]:
            yield Fact(name="counted_s", value=scene.now_s, device=port.key, learn=True)


def _again(files: NodeFiles, active: list[Port]) -> dict[str, dict[str, int]]:
    time.sleep(BETWEEN_S)
    return {port.name: counters(files, port.device, port.number) for port in active}


def _counted(
    port: Port, first: dict[str, int], second: dict[str, int], uptime_s: float, scene: Scene
) -> list[Counted]:
    """Returns the error counters of a port that grew: between two readings, else since the baseline or
    boot.
    """
    found = [
        Counted(name=name, more=value - first[name], over_s=BETWEEN_S, since="a second ago")
        for name, value in second.items()
        if value > first.get(name, value)
    ]
    for name, value in first.items():
        before = _learned(scene.baseline, port.key, name)
        more, over_s, since = risen(value, before, now_s=scene.now_s, uptime_s=uptime_s)
        found.append(Counted(name=name, more=more, over_s=over_s, since=since))
    return found


def _learned(baseline: Baseline, key: str, name: str) -> Sample | None:
    value, at_s = baseline.of(key, name), baseline.of(key, "counted_s")
    return Sample(int(value), float(at_s)) if value is not None and at_s is not None else None


CHECKS = (
    Check(
        Spec(
            name="rdma-errors",
            area="rdma",
            what=Words(en="error counters and link flaps of RDMA ports", zh="RDMA 端口的错误计数与链路抖动"),
            contexts=(BOOT, PROLOG, EPILOG, CONTINUOUS, ON_FAILURE, MANUAL),
            timeout_s=4.0,
            quick=True,
        ),
        look_at_errors,
    ),
)
