"""The GPU part of the fault matrix: faults put into a node, each with the check that is to find it; and healthy nodes.

A healthy node gives no warning and no failure. A fault is found by its check, with its advice, and by no other.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from fake_nvml.node import ALL_GPU, BOOTED_S, Node, address
from fake_nvml.worker import Worker
from holdfast.model.checks import DEVICE_FAULT, FAIL, NO_FAULT, WARN, Baseline, Outcome

LOADED = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07"
LEARNED = Baseline(
    facts={
        "node": {"NVIDIA GPUs": 8, "NVIDIA GPUs on the PCI bus": 8, "peer pairs": 28, "peer gpus": 8},
        **{
            f"gpu:16524{index:08}": {
                "pci": address(index),
                "nvlinks": 18,
                "pcie width": 16,
                "pcie generation max": 5,
                "power limit": 700,
                "ecc": True,
                "persistence": True,
            }
            for index in range(8)
        },
    }
)
WORKS = {"gpu.*.util": 98, "gpu.*.pstate": 0, "gpu.*.sm_clock": 1900}
State = dict[str, Any]


class Found(NamedTuple):
    """`advice`: a word that stands in it. `also`: checks that may speak of the same fault."""

    check: str
    status: str
    fault: str
    category: str
    advice: str
    also: tuple[str, ...] = ()


class Case(NamedTuple):
    """`before`: state at first, when all is well and the driver is open; then `state` comes. None: at once."""

    name: str
    state: State
    found: Found | None = None
    build: Callable[[Node], None] = lambda node: eight(node)
    scene: State = {}
    before: State | None = None
    old: bool = False


def eight(node: Node, count: int = 8) -> None:
    for index in range(count):
        node.on_bus(index)
    node.driver_loaded()
    node.kernel_says(LOADED)


def only(count: int) -> Callable[[Node], None]:
    return lambda node: eight(node, count)


def says(*lines: str, after_s: Iterable[float] = ()) -> Callable[[Node], None]:
    def build(node: Node) -> None:
        eight(node)
        node.kernel_says(LOADED, *lines, after_s=after_s)

    return build


def with_process(pid: int, name: str, parent: int = 1) -> Callable[[Node], None]:
    def build(node: Node) -> None:
        eight(node)
        node.process(pid, name, parent)

    return build


def switches(*processes: str) -> Callable[[Node], None]:
    def build(node: Node) -> None:
        eight(node)
        for number in range(4):
            node.switch(number)
        for pid, name in enumerate(processes, 2):
            node.process(pid, name)

    return build


def bare(node: Node) -> None:
    """Neither PCI nor /proc nor the kernel's log are to be seen."""


def _xid(code: int, text: str, bus: int = 0x1A) -> str:
    return f"NVRM: Xid (PCI:0000:{bus:02x}:00): {code}, {text}"


def _missing_card(node: Node) -> None:
    for index in range(7):
        node.on_bus(index)
    node.driver_loaded()
    node.kernel_says(LOADED)


def _untaken_card(node: Node) -> None:
    for index in range(7):
        node.on_bus(index)
    node.on_bus(7, driver="", known=False, ours=False)
    node.driver_loaded()


def _ghost_card(node: Node) -> None:
    eight(node)


def _not_loaded(node: Node) -> None:
    for index in range(8):
        node.on_bus(index, known=False, driver="", ours=False)


def _newer_module(node: Node) -> None:
    eight(node)
    node.driver_loaded("560.35.03")


DOWN = {f"gpu.4.nvlink.{link}": 0 for link in (3, 9)}
ECC = "ecc_uncorrectable"
MISSING = "gpu_missing"
GOOD_S = {"good_s": BOOTED_S + 150.0}  # a good run 150 s after the boot

