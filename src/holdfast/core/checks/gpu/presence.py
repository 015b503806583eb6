"""Judges whether all GPUs are present, the driver responds, and the driver stays loaded. Pure.

A container, a Slurm job with constrained devices or a VM may show fewer GPUs than the node has: a GPU counts as
missing only if it should be visible here, or has left the PCI bus.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from holdfast.core.checks.gpu.readings import REBOOT, Gpu, Unread, advice, answered, named
from holdfast.core.plurals import counted
from holdfast.model.checks import (
    ASKED,
    BASELINE,
    DEVICE_FAULT,
    FAIL,
    NO_FAULT,
    PASS,
    SKIP,
    STATED,
    WARN,
    Baseline,
    Fact,
    Finding,
)
from holdfast.model.signatures import Words

NODE = "node"
ATTACH_S = 3.0  # maximum time to attach a GPU without persistence mode
PCI_COUNT = "NVIDIA GPUs on the PCI bus"
COUNT = "NVIDIA GPUs"
LEARNED = ("uuid", "name", "pci", "memory")


class PciGpu(Struct, frozen=True, kw_only=True):
    """An NVIDIA display or compute device on the PCI bus.

    `driver`: the one bound to it: "nvidia", "vfio-pci", or none.

    `is_known`: NVIDIA's driver lists it. `is_ours`: its device file exists and may be opened.
    """

    address: str
    driver: str = ""
    is_known: bool = False
    is_ours: bool = False


class Presence(Struct, frozen=True, kw_only=True):
    """The GPUs found on a node. `pci`: those on the PCI bus; None if the bus cannot be read.

    `memory`: bytes, by the GPU's permanent identity. `visible`: CUDA_VISIBLE_DEVICES of the run; None if not set.
    """

    gpus: tuple[Gpu, ...]
    pci: tuple[PciGpu, ...] | None = None
    memory: dict[str, int] = {}
    ranks: int | None = None
    visible: str | None = None


class Versions(Struct, frozen=True, kw_only=True):
    """The versions of the driver; empty if unknown. `module`: as reported by the loaded kernel module."""

    driver: str = ""
    module: str = ""
    cuda: str = ""


class Away(Struct, frozen=True, kw_only=True):
    """The reason why NVML cannot be opened.

    `kind`: as in checks/readers/nvml.py. `is_loaded`: the kernel module is loaded. `on_bus`: number of NVIDIA GPUs on
    the PCI bus that NVIDIA's driver could bind.
    """

    kind: str
    why: str
    on_bus: int = 0
    is_loaded: bool = False


def presence_facts(seen: Presence) -> list[Fact]:
    """Returns facts for the baseline of each GPU and of the node, from a boot check that passed."""
    facts = [Fact(name=COUNT, value=len(seen.gpus), learn=bool(seen.gpus))]
    if seen.pci:
        facts.append(Fact(name=PCI_COUNT, value=len(seen.pci), learn=True))
    for gpu in seen.gpus:
        if gpu.why_not or not gpu.key:
            continue
        values: dict[str, str | int] = {
            "uuid": gpu.uuid,
            "name": gpu.name,
            "pci": gpu.address,
            "memory": seen.memory.get(gpu.key, 0),
        }
        facts += [
            Fact(name=name, value=values[name], device=gpu.key, learn=True, model=gpu.name)
            for name in LEARNED
            if values[name]
        ]
    return facts


def judge_count(seen: Presence, baseline: Baseline) -> list[Finding]:
    """Returns findings about GPUs that do not respond, have no driver, or are missing compared with the baseline."""
    troubles = [_lost(gpu) for gpu in seen.gpus if gpu.is_lost]
    troubles += _not_taken(seen)
    troubles += _gone(seen, baseline, found_missing=len(troubles))
    troubles += _too_few(seen)
    unread = [Unread(gpu.where, gpu.why_not) for gpu in seen.gpus if gpu.why_not and not gpu.is_lost]
    good = sum(not gpu.why_not for gpu in seen.gpus)
    kinds = sorted({gpu.name for gpu in seen.gpus if gpu.name})
    measured = f"{counted(good, 'GPU')} ({', '.join(kinds)})" if kinds else counted(good, "GPU")
    return answered(troubles, unread, good, measured=measured)


def _lost(gpu: Gpu) -> Finding:
    return Finding(
        status=FAIL,
        device=gpu.where,
        measured="lost",
        expected="answers",
        whence=STATED,
        why=f"{gpu.where} is present but does not answer: {gpu.why_not.removesuffix(' (see gpu-count)')}",
        advice=advice(REBOOT, gpu.where),
        fault=DEVICE_FAULT,
        category="gpu_missing",
    )


def _not_taken(seen: Presence) -> list[Finding]:
    """Returns findings on GPUs on the bus that NVML does not list, although they are accessible."""
    shown = {gpu.address for gpu in seen.gpus if gpu.address}
    nameless = sum(not gpu.address for gpu in seen.gpus)  # lost ones may have no address
    found = []
    for card in seen.pci or ():
        if card.address in shown or nameless:
            continue
        if card.is_known and card.is_ours:
            status, fault = FAIL, DEVICE_FAULT
            why = f"{card.address} is on the bus and known to the driver, but NVML does not list it"
        elif not card.driver and not card.is_known and shown:
            status, fault = WARN, NO_FAULT
            why = f"{card.address} is on the bus, and no driver is bound to it"
        else:
            continue
        found.append(
            Finding(
                status=status,
                device=card.address,
                measured="not usable",
                expected=counted(len(seen.pci or ()), "GPU") + " on the PCI bus",
                whence=STATED,
                why=why,
                advice=advice(REBOOT, card.address),
                fault=fault,
                category="gpu_missing",
            )
        )
    return found


def _gone(seen: Presence, baseline: Baseline, found_missing: int) -> list[Finding]:
    """Returns findings on learned GPUs that have left the bus.

    If the bus is not visible, fewer GPUs may be allocated here, so it is a warning.
    """
    learned = baseline.of(NODE, PCI_COUNT)
    on_bus = len(seen.pci) if seen.pci is not None else None
    here = {gpu.key for gpu in seen.gpus}
    missing = [key for key in baseline.devices("gpu") if key not in here]
    if isinstance(learned, int) and on_bus is not None:
        if on_bus >= learned:
            return []
        status, fault, now, before = FAIL, DEVICE_FAULT, on_bus, learned
    else:
        before_us = baseline.of(NODE, COUNT)
        if not isinstance(before_us, int) or len(seen.gpus) >= before_us or found_missing:
            return []
        status, fault, now, before = WARN, NO_FAULT, len(seen.gpus), before_us
    who = "".join(f"; not seen: {_who(key, baseline)}" for key in missing[:1])
    if len(missing) > 1:
        who = f"; not seen: {named([_who(key, baseline) for key in missing])}"
    return [
        Finding(
            status=status,
            measured=counted(now, "GPU"),
            expected=counted(before, "GPU"),
            whence=BASELINE,
            why=f"{before - now} of the {before} GPUs that this node had are gone{who}",
            advice=Words(
                en="Power-cycle the node and count the GPUs again (`nvidia-smi -L`, `lspci -d 10de:`). Isolate the node while"
                " a GPU is missing. If the GPU was removed on purpose: `holdfast check --baseline reset`.",
                zh="断电重启节点后重新核对数量（`nvidia-smi -L`、`lspci -d 10de:`），缺卡期间隔离该节点。"
                "若为有意移除：`holdfast check --baseline reset`。",
            ),
            fault=fault,
            category="gpu_missing",
        )
    ]


def _who(key: str, baseline: Baseline) -> str:
    place = baseline.of(key, "pci")
    return f"{key.removeprefix('gpu:')}" + (f" (was {place})" if place else "")


def _too_few(seen: Presence) -> list[Finding]:
    """Returns a finding if more ranks are to run than GPUs are usable. Without any GPU, the run uses CPUs."""
    able = [gpu for gpu in seen.gpus if not gpu.is_lost]
    usable = len(able)
    if seen.visible is not None:
        chosen = [word.strip() for word in seen.visible.split(",") if word.strip()]
        if not chosen or chosen[0] == "-1" or any(word.startswith("MIG-") for word in chosen):
            return []
        usable = sum(_is_there(word, able) for word in chosen)
    if not able or seen.ranks is None or seen.ranks <= usable:
        return []
    return [
        Finding(
            status=WARN,
            measured=counted(usable, "usable GPU"),
            expected=counted(seen.ranks, "rank"),
            whence=ASKED,
            why=f"{counted(seen.ranks, 'rank')} are to run here and {counted(usable, 'GPU')} can be used",
            advice=Words(
                en="Start as many ranks as there are GPUs, or check CUDA_VISIBLE_DEVICES and the GPUs allocated to the job.",
                zh="每块 GPU 启动一个 rank，或检查 CUDA_VISIBLE_DEVICES 与分配到的 GPU。",
            ),
            category="launcher_config",
        )
    ]


def _is_there(word: str, gpus: Sequence[Gpu]) -> bool:
    if word.isascii() and word.isdigit():
        return int(word) < len(gpus)
    return any(gpu.uuid.startswith(word) for gpu in gpus)


def judge_versions(seen: Versions) -> tuple[list[Finding], list[Fact]]:
    """Returns findings and facts on driver versions, compared with the loaded kernel module and between
    nodes.
    """
    facts = [
        Fact(name=name, value=value, same=True)
        for name, value in (("NVIDIA driver", seen.driver), ("CUDA of the driver", seen.cuda))
        if value
    ]
    measured = ", ".join(filter(None, (f"driver {seen.driver}", seen.cuda and f"CUDA {seen.cuda}")))
    if seen.module and seen.driver and seen.module != seen.driver:
        why = f"the loaded kernel module is {seen.module}, and the driver is {seen.driver}"
        return [_mismatch(why, measured, seen.module, NO_FAULT, WARN)], facts
    return [Finding(status=PASS, measured=measured)], facts


def judge_away(away: Away, had_gpus: bool) -> Finding:
    """Returns the finding that NVML cannot be opened.

    `had_gpus`: the baseline contains GPUs, so this is new. A machine or container without GPUs is no fault.
    """
    fault = DEVICE_FAULT if had_gpus else NO_FAULT
    if away.kind == "mismatch":
        return _mismatch(away.why, "they differ", "the same version", DEVICE_FAULT, FAIL)
    if away.kind == "slow":
        return Finding(status=SKIP, why=f"{away.why} (see gpu-count)")
    if away.kind == "no-module" or not (had_gpus or away.on_bus):
        return Finding(status=SKIP, why=away.why)
    if away.kind == "no-driver" and not away.is_loaded and away.on_bus:
        return Finding(
            status=FAIL,
            measured=f"{counted(away.on_bus, 'GPU')} on the PCI bus, and no driver loaded",
            expected="the driver is loaded",
            whence=STATED,
            why=f"the NVIDIA driver is not loaded: {away.why}",
            advice=Words(
                en="Load it (`modprobe nvidia`) and read the kernel log for NVRM lines; after an update of the kernel"
                " rebuild the module (dkms), then check again.",
                zh="加载驱动（`modprobe nvidia`）并查看内核日志中的 NVRM 行；内核升级后需重新编译模块（dkms），再检查一次。",
            ),
            fault=fault,
            category="driver_error",
        )
    if not had_gpus:
        return Finding(status=SKIP, why=f"{away.why}; the GPUs on the bus may not be accessible here")
    return Finding(
        status=WARN,
        measured=away.why,
        expected="NVML answers, as it did here before",
        whence=BASELINE,
        why=f"the driver no longer answers queries about the GPUs of this node: {away.why}",
        advice=Words(
            en="In a container, check whether it still has access to the GPUs (a systemd reload can remove it: start"
            " it again); on the node run `nvidia-smi` and read the kernel log.",
            zh="在容器中请确认 GPU 仍分配给该容器（systemd 重载会使其失效，重启容器即可）；在节点上执行 `nvidia-smi` 并查看内核日志。",
        ),
        category="driver_error",
    )


def _mismatch(why: str, measured: str, expected: str, fault: str, status: str) -> Finding:
    return Finding(
        status=status,
        measured=measured,
        expected=expected,
        whence=STATED,
        why=f"driver and library do not fit together: {why}",
        advice=Words(
            en="The driver was updated and its old module is still loaded: drain the node and reboot it (or reload the"
            " nvidia modules); in a container use the host's driver libraries, not those of the image.",
            zh="驱动已升级但仍加载旧内核模块：排空节点并重启（或重新加载 nvidia 模块）；容器内应使用宿主机的驱动库而非镜像自带的。",
        ),
        fault=fault,
        category="driver_mismatch",
    )


def slow_driver(why: str, after_s: float, gpus: int, *, is_kept_loaded: bool) -> Finding:
    """Returns the finding that a call of the driver does not return.

    `gpus`: number of GPUs on the bus. `is_kept_loaded`: persistence mode is on, in which attaching GPUs takes no
    time.
    """
    hangs = is_kept_loaded or after_s >= ATTACH_S * max(gpus, 1)
    because = "it hangs" if hangs else "it hangs, or attaches GPUs slowly"
    return Finding(
        status=FAIL if hangs else WARN,
        measured="no answer",
        expected="an immediate answer",
        whence=STATED,
        why=f"{why}: {because}",
        advice=HANGS,
        fault=DEVICE_FAULT if hangs else NO_FAULT,
        category="driver_error",
    )


HANGS = Words(
    en="The GPU driver does not answer: check the kernel log for Xid lines and blocked tasks, end the processes on the GPUs,"
    " and reboot the node if `nvidia-smi` hangs too. Persistence mode makes the first answer fast.",
    zh="GPU 驱动无应答：查看内核日志中的 Xid 与阻塞任务，结束占用 GPU 的进程；若 `nvidia-smi` 同样卡住则重启节点。"
    "启用 persistence mode 可加快首次应答。",
)


def judge_persistence(
    modes: Sequence[tuple[Gpu, bool, bool]], unread: Sequence[Unread], baseline: Baseline
) -> list[Finding]:
    """Returns findings about persistence mode.

    `modes`: each GPU, whether the mode is on, and whether it is a server card (with ECC). Off is the default on
    desktop cards; off on one of several GPUs, or after it was on, is a mistake.
    """
    some_on = any(is_on for _, is_on, _ in modes)
    off = [
        gpu
        for gpu, is_on, is_server in modes
        if not is_on and (is_server or some_on or baseline.of(gpu.key, "persistence") is True)
    ]
    troubles: Iterable[Finding] = (
        [
            Finding(
                status=WARN,
                device=off[0].where if len(off) == 1 else "",
                measured=f"off on {named([gpu.where for gpu in off])}",
                expected="on",
                whence=BASELINE if baseline.of(off[0].key, "persistence") is True else "rule",
                why=f"persistence mode is off on {counted(len(off), 'GPU')}: each start initializes them, which"
                " takes seconds and resets error counts",
                advice=Words(
                    en="Start nvidia-persistenced at boot (or `nvidia-smi -pm 1`).",
                    zh="开机启用 nvidia-persistenced（或执行 `nvidia-smi -pm 1`）。",
                ),
            )
        ]
        if off
        else []
    )
    on = sum(is_on for _, is_on, _ in modes)
    return answered(troubles, unread, len(modes), measured=f"on for {on} of {counted(len(modes), 'GPU')}")
