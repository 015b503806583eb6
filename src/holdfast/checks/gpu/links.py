"""Checks the connections of GPUs: NVLink, PCIe, the NVSwitch fabric, and peer-to-peer access."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.checks.readers.nvml import Answer, Device, Nvml, first_trouble
from holdfast.checks.readers.nvml_checks import is_divided, nvml_spec, opened, option_s, read
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.gpu.links import (
    RECOVERY_FAILED,
    Fabric,
    NvLinks,
    Pair,
    PcieLink,
    Switches,
    judge_fabric,
    judge_nvlinks,
    judge_pcie,
    judge_peers,
    nvlink_facts,
    pcie_facts,
)
from holdfast.core.checks.gpu.readings import Unread
from holdfast.model.checks import Fact, Finding, Scene

LINKS_MAX = 36
DURING_S = 0.3  # between two looks at counters
# Field ids: totals over all links of a GPU up to NVLink 4, and one of NVLink 5, which is asked by link.
_TOTALS = {"data CRC errors": 45, "replays": 52, "recoveries": 59}
_RECOVERY_FAILED_EVENTS = 214
_C2C_LINK_COUNT = 170
DIVIDED = "MIG is on, and with it NVLink and peer access are off"
_P2P_READ = 0
_P2P_WORDS = {
    1: "chipset not supported",
    2: "GPU not supported",
    3: "topology not supported",
    4: "disabled by a setting",
    5: "not supported",
}
NVSWITCH_CLASS = "0x0680"
MANAGER = "nv-fabricmanage"  # nv-fabricmanager: the kernel keeps 15 characters


def nvlink(scene: Scene) -> Iterator[Seen]:
    library = opened()
    if isinstance(library, Finding):
        yield library
        return
    devices, unread = library.readable()
    links: list[tuple[Device, tuple[bool, ...]]] = []
    for device in devices:
        if is_divided(library, device.handle):
            unread.append(Unread(device.gpu.where, DIVIDED))
            continue
        states = _states(library, device.handle)
        if isinstance(states, str):
            unread.append(Unread(device.gpu.where, states))
        else:
            links.append((device, states))
    before = {
        device.gpu.index: _link_errors(library, device.handle, len(up)) for device, up in links if any(up)
    }
    if before:
        time.sleep(option_s(scene, "gpu-nvlink.during_s", DURING_S))
    seen = []
    for (gpu, handle), up in links:
        errors = _link_errors(library, handle, len(up)) if gpu.index in before else {}
        new = {kind: max(0, count - before[gpu.index].get(kind, count)) for kind, count in errors.items()}
        seen.append(NvLinks(gpu=gpu, states=up, errors=errors, new=new))
    yield from nvlink_facts(seen)
    yield from judge_nvlinks(seen, unread, scene.baseline)


def _states(library: Nvml, handle: Any) -> tuple[bool, ...] | str:
    """Returns whether each NVLink of a GPU is active, or the reason why it is unknown."""
    states: list[bool] = []
    for link in range(LINKS_MAX):
        answer = library.ask("DeviceGetNvLinkState", handle, link)
        if answer.trouble == "absent":
            break
        if answer.trouble:
            return answer.why
        states.append(bool(answer.value))
    return tuple(states)


def _link_errors(library: Nvml, handle: Any, links: int) -> dict[str, int]:
    totals = library.fields(handle, list(_TOTALS.values()))
    counts = {
        kind: int(answer.value) for kind, answer in zip(_TOTALS, totals, strict=True) if not answer.trouble
    }
    by_link = library.fields(handle, [(_RECOVERY_FAILED_EVENTS, link) for link in range(links)])
    failed = [int(answer.value) for answer in by_link if not answer.trouble]
    return counts | ({RECOVERY_FAILED: sum(failed)} if failed else {})


def pcie(scene: Scene) -> Iterator[Seen]:
    library = opened()
    if isinstance(library, Finding):
        yield library
        return
    devices, unread = library.readable()
    began_s = time.monotonic()
    before = [library.ask("DeviceGetPcieReplayCounter", device.handle) for device in devices]
    if any(not answer.trouble for answer in before):
        time.sleep(option_s(scene, "gpu-pcie.during_s", DURING_S))
    seen = []
    for device, replays in zip(devices, before, strict=True):
        link = _pcie(library, device, replays, began_s)
        if isinstance(link, Unread):
            unread.append(link)
        else:
            seen.append(link)
    yield from pcie_facts(seen)
    yield from judge_pcie(seen, unread, scene.baseline)


def _pcie(library: Nvml, device: Device, replays_before: Answer, began_s: float) -> PcieLink | Unread:
    gpu, handle = device
    width = library.ask("DeviceGetCurrPcieLinkWidth", handle)
    if width.trouble:
        return Unread(gpu.where, width.why)
    if library.fields(handle, [_C2C_LINK_COUNT])[0].value:
        return Unread(
            gpu.where, "the GPU is connected to its CPU by NVLink-C2C and transfers no data over PCIe"
        )
    clock = library.ask("DeviceGetClockInfo", handle, 1).value
    highest = library.ask("DeviceGetMaxClockInfo", handle, 1).value
    rates = library.ask("DeviceGetUtilizationRates", handle).value
    replays = library.ask("DeviceGetPcieReplayCounter", handle)
    both = not (replays.trouble or replays_before.trouble)
    return PcieLink(
        gpu=gpu,
        width=width.value,
        width_max=library.ask("DeviceGetMaxPcieLinkWidth", handle).value,
        generation=library.ask("DeviceGetCurrPcieLinkGeneration", handle).value,
        generation_max=library.ask("DeviceGetMaxPcieLinkGeneration", handle).value,
        performance_state=library.ask("DeviceGetPowerState", handle).value,
        clock=clock / highest if clock and highest else None,
        utilization=rates.gpu / 100 if rates else None,
        new_replays=max(0, replays.value - replays_before.value) if both else 0,
        during_s=time.monotonic() - began_s if both else 0.0,
    )


def fabric(scene: Scene) -> Iterator[Seen]:
    library = opened()
    if isinstance(library, Finding):
        yield library
        return
    devices, unread = library.readable()
    seen = []
    for gpu, handle in devices:
        info = library.filled("DeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t", handle)
        if info.trouble == "absent":
            seen.append(Fabric(gpu=gpu, state=0))
        elif info.trouble:
            unread.append(Unread(gpu.where, info.why))
        else:
            value = info.value
            seen.append(Fabric(gpu=gpu, state=value.state, status=value.status, health=value.healthMask))
    yield from judge_fabric(seen, unread, _switches(Path(scene.root)))


def _switches(root: Path) -> Switches:
    try:
        folders = list((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        folders = []
    count = sum(
        read(folder / "vendor").strip() == "0x10de" and read(folder / "class").startswith(NVSWITCH_CLASS)
        for folder in folders
    )
    return Switches(count=count, is_managed=_is_managed(root / "proc") if count else None)


def _is_managed(proc: Path) -> bool | None:
    """Returns whether the NVIDIA Fabric Manager runs; None if the processes of the host are not visible
    from here.
    """
    try:
        names = {read(folder / "comm").strip() for folder in proc.iterdir() if folder.name.isdecimal()}
    except OSError:
        return None
    if MANAGER in names:
        return True
    return False if "kthreadd" in names else None


def peer(scene: Scene) -> Iterator[Seen]:
    library = opened()
    if isinstance(library, Finding):
        yield library
        return
    devices, unread = library.readable()
    unread += [Unread(gpu.where, DIVIDED) for gpu, handle in devices if is_divided(library, handle)]
    devices = tuple(device for device in devices if not is_divided(library, device.handle))
    pairs = []
    answers = []
    for place, (one, one_handle) in enumerate(devices):
        for other, other_handle in devices[place + 1 :]:
            answer = library.ask("DeviceGetP2PStatus", one_handle, other_handle, _P2P_READ)
            answers.append(answer)
            if not answer.trouble:
                why = _P2P_WORDS.get(answer.value, f"NVML status {answer.value}")
                pairs.append(
                    Pair(one.index, other.index, answer.value == 0, "" if answer.value == 0 else why)
                )
    if answers and not pairs:
        unread.append(Unread("NVML", first_trouble(answers)))
    good = sum(pair.can for pair in pairs)
    if good:
        yield Fact(name="peer pairs", value=good, learn=True)
        yield Fact(name="peer gpus", value=len(devices), learn=True)
    yield from judge_peers(pairs, [gpu for gpu, _ in devices], unread, scene.baseline)


CHECKS = (
    Check(
        nvml_spec("gpu-nvlink", "NVLinks are active and without errors", "NVLink 状态与错误", quick=True),
        nvlink,
    ),
    Check(
        nvml_spec("gpu-pcie", "PCIe link width, generation and replays", "PCIe 宽度、代数与重传", quick=True),
        pcie,
    ),
    Check(
        nvml_spec("gpu-fabric", "the NVSwitch fabric is initialised", "NVSwitch fabric 已就绪", quick=True),
        fabric,
    ),
    Check(
        nvml_spec("gpu-peer", "GPUs can access each other's memory (P2P)", "GPU 间可直接访问（P2P）"), peer
    ),
)
