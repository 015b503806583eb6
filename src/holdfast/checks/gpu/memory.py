"""Checks the memory of GPUs: ECC errors, row remapping, retired pages, and the recovery action that the
driver requests.
"""

from collections.abc import Iterator
from typing import Any

from holdfast.checks.readers.nvml import ABSENT, Answer, Device, Nvml
from holdfast.checks.readers.nvml_checks import asked, nvml_spec, opened
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.gpu.memory import Errors, Repairs, judge_errors, judge_recovery, judge_repairs
from holdfast.core.checks.gpu.readings import Gpu, Unread
from holdfast.model.checks import Fact, Finding, Scene

RECOVERY_ACTION = 230
CORRECTED, UNCORRECTED = 0, 1
VOLATILE, LIFETIME = 0, 1
MULTIPLE_SINGLE_BIT, DOUBLE_BIT = 0, 1  # why a page was retired


def errors(scene: Scene) -> Iterator[Seen]:
    library = opened()
    if isinstance(library, Finding):
        yield library
        return
    modes, unread = asked(library, "DeviceGetEccMode")
    seen = []
    for device, mode in modes:
        read = _errors(library, device, mode)
        if isinstance(read, Unread):
            unread.append(read)
            continue
        seen.append(read)
        if device.gpu.key and read.is_on:
            yield Fact(name="ecc", value=True, device=device.gpu.key, learn=True)
    yield from judge_errors(seen, unread, scene.baseline)


def _errors(library: Nvml, device: Device, mode: Answer) -> Errors | Unread:
    gpu, handle = device
    now, later = (bool(one) for one in mode.value)
    if not now:
        return Errors(gpu=gpu, is_on=False, will_be_on=later)
    volatile = library.ask("DeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE)
    if volatile.trouble:
        return Unread(gpu.where, volatile.why)
    corrected = library.ask("DeviceGetTotalEccErrors", handle, CORRECTED, VOLATILE)
    lifetime = library.ask("DeviceGetTotalEccErrors", handle, UNCORRECTED, LIFETIME)
    sram = library.filled("DeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", handle).value
    return Errors(
        gpu=gpu,
        will_be_on=later,
        uncorrected=volatile.value,
        corrected=corrected.value,
        uncorrected_lifetime=lifetime.value,
        sram_uncorrected=sram and int(sram.volatileUncParity + sram.volatileUncSecDed),
        sram_lifetime=sram and int(sram.aggregateUncParity + sram.aggregateUncSecDed),
        is_sram_worn=bool(sram and sram.bThresholdExceeded),
        recovery=_recovery(library, handle).value,
    )


def repairs(scene: Scene) -> Iterator[Seen]:
    library = opened()
    if isinstance(library, Finding):
        yield library
        return
    devices, unread = library.readable()
    seen = []
    for gpu, handle in devices:
        rows = library.ask("DeviceGetRemappedRows", handle)
        pages = _retired(library, handle)
        if rows.trouble and pages is None and rows.trouble != ABSENT:
            unread.append(Unread(gpu.where, rows.why))
            continue
        seen.append(_repairs(library, gpu, handle, rows, pages))
    yield from judge_repairs(seen, unread)


def _repairs(library: Nvml, gpu: Gpu, handle: Any, rows: Answer, pages: int | None) -> Repairs:
    corrected, uncorrected, is_pending, has_failed = rows.value or (0, 0, 0, 0)
    banks = library.ask("DeviceGetRowRemapperHistogram", handle).value
    waits = library.ask("DeviceGetRetiredPagesPendingStatus", handle).value
    channel_and_cluster = library.ask("DeviceGetRepairStatus", handle).value
    return Repairs(
        gpu=gpu,
        remapped=None if rows.trouble else int(corrected + uncorrected),
        is_pending=bool(is_pending),
        has_failed=bool(has_failed),
        full_banks=int(banks.none) if banks else 0,
        retired=pages,
        is_retirement_pending=bool(waits),
        wants_channel_repair=any(channel_and_cluster or ()),
    )


def _retired(library: Nvml, handle: Any) -> int | None:
    """Returns the number of retired memory pages of a GPU, of both causes; None if the GPU has no page
    retirement.
    """
    counts = [
        library.ask("DeviceGetRetiredPages", handle, cause) for cause in (MULTIPLE_SINGLE_BIT, DOUBLE_BIT)
    ]
    known = [len(one.value) for one in counts if not one.trouble]
    return sum(known) if known else None


def recovery(scene: Scene) -> Iterator[Seen]:
    library = opened()
    if isinstance(library, Finding):
        yield library
        return
    devices, unread = library.readable()
    answers = [(gpu, _recovery(library, handle)) for gpu, handle in devices]
    unread += [Unread(gpu.where, answer.why) for gpu, answer in answers if answer.trouble]
    seen = [(gpu, int(answer.value)) for gpu, answer in answers if not answer.trouble]
    yield from judge_recovery(seen, unread, scene.training)


def _recovery(library: Nvml, handle: Any) -> Answer:
    """Returns the recovery action that the driver requests for a GPU.

    Drivers before R565 do not report it.
    """
    return library.fields(handle, [library.constant("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", RECOVERY_ACTION)])[
        0
    ]


CHECKS = (
    Check(
        nvml_spec("gpu-ecc", "uncorrectable memory errors of GPUs", "GPU 显存不可纠正错误", quick=True),
        errors,
    ),
    Check(
        nvml_spec(
            "gpu-memory-repair",
            "GPU memory repairs (row remapping) that failed or wait for a reset",
            "GPU 显存修复（行重映射）失败或待重置",
            quick=True,
        ),
        repairs,
    ),
    Check(
        nvml_spec(
            "gpu-recovery-action",
            "the recovery action that the driver requests",
            "驱动要求的恢复动作",
            quick=True,
        ),
        recovery,
    ),
)
