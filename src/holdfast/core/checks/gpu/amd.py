"""Parses and judges the output of `amd-smi static --json` and `amd-smi metric --json` for AMD GPUs. Pure.

    [{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X", "asic_serial": "0x1A2B"},
      "bus": {"bdf": "0000:0C:00.0", "max_pcie_width": 16}, "limit": {"slowdown_hotspot_temperature": {"value": 100}}}]
    [{"gpu": 0, "temperature": {"hotspot": {"value": 42, "unit": "C"}}, "pcie": {"width": 16},
      "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": 0},
      "throttle": {"ppt_violation_status": "NOT ACTIVE", "socket_thermal_violation_status": "NOT ACTIVE"}}]

Later versions put the list below "gpu_data". Unsupported values are "N/A".

source: ROCm, AMD SMI CLI tool (6.0 to 7.1)
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.core.plurals import counted
from holdfast.model.checks import (
    BASELINE,
    DEVICE_FAULT,
    FAIL,
    NO_FAULT,
    PASS,
    RULE,
    SKIP,
    STATED,
    WARN,
    Baseline,
    Fact,
    Finding,
)
from holdfast.model.signatures import Words

COUNT = "AMD GPUs"
MARGIN_MIN_C = 3
_THROTTLES = {  # keys of "throttle" without "_violation_status"; the power limit is normal at full load
    "prochot": "its processor is too hot",
    "socket_thermal": "its socket is too hot",
    "vr_thermal": "its voltage regulator is too hot",
    "hbm_thermal": "its memory is too hot",
}


class AmdGpu(Struct, frozen=True, kw_only=True):
    """One AMD GPU with its readings; None for unknown ones. `throttles`: thermal throttle reasons."""

    index: int
    address: str = ""
    name: str = ""
    serial: str = ""
    uncorrected: int | None = None
    corrected: int | None = None
    hotspot: float | None = None
    slowdown: float | None = None
    width: int | None = None
    width_max: int | None = None
    throttles: tuple[str, ...] | None = None

    @property
    def where(self) -> str:
        """Returns the GPU's name for users: its PCI address, else its index."""
        return self.address or f"GPU {self.index}"


def amd_gpus(static: str, metric: str) -> tuple[AmdGpu, ...]:
    """Parses the AMD GPUs, by index, in two JSON outputs of amd-smi. Values missing in both are None.

    Empty if neither output can be parsed.
    """
    known = {_index(one, place): one for place, one in enumerate(_documents(static))}
    metrics = {_index(one, place): one for place, one in enumerate(_documents(metric))}
    return tuple(
        _gpu(index, known.get(index, {}), metrics.get(index, {})) for index in sorted({*known, *metrics})
    )


def _documents(text: str) -> list[Mapping[str, Any]]:
    """Returns the parsed JSON list; text before it, such as warnings, is ignored."""
    begins = [place for place in (text.find("["), text.find("{")) if place >= 0]
    if not begins:
        return []
    try:
        document = msgspec.json.decode(text[min(begins) :])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    if isinstance(document, dict):
        document = document.get("gpu_data", [document])
    return [one for one in document if isinstance(one, dict)] if isinstance(document, list) else []


def _index(one: Mapping[str, Any], place: int) -> int:
    index = one.get("gpu")
    return index if isinstance(index, int) else place


def _gpu(index: int, static: Mapping[str, Any], metric: Mapping[str, Any]) -> AmdGpu:
    asic, bus, limit = (_part(static, name) for name in ("asic", "bus", "limit"))
    ecc, pcie, heat = (_part(metric, name) for name in ("ecc", "pcie", "temperature"))
    corrected, uncorrected = (
        _number(ecc.get("total_correctable_count")),
        _number(ecc.get("total_uncorrectable_count")),
    )
    return AmdGpu(
        index=index,
        address=_word(bus.get("bdf")).lower(),
        name=_word(asic.get("market_name")),
        serial=_word(asic.get("asic_serial")),
        uncorrected=None if uncorrected is None else int(uncorrected),
        corrected=None if corrected is None else int(corrected),
        hotspot=_number(heat.get("hotspot")),
        slowdown=_number(limit.get("slowdown_hotspot_temperature")),
        width=_whole(pcie.get("width")),
        width_max=_whole(bus.get("max_pcie_width")),
        throttles=_throttles(metric),
    )


def _throttles(metric: Mapping[str, Any]) -> tuple[str, ...] | None:
    throttle = _part(metric, "throttle")
    states = {name: _word(throttle.get(f"{name}_violation_status")) for name in _THROTTLES}
    if any(states.values()):
        return tuple(_THROTTLES[name] for name, state in states.items() if state.upper() == "ACTIVE")
    return None


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = document.get(name)
    return part if isinstance(part, dict) else {}


def _word(value: Any) -> str:
    return "" if value is None or value == "N/A" else str(value)


def _number(value: Any) -> float | None:
    """Returns the number in 42, "42" or {"value": 42, "unit": "C"}; None for "N/A"."""
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value.split()[0])
        except (ValueError, IndexError):
            return None
    return None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def amd_facts(gpus: Sequence[AmdGpu]) -> list[Fact]:
    """Returns facts for the baseline: number, models and PCIe widths of the GPUs."""
    facts = [Fact(name=COUNT, value=len(gpus), learn=True)] if gpus else []
    for gpu in gpus:
        values: dict[str, str | int | None] = {
            "name": gpu.name,
            "pci": gpu.address,
            "pcie width": gpu.width if gpu.width == gpu.width_max else None,
        }
        facts += [
            Fact(name=name, value=value, device=f"gpu:{gpu.serial}", learn=True, model=gpu.name)
            for name, value in values.items()
            if value and gpu.serial
        ]
    return facts


