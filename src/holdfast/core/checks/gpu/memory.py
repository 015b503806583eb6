"""Judges the memory of GPUs: errors, pending or failed repairs, and the recovery action that the driver requests.
Pure.

The driver's recommendation has precedence: if the driver requires no action, an uncorrected error fails the check but
does not isolate the node.

sources: NVIDIA, "GPU Memory Error Management" (row remapping, dynamic page retirement, when to return a board); NVML
API reference (nvmlDeviceGetGpuRecoveryAction)
"""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.checks.gpu.readings import REBOOT, REPLACE, RESET, Gpu, Unread, advice, answered
from holdfast.core.plurals import counted
from holdfast.model.checks import (
    BASELINE,
    DEVICE_FAULT,
    FAIL,
    NO_FAULT,
    RULE,
    STATED,
    WARN,
    Baseline,
    Finding,
)
from holdfast.model.signatures import Words

SRAM_LIFETIME_MAX = 4  # uncorrectable errors in caches over a board's life
RETIRED_PAGES_MAX = 60  # of 64 possible ones
NO_ACTION = 0


class Errors(Struct, frozen=True, kw_only=True):
    """The ECC state and error counts of one GPU; None for unknown values.

    `volatile`: since the driver was loaded or the GPU reset; `lifetime`: of the board. `recovery`: the action
    that the driver requests (field 230).
    """

    gpu: Gpu
    is_on: bool = True
    will_be_on: bool = True
    uncorrected: int | None = None
    corrected: int | None = None
    uncorrected_lifetime: int | None = None
    sram_uncorrected: int | None = None
    sram_lifetime: int | None = None
    is_sram_worn: bool = False  # more SRAM errors than the driver's limit
    recovery: int | None = None


class Repairs(Struct, frozen=True, kw_only=True):
    """The memory repairs of one GPU: row remapping (Ampere and later), retired pages (before); None if not
    supported.
    """

    gpu: Gpu
    remapped: int | None = None
    is_pending: bool = False
    has_failed: bool = False
    full_banks: int = 0  # banks without a spare row
    retired: int | None = None
    is_retirement_pending: bool = False
    wants_channel_repair: bool = False


def judge_errors(seen: Sequence[Errors], unread: Sequence[Unread], baseline: Baseline) -> list[Finding]:
    """Returns findings on memory errors and on disabled ECC."""
    troubles: list[Finding] = []
    silent = list(unread)
    good = 0
    for errors in seen:
        found = _errors(errors, baseline)
        troubles += found
        if not errors.is_on and not found:
            silent.append(Unread(errors.gpu.where, "ECC is off, so memory errors are not counted"))
        elif not found:
            good += 1
    corrected = sum(errors.corrected or 0 for errors in seen)
    old = sum(errors.uncorrected_lifetime or 0 for errors in seen)
    measured = (
        f"0 uncorrected errors on {counted(good, 'GPU')}; corrected {corrected}, uncorrected ever {old}"
    )
    return answered(troubles, silent, good, measured=measured, expected="0 uncorrected", whence=RULE)


