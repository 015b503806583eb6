"""Healthy nodes of the fault matrix: other models, other machines, other drivers. None of them is to be warned of."""

from fake_nvml.matrix import (
    BOOTED_S,
    LEARNED,
    LOADED,
    WORKS,
    Case,
    State,
    _xid,
    bare,
    eight,
    only,
    says,
    switches,
    with_process,
)
from fake_nvml.node import Node

NO_LINKS: State = {"gpu.*.nvlinks": 0}
NO_ECC: State = {
    "gpu.*.ecc_mode": "notsup",
    "gpu.*.remap": "notsup",
    "gpu.*.sram": "notsup",
    "gpu.*.mig": "notsup",
}
A100: State = {
    "gpu.*.name": "NVIDIA A100-SXM4-80GB",
    "gpu.*.nvlinks": 12,
    "gpu.*.gen": 4,
    "gpu.*.max_gen": 4,
    "gpu.*.limit_mw": 400000,
    "gpu.*.default_limit_mw": 400000,
    "gpu.*.fabric": "notsup",
}
IDLE: State = {"gpu.*.pstate": 8, "gpu.*.sm_clock": 210, "gpu.*.gen": 1, "gpu.*.util": 0}


def _restricted(node: Node) -> None:
    """A container that was given two of eight: PCI shows all, the driver's folder only those two."""
    for index in range(8):
        node.on_bus(index, known=index < 2, ours=index < 2)
    node.driver_loaded()
    node.kernel_says(LOADED)


def _slurm(node: Node) -> None:
    """A job with constrained devices: the driver's folder shows all, and six device files are not ours."""
    for index in range(8):
        node.on_bus(index, ours=index < 2)
    node.driver_loaded()
    node.kernel_says(LOADED, _xid(79, "GPU has fallen off the bus.", bus=0x1A + 5 * 0x0B))


def _passed_through(node: Node) -> None:
    for index in range(8):
        node.on_bus(index, driver="nvidia" if index < 4 else "vfio-pci", known=index < 4, ours=index < 4)
    node.driver_loaded()
    node.kernel_says(LOADED)


def _desktop(node: Node) -> None:
    eight(node, 1)
    node.process(900, "Xorg")


def _written_by_a_program(node: Node) -> None:
    eight(node)
    node.kernel_says(_xid(79, "GPU has fallen off the bus."), level=12)


def _no_gpu(node: Node) -> None:
    node.file("proc/stat", "cpu  1 2 3\n")


def _no_files_for_us(node: Node) -> None:
    for index in range(8):
        node.on_bus(index, ours=False, known=False)


