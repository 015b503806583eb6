"""Checks GPUDirect RDMA: whether network cards can access GPU memory directly."""

import platform
import re
from collections.abc import Iterator

from holdfast.checks.readers.infiniband import ports
from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.node_findings import skipped
from holdfast.core.checks.rdma import Direct, is_wanted, judge_direct
from holdfast.model.checks import BOOT, MANUAL, ON_FAILURE, PROLOG, Fact, Scene, Spec
from holdfast.model.signatures import Words

MODULES = ("nvidia_peermem", "nv_peer_mem")
DRIVER = "/proc/driver/nvidia"


def look_at_direct(scene: Scene) -> Iterator[Seen]:
    files = NodeFiles(scene)
    driver = files.text(f"{DRIVER}/version").partition("\n")[0]
    if not driver:
        yield skipped("no NVIDIA driver is loaded")
        return
    if not any(port.is_active and is_wanted(port, scene.env) for port in ports(files)):
        yield skipped("no RDMA port that NCCL would use is active")
        return
    direct = Direct(
        peermem=any(files.exists(f"/sys/module/{name}") for name in MODULES),
        driver=driver,
        kernel=_kernel(files),
        models=tuple(_models(files)),
    )
    learned_way = str(scene.baseline.of("node", "gpudirect") or "")
    yield judge_direct(direct, learned_way, scene.env, scene.nodes)
    yield Fact(name="gpudirect", value=direct.way, learn=direct.way != "none", same=True)


def _kernel(files: NodeFiles) -> tuple[int, int]:
    release = files.word("/proc/sys/kernel/osrelease") or platform.release()
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _models(files: NodeFiles) -> Iterator[str]:
    """Yields the model name of each NVIDIA GPU.

    Model:                  NVIDIA H100 80GB HBM3
    """
    for gpu in files.entries(f"{DRIVER}/gpus"):
        found = re.search(r"^Model:\s*(.+)$", files.text(f"{DRIVER}/gpus/{gpu}/information"), re.MULTILINE)
        if found:
            yield found[1].strip()


CHECKS = (
    Check(
        Spec(
            name="rdma-gpudirect",
            area="rdma",
            what=Words(
                en="GPUDirect RDMA (nvidia_peermem or dmabuf)",
                zh="GPUDirect RDMA（nvidia_peermem 或 dmabuf）",
            ),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            quick=True,
        ),
        look_at_direct,
    ),
)
