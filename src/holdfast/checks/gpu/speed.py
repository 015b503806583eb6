"""Checks what slows GPUs down: reduced clocks, power limits and high temperature."""

import time
from collections.abc import Iterator
from typing import Any

from holdfast.checks.readers.nvml import ABSENT, Answer, Nvml
from holdfast.checks.readers.nvml_checks import nvml_spec, opened, option_s
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.gpu.readings import Unread
from holdfast.core.checks.gpu.speed import Clocks, Heat, clock_facts, judge_clocks, judge_heat
from holdfast.model.checks import Finding, Scene

QUICK_LOOKS, LOOKS = 3, 7
BETWEEN_S = 0.15
_MEMORY_TEMPERATURE, _SLOWDOWN_MARGIN = 82, 194  # field ids
_THRESHOLD_SLOWDOWN, _THRESHOLD_MEMORY = 1, 2


def clocks(scene: Scene) -> Iterator[Seen]:
    library = opened()
    if isinstance(library, Finding):
        yield library
        return
    devices, unread = library.readable()
    reasons: dict[int, list[int]] = {device.gpu.index: [] for device in devices}
    failed: dict[int, str] = {}
    between_s = option_s(scene, "gpu-clocks.between_s", BETWEEN_S)
    for look in range(QUICK_LOOKS if scene.quick else LOOKS):
        if look:
            time.sleep(between_s)
        for gpu, handle in devices:
            answer = _reasons(library, handle)
            if answer.trouble == ABSENT or not answer.trouble:
                reasons[gpu.index] += [] if answer.trouble else [int(answer.value)]
            else:
                failed[gpu.index] = answer.why
    unread += [Unread(gpu.where, failed[gpu.index]) for gpu, _ in devices if gpu.index in failed]
    seen = [
        Clocks(
            gpu=gpu,
            reasons=tuple(reasons[gpu.index]),
            limit_w=_watts(library.ask("DeviceGetEnforcedPowerLimit", handle)),
            default_w=_watts(library.ask("DeviceGetPowerManagementDefaultLimit", handle)),
        )
        for gpu, handle in devices
        if gpu.index not in failed
    ]
    yield from clock_facts(seen)
    yield from judge_clocks(seen, unread, scene.baseline)


def _reasons(library: Nvml, handle: Any) -> Answer:
    answer = library.ask("DeviceGetCurrentClocksEventReasons", handle)
    if answer.trouble == ABSENT:  # as drivers before R535 call it
        return library.ask("DeviceGetCurrentClocksThrottleReasons", handle)
    return answer


def _watts(answer: Answer) -> float | None:
    return answer.value / 1000 if answer.value else None


def temperature(scene: Scene) -> Iterator[Seen]:
    library = opened()
    if isinstance(library, Finding):
        yield library
        return
    devices, unread = library.readable()
    seen = []
    for gpu, handle in devices:
        degrees = library.ask("DeviceGetTemperature", handle, 0)
        if degrees.trouble:
            unread.append(Unread(gpu.where, degrees.why))
            continue
        memory, offset = library.fields(handle, [_MEMORY_TEMPERATURE, _SLOWDOWN_MARGIN])
        margin = library.ask("DeviceGetMarginTemperature", handle)
        has_margin = not margin.trouble and not offset.trouble
        seen.append(
            Heat(
                gpu=gpu,
                degrees=int(degrees.value),
                slowdown=library.ask("DeviceGetTemperatureThreshold", handle, _THRESHOLD_SLOWDOWN).value,
                left=int(margin.value) - _signed(int(offset.value)) if has_margin else None,
                memory=int(memory.value) if memory.value else None,
                memory_max=library.ask("DeviceGetTemperatureThreshold", handle, _THRESHOLD_MEMORY).value,
            )
        )
    yield from judge_heat(seen, unread)


def _signed(value: int) -> int:
    """Converts an unsigned 32-bit number to a signed one; some drivers report negative temperature offsets
    as unsigned.
    """
    return value - (1 << 32) if 1 << 31 <= value < 1 << 32 else value


CHECKS = (
    Check(
        nvml_spec("gpu-clocks", "no GPU runs at reduced clocks for long", "GPU 无持续降频", quick=True),
        clocks,
    ),
    Check(
        nvml_spec("gpu-temperature", "GPU temperatures are below their limits", "GPU 温度余量", quick=True),
        temperature,
    ),
)