def judge_amd(gpus: Sequence[AmdGpu], on_bus: int | None, baseline: Baseline) -> list[Finding]:
    """Returns findings about AMD GPUs: their number, errors, temperature and links.

    `on_bus`: number of GPUs on the PCI bus with AMD's driver; None if not visible.
    """
    if not gpus and not baseline.of("node", COUNT):
        return [Finding(status=SKIP, why="amd-smi names no GPU")]
    found = [*_missing(gpus, on_bus, baseline)]
    for gpu in gpus:
        found += _of_gpu(gpu, gpus)
    if found:
        return found
    silent = [gpu for gpu in gpus if gpu.uncorrected is None]
    if silent:
        found.append(Finding(status=SKIP, why=f"{silent[0].where}: it reports no ECC errors"))
    corrected = sum(gpu.corrected or 0 for gpu in gpus)
    measured = f"{counted(len(gpus), 'GPU')}, 0 uncorrected errors, {corrected} corrected, none too hot"
    return [*found, Finding(status=PASS, measured=measured)] if len(silent) < len(gpus) else found


def _missing(gpus: Sequence[AmdGpu], on_bus: int | None, baseline: Baseline) -> Iterable[Finding]:
    learned = baseline.of("node", COUNT)
    if not isinstance(learned, int) or len(gpus) >= learned:
        return
    has_left = on_bus is not None and on_bus < learned
    yield Finding(
        status=FAIL if has_left else WARN,
        measured=counted(len(gpus), "GPU"),
        expected=counted(learned, "GPU"),
        whence=BASELINE,
        why=f"{learned - len(gpus)} of the {learned} AMD GPUs that this node had are missing",
        advice=Words(
            en="Check `amd-smi list`, `lspci -d 1002:` and the kernel log for amdgpu lines; power-cycle the node. If"
            " it was removed on purpose: `holdfast check --baseline reset`.",
            zh="查看 `amd-smi list`、`lspci -d 1002:` 与内核日志中的 amdgpu 行；断电重启节点。若为有意移除："
            "`holdfast check --baseline reset`。",
        ),
        fault=DEVICE_FAULT if has_left else NO_FAULT,
        category="gpu_missing",
    )


def _of_gpu(gpu: AmdGpu, gpus: Sequence[AmdGpu]) -> Iterable[Finding]:
    if gpu.uncorrected:
        yield Finding(
            status=FAIL,
            device=gpu.where,
            measured=f"{gpu.uncorrected} uncorrected",
            expected="0",
            whence=STATED,
            why=f"{counted(gpu.uncorrected, 'uncorrected error')} since the driver was loaded",
            advice=Words(
                en=f"Look at `amd-smi bad-pages -g {gpu.index}`, end what uses the GPU and reset it (`amd-smi reset -g"
                f" {gpu.index} --gpureset`); if the error count rises again, keep the node out and have the GPU replaced.",
                zh=f"查看 `amd-smi bad-pages -g {gpu.index}`，结束占用进程并重置（`amd-smi reset -g {gpu.index} --gpureset`）；"
                "若再次出现，隔离节点并更换。",
            ),
            fault=DEVICE_FAULT,
            category="ecc_uncorrectable",
        )
    if gpu.throttles:
        yield _hot(gpu, "; ".join(gpu.throttles), "not throttled", STATED, "; ".join(gpu.throttles))
    elif gpu.hotspot is not None and gpu.slowdown and gpu.hotspot > gpu.slowdown - MARGIN_MIN_C:
        measured = f"{gpu.hotspot:.0f} °C"
        yield _hot(
            gpu, measured, f"below {gpu.slowdown - MARGIN_MIN_C:.0f} °C", RULE, "it is about to slow down"
        )
    alike = [other.width for other in gpus if other.name == gpu.name]
    if gpu.width and gpu.width_max and gpu.width < gpu.width_max and (len(alike) < 2 or len({*alike}) > 1):
        yield Finding(
            status=WARN,
            device=gpu.where,
            measured=f"x{gpu.width}",
            expected=f"x{gpu.width_max}",
            whence=STATED,
            why="its PCIe link is narrower than possible",
            advice=Words(
                en=f"Power-cycle the node; if nothing changes, check how the GPU is seated and its riser ({gpu.where}).",
                zh=f"断电重启节点；若仍如此，检查 {gpu.where} 的转接卡与插接。",
            ),
            category="pcie_link_downgrade",
        )


def _hot(gpu: AmdGpu, measured: str, expected: str, whence: str, why: str) -> Finding:
    return Finding(
        status=WARN,
        device=gpu.where,
        measured=measured,
        expected=expected,
        whence=whence,
        why=why,
        advice=Words(
            en=f"Look at fans, air flow and dust of {gpu.where}, and at the temperature of the room.",
            zh=f"检查 {gpu.where} 的风扇、风道、积灰与机房温度。",
        ),
        category="thermal_throttle",
    )