HEALTHY = (
    Case("8 H100 SXM", {"gpu.*.field.230": 0, "gpu.*.fabric": 3}),
    Case("8 H100 SXM, learned", {"gpu.*.field.230": 0}, scene={"baseline": LEARNED}),
    Case("8 H200", {"gpu.*.name": "NVIDIA H200", "gpu.*.memory": 150754820096, "gpu.*.fabric": 3, "gpu.*.field.230": 0}),
    Case(
        "8 B200",
        {
            "gpu.*.name": "NVIDIA B200",
            "gpu.*.limit_mw": 1000000,
            "gpu.*.default_limit_mw": 1000000,
            "gpu.*.margin": 42,
            "gpu.*.field.194": -3,
            "gpu.*.threshold.1": "notsup",
            "gpu.*.repairs": 1,
            "gpu.*.field.214": 0,
            "gpu.*.field.230": 0,
            "gpu.*.fabric": 3,
            "gpu.*.fabric_health": 0x1AA,
        },
    ),
    Case("8 A100 SXM behind NVSwitches", A100, build=switches("kthreadd", "nv-fabricmanage")),
    Case("8 A100 SXM in a container, the host's processes hidden", A100, build=switches("python3")),
    Case("8 A100 PCIe without bridges", {**A100, **NO_LINKS, "gpu.*.name": "NVIDIA A100-PCIE-40GB"}),
    Case(
        "4 H100 NVL, two of them bridged",
        {"count": 4, "gpu.*.name": "NVIDIA H100 NVL", "gpu.2.nvlink_all": 0, "gpu.3.nvlink_all": 0},
        build=only(4),
    ),
    Case(
        "8 L40S, no peer access",
        {**NO_LINKS, **IDLE, "gpu.*.name": "NVIDIA L40S", "gpu.*.max_gen": 4, "gpu.*.mig": "notsup", "p2p": 1,
         "gpu.*.limit_mw": 350000, "gpu.*.default_limit_mw": 350000},
    ),
    Case(
        "8 V100, old driver",
        {"driver": "470.82.01", "cuda": 11040, "gpu.*.name": "Tesla V100-SXM2-32GB", "gpu.*.nvlinks": 6,
         "gpu.*.gen": 3, "gpu.*.max_gen": 3, "gpu.*.mig": "notsup", "gpu.*.retires": 1, "gpu.*.retired_sbe": 2,
         "gpu.*.limit_mw": 300000, "gpu.*.default_limit_mw": 300000},
        build=bare,
        old=True,
    ),
    Case(
        "a consumer card without ECC",
        {"count": 1, **NO_ECC, **NO_LINKS, **IDLE, "gpu.*.name": "NVIDIA GeForce RTX 4090", "gpu.*.serial": "notsup",
         "gpu.*.persistence": 0, "gpu.*.limit_mw": 450000, "gpu.*.default_limit_mw": 450000, "gpu.*.max_gen": 4},
        build=only(1),
    ),
    Case("a desktop that draws on its GPU", {"count": 1, **NO_ECC, **NO_LINKS, "gpu.0.procs": "900:700"},
         build=_desktop),
    Case("ECC switched off", {"gpu.*.ecc_mode": 0}),
    Case("idle, PCIe at rest", IDLE),
    Case("idle, PCIe at rest, learned", IDLE, scene={"baseline": LEARNED}),
    Case("at full load, at its power limit", {**WORKS, "gpu.*.throttle": 0x4, "gpu.*.temp": 74, "gpu.*.power_mw": 699000}),
    Case("too hot for a moment", {"gpu.3.throttle_once": 0x48}),
    Case("all slots x8", {"gpu.*.width": 8}),
    Case("all slots of an older generation", {**WORKS, "gpu.*.gen": 4}),
    Case("a power limit for all", {"gpu.*.limit_mw": 500000}),
    Case("MIG on, slices for single ranks", {"gpu.*.mig": 1, "gpu.*.mig_devices": 7}, scene={"ranks": 1}),
    Case("MIG on, nobody asks", {"gpu.*.mig": 1, "gpu.*.mig_devices": 2, "gpu.*.mem_used": 40 << 30}),
    Case("MIG was switched on since, which takes the NVLinks", {"gpu.*.mig": 1, "gpu.*.mig_devices": 2,
         "gpu.*.nvlink_all": 0, "p2p": 2}, scene={"baseline": LEARNED}),
    Case("a Grace Hopper, joined by C2C", {"count": 1, "gpu.*.name": "NVIDIA GH200 480GB", "gpu.*.field.170": 10,
         "gpu.*.width": 1, "gpu.*.memory": "notsup", "gpu.*.limit_mw": 900000, "gpu.*.default_limit_mw": 900000},
         build=only(1)),
    Case("a MIG slice in a container", {"count": 1, "gpu.*.mig": 1, "gpu.*.mig_devices": 1}, build=bare,
         scene={"ranks": 1, "env": {"CUDA_VISIBLE_DEVICES": "MIG-1c2d"}}),
    Case("a virtual machine without PCI", {"gpu.*.width": 0, "gpu.*.gen": 0, "gpu.*.max_width": 0, "gpu.*.max_gen": 0},
         build=bare),
    Case("a virtual machine, no PCIe link told", {"gpu.*.width": "notsup", "gpu.*.gen": "notsup", **NO_LINKS, "p2p": 2},
         build=bare),
    Case("one GPU of an NVSwitch board in a virtual machine", {"count": 1, "gpu.*.nvlink_all": 0, "gpu.*.fabric": 1},
         build=only(1)),
    Case("no GPU", {"count": 0}, build=_no_gpu),
    Case("no GPU, a run on processors", {"count": 0}, build=_no_gpu, scene={"ranks": 8}),
    Case("no driver for us", {"init_error": 9}, build=_no_files_for_us),
    Case("one GPU", {"count": 1}, build=only(1)),
    Case("sixteen GPUs", {"count": 16}, build=only(16)),
    Case("two kinds of GPUs", {"gpu.0.name": "NVIDIA T400", "gpu.0.nvlinks": 0, "gpu.0.ecc_mode": "notsup",
                               "gpu.0.width": 8, "gpu.0.max_width": 8, "gpu.0.limit_mw": 30000,
                               "gpu.0.default_limit_mw": 30000, "gpu.0.mig": "notsup"}),
    Case("two of eight in a container", {"count": 2}, build=_restricted, scene={"baseline": LEARNED, "ranks": 2}),
    Case("two of eight in a Slurm job", {"count": 2}, build=_slurm, scene={"baseline": LEARNED, "ranks": 2}),
    Case("four passed through to a guest", {"count": 4}, build=_passed_through),
    Case("no field values", {"error.DeviceGetFieldValues": 3}),
    Case("no rights for some questions", {"error.DeviceGetComputeRunningProcesses": 4, "error.DeviceGetMigMode": 4}),
    Case("the ranks of the run hold its memory", {"gpu.0.procs": "501:70000", "gpu.0.mem_used": 70000 << 20},
         build=with_process(501, "python3", parent=500), scene={"own_pids": (500,), "training": True}),
    Case("a training in a container, its processes hidden", {"gpu.*.mem_used": 70 << 30}, scene={"training": True}),
    Case("a training in a container, its processes numbered as on the host",
         {"gpu.0.procs": "90210:70000", "gpu.0.mem_used": 70000 << 20}, scene={"training": True}),
    Case("services hold a little", {"gpu.*.procs": "77:300", "gpu.*.mem_used": 300 << 20},
         build=with_process(77, "dcgmproftester")),
    Case("the driver reserves a lot", {"gpu.*.mem_reserved": 1800 << 20}),
    Case("Xids of a program", {}, build=says(_xid(13, "pid=7, name=python3, Graphics SM Warp Exception"),
                                             _xid(31, "pid=7, name=python3, Ch 00000010, MMU Fault"),
                                             _xid(43, "pid=7, name=python3, Ch 00000010"),
                                             _xid(45, "pid=7, name=python3, Ch 00000010")),
         scene={"good_s": BOOTED_S + 50.0}),
    Case("an Xid that a program wrote into the log", {}, build=_written_by_a_program,
         scene={"good_s": BOOTED_S + 50.0}),
    Case("an Xid before the last good run", {}, build=says(_xid(79, "GPU has fallen off the bus.")),
         scene={"good_s": BOOTED_S + 5000.0}),
    Case("an Xid before the driver was loaded anew", {}, build=says(_xid(48, "DBE"), LOADED),
         scene={"good_s": BOOTED_S + 1.0}),
    Case("an Xid that the driver has settled", {},
         build=says(_xid(95, "Uncontained"),
                    _xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
                    _xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"))),
    Case("NVLinks with few old errors", {"gpu.*.field.45": 3, "gpu.*.field.52": 20, "gpu.*.field.59": 1}),
    Case("rows were remapped long ago", {"gpu.2.remap_cor": 3, "gpu.2.remap_unc": 1, "gpu.2.banks_low": 1,
                                         "gpu.2.ecc_unc_agg": 1, "gpu.2.ecc_cor_vol": 5000}),
    Case("PCIe replays of long ago", {"gpu.*.replay": 4000}),
    Case("peers only within a socket", {f"p2p.{a}.{b}": 3 for a in range(4) for b in range(4, 8)} | NO_LINKS),
    Case("kernel log of a quiet node", {}, build=eight),
)  # fmt: skip