def _errors(errors: Errors, baseline: Baseline) -> list[Finding]:
    where = errors.gpu.where
    if errors.is_sram_worn:
        return [
            _fault(where, f"{errors.sram_lifetime} SRAM errors", "below the driver's limit", "more uncorrectable ECC"
                   " errors in SRAM (caches, registers) than the driver allows", advice(REPLACE, where))
        ]  # fmt: skip
    if errors.sram_uncorrected:
        why = f"{counted(errors.sram_uncorrected, 'uncorrectable ECC error')} in SRAM (caches, registers) since the last reset"
        return [_uncorrected(errors, errors.sram_uncorrected, why)]
    if errors.uncorrected:
        why = f"{counted(errors.uncorrected, 'uncorrectable ECC error')} in memory since the last reset"
        return [_uncorrected(errors, errors.uncorrected, why)]
    if (errors.sram_lifetime or 0) > SRAM_LIFETIME_MAX:
        why = (
            f"{errors.sram_lifetime} uncorrectable ECC errors in SRAM (caches, registers) over the GPU's life"
        )
        return [_warning(where, f"{errors.sram_lifetime} ever", f"at most {SRAM_LIFETIME_MAX}", RULE, why,
                         advice(REPLACE, where))]  # fmt: skip
    if errors.is_on != errors.will_be_on:
        why = f"ECC is {_on(errors.is_on)} and will be {_on(errors.will_be_on)} after the next reset"
        return [_warning(where, _on(errors.is_on), _on(errors.will_be_on), STATED, why, advice(RESET, where))]
    if not errors.is_on and baseline.of(errors.gpu.key, "ecc") is True:
        words = Words(
            en="Enable ECC (`nvidia-smi -i {gpu} -e 1`) and reset the GPU: without ECC, memory errors corrupt the"
            " training unnoticed.",
            zh="启用 ECC（`nvidia-smi -i {gpu} -e 1`）并重置该 GPU：关闭时内存错误会悄然混入训练。",
        )
        return [_warning(where, "off", "on", BASELINE, "ECC was on here and is off", advice(words, where))]
    return []


def _uncorrected(errors: Errors, count: int, why: str) -> Finding:
    where = errors.gpu.where
    if errors.recovery == NO_ACTION:
        words = Words(
            en="The driver asks for no action, so the GPU can be used; reset {gpu} at the next pause, and have it"
            " inspected if the error recurs.",
            zh="驱动未要求任何动作：该 GPU 可继续使用；下次空闲时重置 {gpu}，若再次出现请检修。",
        )
        return _fault(where, f"{count} uncorrected", "0", why, advice(words, where), fault=NO_FAULT)
    return _fault(where, f"{count} uncorrected", "0", why, advice(RESET, where))


def judge_repairs(seen: Sequence[Repairs], unread: Sequence[Unread]) -> list[Finding]:
    """Returns findings on pending, failed and exhausted memory repairs."""
    silent = list(unread)
    troubles: list[Finding] = []
    good = 0
    for repairs in seen:
        found = _repairs(repairs)
        troubles += found
        if not found and repairs.remapped is None and repairs.retired is None:
            silent.append(
                Unread(repairs.gpu.where, "this GPU supports neither row remapping nor page retirement")
            )
        elif not found:
            good += 1
    rows = sum(repairs.remapped or 0 for repairs in seen)
    pages = sum(repairs.retired or 0 for repairs in seen)
    measured = f"nothing pending and nothing failed on {counted(good, 'GPU')}; {counted(rows, 'row')} remapped, {counted(pages, 'page')} retired"
    return answered(
        troubles, silent, good, measured=measured, expected="none pending, none failed", whence=STATED
    )


def _repairs(repairs: Repairs) -> list[Finding]:
    where = repairs.gpu.where
    if repairs.has_failed:
        why = "row remapping failed: a memory bank has no spare row left"
        return [_fault(where, "remapping failed", "none failed", why, advice(REPLACE, where))]
    if repairs.is_pending:
        why = "a row remapping is pending until the GPU is reset"
        return [_warning(where, "a remap is pending", "none pending", STATED, why, advice(RESET, where))]
    if repairs.is_retirement_pending:
        why = "a page retirement is pending until the GPU is reset"
        return [_warning(where, "a retirement is pending", "none pending", STATED, why, advice(RESET, where))]
    if repairs.wants_channel_repair:
        why = "a repair of a memory channel or a processor cluster is pending until the GPU is reset"
        return [_warning(where, "a repair is pending", "none pending", STATED, why, advice(RESET, where))]
    if repairs.full_banks:
        why = f"{counted(repairs.full_banks, 'bank')} of memory without a spare row: the next fault there cannot be repaired"
        measured = f"{counted(repairs.full_banks, 'bank')} exhausted"
        return [_warning(where, measured, "spare rows in every bank", STATED, why, advice(REPLACE, where))]
    if (repairs.retired or 0) >= RETIRED_PAGES_MAX:
        why = f"{repairs.retired} memory pages are retired; at most 64 can be"
        measured = f"{repairs.retired} pages"
        return [_warning(where, measured, f"below {RETIRED_PAGES_MAX}", RULE, why, advice(REPLACE, where))]
    return []