FAULTS = (
    Case("a GPU is lost", {"gpu.3.lost": 2}, Found("gpu-count", FAIL, DEVICE_FAULT, MISSING, "reboot")),
    Case("a GPU is lost while asked", {"gpu.3.lost": 1}, Found("gpu-count", FAIL, DEVICE_FAULT, MISSING, "reboot"),
         before={}),
    Case("the handle of a GPU cannot be had", {"gpu.1.error.DeviceGetHandleByIndex": 999},
         Found("gpu-count", FAIL, DEVICE_FAULT, MISSING, "power-cycle")),
    Case("a GPU wants a reset before it answers", {"gpu.1.error.DeviceGetHandleByIndex": 16},
         Found("gpu-count", FAIL, DEVICE_FAULT, MISSING, "reboot"), before={}),
    Case("a GPU has left the bus", {"count": 7}, Found("gpu-count", FAIL, DEVICE_FAULT, MISSING, "--baseline reset"),
         build=_missing_card, scene={"baseline": LEARNED}),
    Case("no driver took a GPU", {"count": 7}, Found("gpu-count", WARN, NO_FAULT, MISSING, "reboot"),
         build=_untaken_card),
    Case("the driver knows a GPU, NVML does not", {"count": 7},
         Found("gpu-count", FAIL, DEVICE_FAULT, MISSING, "reboot"), build=_ghost_card),
    Case("fewer GPUs than learned, no view of the bus", {"count": 6},
         Found("gpu-count", WARN, NO_FAULT, MISSING, "--baseline reset"), build=bare, scene={"baseline": LEARNED}),
    Case("more ranks than GPUs", {"count": 4}, Found("gpu-count", WARN, NO_FAULT, "launcher_config", "ranks"),
         build=only(4), scene={"ranks": 8}),
    Case("CUDA_VISIBLE_DEVICES hides half", {}, Found("gpu-count", WARN, NO_FAULT, "launcher_config", "VISIBLE"),
         scene={"ranks": 8, "env": {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}}),
    Case("driver and library do not fit", {"init_error": 18},
         Found("gpu-driver", FAIL, DEVICE_FAULT, "driver_mismatch", "reboot")),
    Case("the driver is not loaded", {"init_error": 9},
         Found("gpu-driver", FAIL, NO_FAULT, "driver_error", "modprobe"), build=_not_loaded),
    Case("the driver is not loaded any more", {"init_error": 9},
         Found("gpu-driver", FAIL, DEVICE_FAULT, "driver_error", "modprobe"), build=_not_loaded,
         scene={"baseline": LEARNED}),
    Case("a container lost its GPUs", {"init_error": 999},
         Found("gpu-driver", WARN, NO_FAULT, "driver_error", "container"), scene={"baseline": LEARNED}),
    Case("another module is loaded", {}, Found("gpu-driver", WARN, NO_FAULT, "driver_mismatch", "reboot"),
         build=_newer_module),
    Case("persistence mode is off", {"gpu.*.persistence": 0},
         Found("gpu-persistence", WARN, NO_FAULT, "", "nvidia-persistenced")),
    Case("persistence mode is off on one", {"gpu.*.ecc_mode": "notsup", "gpu.2.persistence": 0},
         Found("gpu-persistence", WARN, NO_FAULT, "", "nvidia-persistenced")),
    Case("uncorrected errors", {"gpu.3.ecc_unc_vol": 2}, Found("gpu-ecc", FAIL, DEVICE_FAULT, ECC, "--gpu-reset")),
    Case("uncorrected errors come meanwhile", {"gpu.3.ecc_unc_vol": 1},
         Found("gpu-ecc", FAIL, DEVICE_FAULT, ECC, "--gpu-reset"), before={}),
    Case("an uncorrected error that the driver contained", {"gpu.3.ecc_unc_vol": 1, "gpu.*.field.230": 0},
         Found("gpu-ecc", FAIL, NO_FAULT, ECC, "asks for no action")),
    Case("uncorrected errors in caches", {"gpu.0.sram_unc_vol": 1},
         Found("gpu-ecc", FAIL, DEVICE_FAULT, ECC, "--gpu-reset")),
    Case("worn caches", {"gpu.0.sram_exceeded": 1, "gpu.0.sram_unc_agg": 5},
         Found("gpu-ecc", FAIL, DEVICE_FAULT, ECC, "replaced")),
    Case("many cache errors over its life", {"gpu.0.sram_unc_agg": 5},
         Found("gpu-ecc", WARN, NO_FAULT, ECC, "replaced")),
    Case("ECC is to be switched at the next reset", {"gpu.0.ecc_pending": 0},
         Found("gpu-ecc", WARN, NO_FAULT, ECC, "reset")),
    Case("ECC was on and is off", {"gpu.6.ecc_mode": 0}, Found("gpu-ecc", WARN, NO_FAULT, ECC, "-e 1"),
         scene={"baseline": LEARNED}),
    Case("a row remap is pending", {"gpu.5.remap_pending": 1},
         Found("gpu-memory-repair", WARN, NO_FAULT, ECC, "--gpu-reset")),
    Case("a row remap comes meanwhile", {"gpu.5.remap_pending": 1, "gpu.5.remap_unc": 1},
         Found("gpu-memory-repair", WARN, NO_FAULT, ECC, "--gpu-reset"), before={}),
    Case("a row remap failed", {"gpu.5.remap_failed": 1},
         Found("gpu-memory-repair", FAIL, DEVICE_FAULT, ECC, "replaced")),
    Case("banks without spare rows", {"gpu.5.banks_none": 2},
         Found("gpu-memory-repair", WARN, NO_FAULT, ECC, "replaced")),
    Case("a page waits for its retirement", {"gpu.*.remap": "notsup", "gpu.*.retires": 1, "gpu.2.retired_pending": 1},
         Found("gpu-memory-repair", WARN, NO_FAULT, ECC, "--gpu-reset")),
    Case("hardly room for retired pages", {"gpu.*.remap": "notsup", "gpu.*.retires": 1, "gpu.2.retired_dbe": 61},
         Found("gpu-memory-repair", WARN, NO_FAULT, ECC, "replaced")),
    Case("a channel is to be repaired", {"gpu.*.repairs": 1, "gpu.2.channel_repair": 1},
         Found("gpu-memory-repair", WARN, NO_FAULT, ECC, "--gpu-reset")),
    Case("the driver wants a reset", {"gpu.*.field.230": 0, "gpu.7.field.230": 1},
         Found("gpu-recovery-action", FAIL, DEVICE_FAULT, "gpu_fault", "--gpu-reset"), before={"gpu.*.field.230": 0}),
    Case("the driver wants a reboot", {"gpu.7.field.230": 2},
         Found("gpu-recovery-action", FAIL, DEVICE_FAULT, "gpu_fault", "reboot")),
    Case("the driver wants peers drained", {"gpu.7.field.230": 3},
         Found("gpu-recovery-action", WARN, NO_FAULT, "gpu_fault", "peers")),
    Case("the driver wants work to end, then a reset", {"gpu.7.field.230": 4},
         Found("gpu-recovery-action", FAIL, DEVICE_FAULT, "gpu_fault", "let running work end")),
    Case("the same while a job trains", {"gpu.7.field.230": 4},
         Found("gpu-recovery-action", WARN, NO_FAULT, "gpu_fault", "let running work end"), scene={"training": True}),
    Case("Xid 79 since the last good run", {},
         Found("gpu-xid", FAIL, DEVICE_FAULT, "xid_79", "power-cycle"),
         build=says(_xid(79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."), after_s=(1, 200)),
         scene=GOOD_S),
    Case("Xid 48 since the boot", {}, Found("gpu-xid", WARN, NO_FAULT, "xid_48", "reset"),
         build=says(_xid(48, "pid=77, name=python3, DBE"))),
    Case("Xid 154 names the action", {}, Found("gpu-xid", FAIL, DEVICE_FAULT, "xid_95", "reboot"),
         build=says(_xid(95, "pid=77, name=python3, Uncontained"),
                    _xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
                    after_s=(1, 200, 201)), scene=GOOD_S),
    Case("NVLinks are down that were up", DOWN, Found("gpu-nvlink", FAIL, DEVICE_FAULT, "nvlink_error", "fabric"),
         scene={"baseline": LEARNED}, before={}),
    Case("NVLinks are down, nothing learned", DOWN, Found("gpu-nvlink", WARN, NO_FAULT, "nvlink_error", "Xid 74")),
    Case("all NVLinks are down", {"gpu.*.nvlink_all": 0},
         Found("gpu-nvlink", FAIL, NO_FAULT, "nvlink_error", "fabric"), scene={"baseline": LEARNED}),
    Case("NVLink recoveries", {"gpu.1.field.59": 40}, Found("gpu-nvlink", WARN, NO_FAULT, "nvlink_error", "nvlink -e")),
    Case("an NVLink could not recover", {"gpu.1.field.214.3": 1},
         Found("gpu-nvlink", WARN, NO_FAULT, "nvlink_error", "nvlink -e")),
    Case("a PCIe link of half the width", {"gpu.2.width": 8},
         Found("gpu-pcie", WARN, NO_FAULT, "pcie_link_downgrade", "riser")),
    Case("a PCIe link narrower than learned", {"gpu.*.width": 8, "gpu.*.max_width": 8},
         Found("gpu-pcie", WARN, NO_FAULT, "pcie_link_downgrade", "BIOS"), scene={"baseline": LEARNED}),
    Case("a slow PCIe link under load", WORKS | {"gpu.2.gen": 1},
         Found("gpu-pcie", WARN, NO_FAULT, "pcie_link_downgrade", "riser"), before=WORKS),
    Case("a slot that became slower", {"gpu.2.max_gen": 4, "gpu.2.gen": 4},
         Found("gpu-pcie", WARN, NO_FAULT, "pcie_link_downgrade", "slot"), scene={"baseline": LEARNED}),
    Case("PCIe replays", {"gpu.2.replay_step": 9},
         Found("gpu-pcie", WARN, NO_FAULT, "pcie_link_downgrade", "cable")),
    Case("the fabric failed", {"gpu.*.fabric": 3, "gpu.0.fabric_status": 999},
         Found("gpu-fabric", FAIL, DEVICE_FAULT, "fabric_manager", "fabricmanager")),
    Case("no fabric manager", {"gpu.*.fabric": 1},
         Found("gpu-fabric", FAIL, DEVICE_FAULT, "fabric_manager", "systemctl"), build=switches("kthreadd")),
    Case("no fabric manager, NVML tells no state", {"gpu.*.fabric": "notsup"},
         Found("gpu-fabric", FAIL, DEVICE_FAULT, "fabric_manager", "systemctl"), build=switches("kthreadd")),
    Case("the fabric is not ready yet", {"gpu.*.fabric": 2},
         Found("gpu-fabric", WARN, NO_FAULT, "fabric_manager", "systemctl"),
         build=switches("kthreadd", "nv-fabricmanage")),
    Case("the fabric is degraded", {"gpu.*.fabric": 3, "gpu.4.fabric_health": 0x01},
         Found("gpu-fabric", WARN, NO_FAULT, "nvlink_error", "reset")),
    Case("a GPU reaches no peer", {f"p2p.{min(3, o)}.{max(3, o)}": 1 for o in range(8) if o != 3},
         Found("gpu-peer", WARN, NO_FAULT, "p2p_failure", "ACS")),
    Case("fewer peers than learned", {"p2p.0.1": 3, "p2p.0.2": 3},
         Found("gpu-peer", WARN, NO_FAULT, "p2p_failure", "topo"), scene={"baseline": LEARNED}),
    Case("too hot, the hardware slows it", {"gpu.6.throttle": 0x48},
         Found("gpu-clocks", WARN, NO_FAULT, "thermal_throttle", "fans"), before={}),
    Case("too hot, the driver slows it", {"gpu.6.throttle": 0x20},
         Found("gpu-clocks", WARN, NO_FAULT, "thermal_throttle", "fans")),
    Case("power brake", {"gpu.*.throttle": 0x80}, Found("gpu-clocks", WARN, NO_FAULT, "power_throttle", "suppl")),
    Case("a hardware slowdown", {"gpu.6.throttle": 0x8},
         Found("gpu-clocks", WARN, NO_FAULT, "power_throttle", "suppl")),
    Case("one GPU with a lower power limit", {"gpu.2.limit_mw": 350000},
         Found("gpu-clocks", WARN, NO_FAULT, "power_throttle", "-pl 700")),
    Case("a lower power limit than learned", {"gpu.*.limit_mw": 500000},
         Found("gpu-clocks", WARN, NO_FAULT, "power_throttle", "-pl 700"), scene={"baseline": LEARNED}),
    Case("next to its slowdown", {"gpu.1.temp": 88},
         Found("gpu-temperature", WARN, NO_FAULT, "thermal_throttle", "fans"), before={}),
    Case("no margin left", {"gpu.*.margin": 30, "gpu.1.margin": -1, "gpu.*.field.194": -2},
         Found("gpu-temperature", WARN, NO_FAULT, "thermal_throttle", "fans")),
    Case("hot memory", {"gpu.*.field.82": 60, "gpu.1.field.82": 96},
         Found("gpu-temperature", WARN, NO_FAULT, "thermal_throttle", "cooler")),
    Case("another's process holds memory", {"gpu.0.procs": "4711:30000", "gpu.0.mem_used": 31 << 30},
         Found("gpu-foreign", WARN, NO_FAULT, "gpu_busy", "ps -p 4711"), build=with_process(4711, "python3")),
    Case("another's process comes meanwhile", {"gpu.0.procs": "4711:30000"},
         Found("gpu-foreign", WARN, NO_FAULT, "gpu_busy", "ps -p 4711"), before={}),
    Case("memory in use by nobody", {"gpu.3.mem_used": 60 << 30},
         Found("gpu-foreign", WARN, NO_FAULT, "gpu_busy", "fuser")),
    Case("MIG waits for a reset", {"gpu.3.mig_pending": 1}, Found("gpu-mig", WARN, NO_FAULT, "gpu_busy", "reset")),
    Case("MIG on some GPUs", {"gpu.3.mig": 1}, Found("gpu-mig", WARN, NO_FAULT, "launcher_config", "-mig 0")),
    Case("MIG on while ranks need whole GPUs", {"gpu.*.mig": 1, "gpu.*.mig_devices": 2},
         Found("gpu-mig", WARN, NO_FAULT, "launcher_config", "-mig 0"), scene={"ranks": 8}),
    Case("MIG on without an instance", {"gpu.*.mig": 1, "count": 1},
         Found("gpu-mig", WARN, NO_FAULT, "launcher_config", "instance"), build=only(1), scene={"ranks": 1}),
)  # fmt: skip


def prepared(case: Case, folder: Path, library: Path) -> Node:
    node = Node(folder, library)
    case.build(node)
    return node


def tried(case: Case, node: Node, worker: Worker) -> str:
    """What went wrong with the case; empty where all is as it should be."""
    scene = node.scene(**case.scene)
    if case.before is not None:
        node.says(case.before)
        early = worker.outcomes(node, ALL_GPU, scene)
        if troubles(early):
            return f"told of before it was there: {troubles(early)}"
    node.says(case.state)
    found = worker.outcomes(node, ALL_GPU, scene)
    at_fault = [
        one.why for outcome in found.values() for one in outcome.findings if "itself failed" in one.why
    ]
    if at_fault:
        return f"a check failed by itself: {at_fault}"
    return _missed(case.found, found)


def troubles(found: dict[str, Outcome]) -> dict[str, str]:
    return {
        name: next(one.why for one in outcome.findings if one.status in (WARN, FAIL))
        for name, outcome in found.items()
        if outcome.status in (WARN, FAIL)
    }


def _missed(expected: Found | None, found: dict[str, Outcome]) -> str:
    told = troubles(found)
    if expected is None:
        return f"a healthy node is told to be ill: {told}" if told else ""
    others = set(told) - {expected.check, *expected.also}
    if expected.check not in told:
        return f"{expected.check} has not found it, but: {told}"
    if others:
        return f"others speak of it too: { {name: told[name] for name in others} }"
    bad = [one for one in found[expected.check].findings if one.status in (WARN, FAIL)]
    one = bad[0]
    if (one.status, one.fault, one.category) != (expected.status, expected.fault, expected.category):
        return f"it is {one.status}, {one.fault!r}, {one.category!r}"
    if expected.advice not in one.advice.en:
        return f"the advice is {one.advice.en!r}"
    for one in bad:
        if not (one.measured and one.expected and one.whence and one.why and one.advice.en and one.advice.zh):
            return f"it leaves something out: {one}"
    return ""
