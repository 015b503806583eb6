"""Judges the benchmark results of GPUs: wrong results, errors, and a GPU that differs from the others of its node.
Pure.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct

from holdfast.core.checks.bench import Bench, Measure, measure, wrong_always, wrong_result
from holdfast.core.plurals import counted
from holdfast.model.checks import DEVICE_FAULT, FAIL, NO_FAULT, PASS, PEERS, RULE, SKIP, WARN, Fact, Finding
from holdfast.model.signatures import Words

TERA, GIGA = 1e12, 1e9
CATEGORY = "gpu_fault"
BUSY_PERCENT = 90
# Errors that a healthy device does not return for a program that other devices of the node run well.
_OF_THE_DEVICE = (
    "uncorrectable ecc",
    "unspecified launch failure",
    "illegal memory access",
    "illegal instruction",
    "misaligned address",
    "hardware stack error",
    "invalid program counter",
    "unknown error",
    "nvlink",
    "is lost",
    "contained",
)
_OF_NO_DEVICE = (
    "out of memory",
    "outofmemory",
    "no kernel image",
    "alloc_failed",
    "not compiled with",
    "not supported",
)
# source: NVML API reference, nvmlClocksEventReasons
_HELD_BACK = {
    0x04: "its power limit",
    0x08: "a hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "the power brake",
}


class Loaded(Struct, frozen=True, kw_only=True):
    """Readings of a GPU under load; None for unknown ones. `reasons`: bit mask of clock throttle reasons."""

    clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    busy_percent: int | None = None
    reasons: int = 0


class Ran(Struct, frozen=True, kw_only=True):
    """A benchmark of one GPU and its result.

    `answer`: the benchmark's output; empty if there is none. `unable`: why it could not start; `error`: why it
    failed.
    """

    key: str
    model: str
    where: str
    answer: dict[str, Any] = {}
    unable: str = ""
    error: str = ""
    is_late: bool = False
    seen: tuple[Loaded, ...] = ()

    @property
    def is_done(self) -> bool:
        """Returns whether the benchmark of the GPU ran to its end."""
        return not (self.unable or self.error)


def beside(seen: Sequence[Loaded]) -> str:
    """Returns the readings under load as text: "1755 MHz, up to 64 °C, up to 690 W, throttled by its power
    limit".
    """
    busy = [one for one in seen if one.busy_percent is None or one.busy_percent >= BUSY_PERCENT]
    clocks = [one.clock_mhz for one in busy if one.clock_mhz is not None]
    heats = [one.temperature_c for one in busy if one.temperature_c is not None]
    powers = [one.power_w for one in busy if one.power_w is not None]
    bits = 0
    for one in busy:
        bits |= one.reasons
    said = [f"{median(clocks):.0f} MHz"] if clocks else []
    said += [f"up to {max(heats)} °C"] if heats else []
    said += [f"up to {max(powers):.0f} W"] if powers else []
    said += [f"throttled by {words}" for bit, words in _HELD_BACK.items() if bits & bit]
    return ", ".join(said)


def failed(runs: Sequence[Ran]) -> Iterator[Finding]:
    """Yields findings for GPUs without a benchmark result. Their status depends on whether the other GPUs have
    one.
    """
    others_work = any(run.is_done for run in runs)
    for run in runs:
        if run.unable:
            yield Finding(status=SKIP, device=run.where, why=f"{run.where}: {run.unable}")
        elif run.is_late:
            yield _late(run, others_work)
        elif run.error:
            yield _error(run, others_work)


def _late(run: Ran, others_work: bool) -> Finding:
    beside_others = ", and the others here did" if others_work else ""
    return Finding(
        status=WARN,
        device=run.where,
        measured=run.error,
        expected="an end",
        whence=PEERS if others_work else RULE,
        why=f"{run.where} did not finish: {run.error}{beside_others}",
        advice=Words(
            en="Look for Xid messages in the kernel log; if the benchmark's process cannot be killed, reset the GPU or "
            "reboot the node.",
            zh="请查看内核日志中的 Xid 信息；若其进程无法结束，需要重置该 GPU 或重启节点。",
        ),
        category=CATEGORY,
    )


def _error(run: Ran, others_work: bool) -> Finding:
    said = run.error.lower()
    if any(words in said for words in _OF_NO_DEVICE):
        return Finding(status=SKIP, device=run.where, why=f"{run.where}: {run.error}")
    is_ecc = "uncorrectable ecc" in said
    is_broken = is_ecc or (others_work and any(words in said for words in _OF_THE_DEVICE))
    return Finding(
        status=FAIL if is_broken else WARN,
        device=run.where,
        measured=run.error,
        expected="no error",
        whence=PEERS if others_work else RULE,
        why=f"{run.where}: {run.error}",
        advice=Words(
            en="Look for Xid messages in the kernel log, reset the GPU or reboot the node, and run it again; if it comes "
            "back, keep the node out and have the GPU replaced.",
            zh="请查看内核日志中的 Xid 信息，重置该 GPU 或重启节点后重试；若复现，请隔离该节点并更换 GPU。",
        ),
        fault=DEVICE_FAULT if is_broken else NO_FAULT,
        category="ecc_uncorrectable" if is_ecc else CATEGORY,
    )


def wrong_products(runs: Sequence[Ran]) -> Iterator[Finding | Fact]:
    """Yields findings about matrix products whose bits differ between repeats, from the exact result, or from other
    GPUs.
    """
    done = [run for run in runs if run.is_done]
    sound = [run for run in done if not run.answer["wrong_repeats"] and not run.answer["wrong_rows"]]
    most = _most([run.answer["checksum"] for run in sound])
    good = [run for run in sound if run.answer["checksum"] == most]
    for run in done:
        answer = run.answer
        if answer["wrong_repeats"]:
            yield wrong_result(
                run.where,
                answer["wrong_repeats"],
                answer["repeats"],
                answer["where"],
                what=run.where,
                category=CATEGORY,
            )
        elif answer["wrong_rows"]:
            why = f"{run.where}: {counted(answer['wrong_rows'], 'row of a product differs', 'rows of a product differ')} from integer arithmetic"
            yield wrong_always(run.where, why, others_are_right=bool(good), category=CATEGORY)
        elif most and answer["checksum"] != most:
            why = f"{run.where}: its product is not that of most GPUs here"
            yield wrong_always(run.where, why, others_are_right=True, category=CATEGORY)
        else:
            yield Finding(
                status=PASS,
                device=run.where,
                measured=f"{answer['repeats']} products, all with the same bits",
                whence=RULE,
            )
        name = f"product {answer['type']} {answer['size']}"
        yield Fact(name=name, value=answer["checksum"], device=run.key, same=True)


def _most(values: Sequence[str]) -> str:
    """Returns the value that more than half of the GPUs have; empty if there is none, or only one GPU."""
    if len(values) < 2:
        return ""
    value, times = Counter(values).most_common(1)[0]
    return value if 2 * times > len(values) else ""


def wrong_copies(runs: Sequence[Ran]) -> Iterator[Finding]:
    """Yields findings about bytes that differ after a copy to the device and back."""
    for run in runs:
        if run.is_done and run.answer["wrong_bytes"]:
            why = f"{run.where}: {counted(run.answer['wrong_bytes'], 'byte')} were corrupted by a copy to it and back"
            yield wrong_always(run.where, why, others_are_right=True, category=CATEGORY)


def wrong_sums(runs: Sequence[Ran]) -> Iterator[Finding]:
    """Yields findings about devices on which a sum of constant elements is wrong."""
    for run in runs:
        if run.is_done and run.answer["wrong_elements"]:
            why = f"{run.where}: {run.answer['wrong_elements']} elements of the sum of two arrays are wrong"
            yield wrong_always(run.where, why, others_are_right=True, category=CATEGORY)


# Numbers -------------------------------------------------------------------------------------------------


def burn_bench(run: Ran) -> Bench:
    """Returns the benchmark result of matrix multiplication, in TFLOP/s."""
    answer = run.answer
    name = f"matmul {answer['type']} {answer['size']}, {answer['library']}"
    return _bench(run, (measure(name, answer["rates"], "TFLOP/s", TERA),))


def triad_bench(run: Ran) -> Bench:
    """Returns the benchmark result of memory bandwidth, in GB/s."""
    name = f"memory triad, {run.answer['library']}"
    return _bench(run, (measure(name, run.answer["rates"], "GB/s", GIGA, best=True),))


def copy_bench(run: Ran) -> Bench:
    """Returns the benchmark result of copies between host and device, in GB/s."""
    ways: Mapping[str, Sequence[float]] = run.answer["ways"]
    return _bench(
        run,
        tuple(
            measure(f"copy {name}", rates, "GB/s", GIGA, best="pinned" in name)
            for name, rates in ways.items()
        ),
    )


def training_bench(run: Ran, measures: tuple[Measure, ...], words: str) -> Bench:
    """Returns the benchmark result of a model's training step."""
    return _bench(run, measures, words)


def _bench(run: Ran, measures: tuple[Measure, ...], more: str = "") -> Bench:
    said = ", ".join(filter(None, (more, beside(run.seen))))
    return Bench(key=run.key, model=run.model, measures=measures, where=run.where, beside=said)