# By value of field 230: status, fault, description, advice. With 3 and 5, the device itself is healthy.
_DRAIN_P2P = Words(
    en="End the processes that use {gpu} with its peers, on all GPUs of the node; then check again: usually nothing more is"
    " needed.",
    zh="结束该节点上所有与 {gpu} 进行 P2P 通信的进程后再查询，通常无需其他操作。",
)
_DRAIN_RESET = Words(
    en="{gpu} runs with reduced capability: let running work end, then reset it (`nvidia-smi --gpu-reset -i {gpu}`).",
    zh="{gpu} 正以降级能力运行：待现有任务结束后重置（`nvidia-smi --gpu-reset -i {gpu}`）。",
)
_IMEX = Words(
    en="Restart nvidia-imex on the nodes of the NVLink domain and compare their node lists.",
    zh="在该 NVLink 域的各节点重启 nvidia-imex 并核对节点列表。",
)
_ACTIONS: dict[int, tuple[str, str, str, Words]] = {
    1: (FAIL, DEVICE_FAULT, "a reset of the GPU", RESET),
    2: (FAIL, DEVICE_FAULT, "a reboot of the node", REBOOT),
    3: (WARN, NO_FAULT, "a drain of peer-to-peer work", _DRAIN_P2P),
    4: (FAIL, DEVICE_FAULT, "a drain and reset of the GPU", _DRAIN_RESET),
    5: (WARN, NO_FAULT, "a recovery of the IMEX domain", _IMEX),
    6: (FAIL, DEVICE_FAULT, "a reset of the bus", REBOOT),
    7: (FAIL, DEVICE_FAULT, "a reboot of the system", REBOOT),
}


def judge_recovery(
    seen: Sequence[tuple[Gpu, int]], unread: Sequence[Unread], is_training: bool
) -> list[Finding]:
    """Returns findings about recovery actions that the driver requests.

    `seen`: each GPU and its requested action. `is_training`: work runs on the GPU, which may finish before the action
    "drain and reset".
    """
    troubles: list[Finding] = []
    silent = list(unread)
    good = 0
    for gpu, action in seen:
        if action == NO_ACTION:
            good += 1
            continue
        if action not in _ACTIONS:
            silent.append(Unread(gpu.where, f"the driver requests an unknown recovery action ({action})"))
            continue
        status, fault, name, words = _ACTIONS[action]
        if action == 4 and is_training:
            status, fault = WARN, NO_FAULT
        troubles.append(
            Finding(
                status=status,
                device=gpu.where,
                measured=f"the driver requests {name}",
                expected="nothing",
                whence=STATED,
                why=f"the driver requests {name} (recovery action {action})",
                advice=advice(words, gpu.where),
                fault=fault,
                category="gpu_fault",
            )
        )
    return answered(
        troubles,
        silent,
        good,
        measured=f"nothing, on {counted(good, 'GPU')}",
        expected="nothing",
        whence=STATED,
    )


def _fault(
    where: str, measured: str, expected: str, why: str, words: Words, *, fault: str = DEVICE_FAULT
) -> Finding:
    return Finding(
        status=FAIL,
        device=where,
        measured=measured,
        expected=expected,
        whence=STATED,
        why=why,
        advice=words,
        fault=fault,
        category="ecc_uncorrectable",
    )


def _warning(where: str, measured: str, expected: str, whence: str, why: str, words: Words) -> Finding:
    return Finding(
        status=WARN,
        device=where,
        measured=measured,
        expected=expected,
        whence=whence,
        why=why,
        advice=words,
        category="ecc_uncorrectable",
    )


def _on(is_on: bool) -> str:
    return "on" if is_on else "off"
