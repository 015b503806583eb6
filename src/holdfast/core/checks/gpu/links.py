"""Judges the links of GPUs (NVLink, PCIe) against the baseline, then against the node's other GPUs. Pure.

No fault: cards without NVLink, cards with bridges between some of them, slots that are narrower for all, and
PCIe that slows down when idle.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from holdfast.core.checks.gpu.readings import RESET, Gpu, Unread, advice, answered
from holdfast.core.plurals import counted
from holdfast.model.checks import (
    BASELINE,
    DEVICE_FAULT,
    FAIL,
    NO_FAULT,
    PEERS,
    RULE,
    STATED,
    WARN,
    Baseline,
    Fact,
    Finding,
)
from holdfast.model.signatures import Words

# Allowed link errors since the driver was loaded: single ones are corrected, and healthy links have them too.
NVLINK_ERRORS_MAX: Mapping[str, int] = {"recoveries": 10, "data CRC errors": 100, "replays": 1000}
RECOVERY_FAILED = "failed recoveries"
BUSY_CLOCK = 0.6  # of the highest clock: below it the GPU is idle, and its PCIe link may be slow
REPLAYS_PER_MIN = 8.0  # the limit of DCGM's health watch
REPLAYS_MIN = 3

_RESEAT = Words(
    en="Power-cycle the node; if nothing changes, check riser, cable and seating of {gpu}, and its slot in the BIOS.",
    zh="断电重启节点；若仍如此，检查 {gpu} 的转接卡、线缆、插接情况与 BIOS 中该插槽的设置。",
)


class NvLinks(Struct, frozen=True, kw_only=True):
    """The NVLinks of one GPU. `states`: by link number, True if up; empty without NVLink.

    `errors`: by kind, the number since the driver was loaded; `new`: by kind, the number during the check.
    """

    gpu: Gpu
    states: tuple[bool, ...] = ()
    errors: dict[str, int] = {}
    new: dict[str, int] = {}

    @property
    def up(self) -> int:
        """Returns the number of active links."""
        return sum(self.states)


class PcieLink(Struct, frozen=True, kw_only=True):
    """The PCIe link of one GPU; None for unknown values.

    `generation_max`: the highest that both GPU and slot support. `clock`: SM clock as a share of the highest.
    `new_replays`: number of replays within `during_s` seconds.
    """

    gpu: Gpu
    width: int | None = None
    width_max: int | None = None
    generation: int | None = None
    generation_max: int | None = None
    performance_state: int | None = None
    clock: float | None = None
    utilization: float | None = None
    new_replays: int = 0
    during_s: float = 0.0

    @property
    def is_busy(self) -> bool:
        """Returns whether the link should run at full speed: performance state P0 to P2, under load, with a high
        clock.
        """
        return (
            (self.performance_state or 0) <= 2
            and (self.utilization or 0.0) > 0
            and (self.clock is None or self.clock >= BUSY_CLOCK)
        )


def nvlink_facts(seen: Sequence[NvLinks]) -> list[Fact]:
    """Returns facts for the baseline: active links of each GPU.

    A GPU with fewer than the others is left out.
    """
    return [
        Fact(name="nvlinks", value=one.up, device=one.gpu.key, learn=True, model=one.gpu.name)
        for one in seen
        if one.gpu.key and one.up and one.up >= _usual(one, seen)
    ]


def judge_nvlinks(seen: Sequence[NvLinks], unread: Sequence[Unread], baseline: Baseline) -> list[Finding]:
    """Returns findings on NVLinks that are down or have errors."""
    fewer = {one.gpu.index for one in seen if one.up < (_learned(one, baseline) or 0)}
    all_fewer = len(seen) > 1 and len(fewer) == len(seen)
    troubles: list[Finding] = []
    for one in seen:
        learned = _learned(one, baseline)
        if learned is not None and one.up < learned:
            troubles.append(_links_down(one, learned, BASELINE, NO_FAULT if all_fewer else DEVICE_FAULT))
        elif (usual := _usual(one, seen)) and one.up < usual:
            troubles.append(_links_down(one, usual, PEERS, NO_FAULT))
        else:
            troubles += _link_errors(one)
    most = max((one.up for one in seen), default=0)
    count = f"{counted(most, 'link')} up" if most else "no NVLink in use"
    return answered(troubles, unread, len(seen), measured=f"{count} on {counted(len(seen), 'GPU')}")


def _learned(one: NvLinks, baseline: Baseline) -> int | None:
    value = baseline.of(one.gpu.key, "nvlinks")
    return value if isinstance(value, int) else None


def _usual(one: NvLinks, seen: Sequence[NvLinks]) -> int:
    """Returns the number of active links that most other GPUs of its model have; 0 if the GPU itself has
    none.

    Bridges may join only some cards.
    """
    others = [other.up for other in seen if other is not one and other.gpu.name == one.gpu.name]
    if not one.up or len(others) < 2:
        return 0
    most = max(others)
    return most if 2 * others.count(most) > len(others) else 0


def _links_down(one: NvLinks, expected: int, whence: str, fault: str) -> Finding:
    down = [str(number) for number, is_up in enumerate(one.states) if not is_up]
    which = f" (down: {', '.join(down[:8])})" if down else ""
    return Finding(
        status=FAIL if whence == BASELINE else WARN,
        device=one.gpu.where,
        measured=f"{counted(one.up, 'link')} up{which}",
        expected=counted(expected, "link"),
        whence=whence,
        why=f"{expected - one.up} of the GPU's {counted(expected, 'NVLink')} are down",
        advice=advice(
            Words(
                en="Look for Xid 74 or 144-150 in the kernel log and at `nvidia-smi nvlink -s -i {gpu}`; restart the"
                " fabric manager and reset the GPUs; if a link stays down, have baseboard or bridge inspected.",
                zh="查看内核日志中的 Xid 74 或 144-150 与 `nvidia-smi nvlink -s -i {gpu}`；重启 fabric manager 并重置 GPU；"
                "若链路仍断开，检修底板或桥接器。",
            ),
            one.gpu.where,
        ),
        fault=fault,
        category="nvlink_error",
    )


def _link_errors(one: NvLinks) -> list[Finding]:
    too_many = {kind: count for kind, count in one.errors.items() if count > NVLINK_ERRORS_MAX.get(kind, 0)}
    growing = {kind: count for kind, count in one.new.items() if count and kind != "replays"}
    if not (too_many or growing):
        return []
    shown = growing or too_many
    since = "during the check" if growing else "since the driver was loaded"
    words = ", ".join(f"{count} {kind}" for kind, count in shown.items())
    limits = ", ".join(f"{NVLINK_ERRORS_MAX.get(kind, 0)} {kind}" for kind in shown)
    return [
        Finding(
            status=WARN,
            device=one.gpu.where,
            measured=f"{words} {since}",
            expected="none new" if growing else f"at most {limits}",
            whence=RULE,
            why=f"the NVLinks of this GPU had {words} {since}",
            advice=advice(
                Words(
                    en="Compare `nvidia-smi nvlink -e -i {gpu}` over some minutes. If the errors of a link increase, reset"
                    " the GPUs, and check the seating, bridge or cable of that link.",
                    zh="间隔几分钟对比 `nvidia-smi nvlink -e -i {gpu}`；若某条链路持续增长，重置 GPU 并检查插接、桥接器或线缆。",
                ),
                one.gpu.where,
            ),
            category="nvlink_error",
        )
    ]


def pcie_facts(seen: Sequence[PcieLink]) -> list[Fact]:
    """Returns facts for the baseline: maximum widths and generations of the devices, not the current ones."""
    facts = []
    for one in seen:
        values = {"pcie width": one.width, "pcie generation max": one.generation_max}
        if one.width_max and one.width and one.width < one.width_max and not _all_alike(one, seen):
            del values["pcie width"]
        facts += [
            Fact(name=name, value=value, device=one.gpu.key, learn=True, model=one.gpu.name)
            for name, value in values.items()
            if value and one.gpu.key
        ]
    return facts


def judge_pcie(seen: Sequence[PcieLink], unread: Sequence[Unread], baseline: Baseline) -> list[Finding]:
    """Returns findings on PCIe links that are narrow, slow, or retransmit packets."""
    troubles: list[Finding] = []
    silent = list(unread)
    good = 0
    for one in seen:
        found = list(_pcie(one, seen, baseline))
        troubles += found
        if not found and not one.width:
            silent.append(Unread(one.gpu.where, "the PCIe link is not visible, as in a virtual machine"))
        elif not found:
            good += 1
    widths = sorted({f"x{one.width}" for one in seen if one.width})
    kinds = sorted({f"generation {one.generation_max}" for one in seen if one.generation_max})
    measured = f"{', '.join(widths)}, {', '.join(kinds)} on {counted(good, 'GPU')}"
    return answered(troubles, silent, good, measured=measured, expected="at full width", whence=STATED)


def _pcie(one: PcieLink, seen: Sequence[PcieLink], baseline: Baseline) -> Iterable[Finding]:
    learned = baseline.of(one.gpu.key, "pcie width")
    can_be = baseline.of(one.gpu.key, "pcie generation max")
    where = one.gpu.where
    if one.width and isinstance(learned, int) and one.width < learned:
        yield _downgrade(
            where, f"x{one.width}", f"x{learned}", BASELINE, "the PCIe link is narrower than it was"
        )
    elif one.width and learned is None and one.width_max and one.width < one.width_max:
        if not _all_alike(one, seen):
            why = "the PCIe link is narrower than possible"
            yield _downgrade(where, f"x{one.width}", f"x{one.width_max}", STATED, why)
    if isinstance(can_be, int) and one.generation_max and one.generation_max < can_be:
        why = "the PCIe slot is slower than it was"
        yield _downgrade(where, f"generation {one.generation_max}", f"generation {can_be}", BASELINE, why)
    elif one.generation and one.generation_max and one.generation < one.generation_max and one.is_busy:
        if not _all_slow(one, seen):
            measured, expected = f"generation {one.generation}", f"generation {one.generation_max}"
            yield _downgrade(
                where, measured, expected, STATED, "the PCIe link is slow although the GPU is busy"
            )
    if one.during_s and one.new_replays >= REPLAYS_MIN:
        per_min = one.new_replays / one.during_s * 60
        if per_min > REPLAYS_PER_MIN:
            yield _downgrade(
                where,
                f"{one.new_replays} replays in {one.during_s:.1f} s",
                f"at most {REPLAYS_PER_MIN:g} in a minute",
                RULE,
                "the PCIe link keeps retransmitting packets",
            )


def _all_alike(one: PcieLink, seen: Sequence[PcieLink]) -> bool:
    """Returns whether there are several GPUs of its model, all with this width, as the machine is built."""
    alike = [other.width for other in seen if other.gpu.name == one.gpu.name]
    return len(alike) > 1 and set(alike) == {one.width}


def _all_slow(one: PcieLink, seen: Sequence[PcieLink]) -> bool:
    busy = [other.generation for other in seen if other.gpu.name == one.gpu.name and other.is_busy]
    return len(busy) > 1 and set(busy) == {one.generation}


def _downgrade(where: str, measured: str, expected: str, whence: str, why: str) -> Finding:
    return Finding(
        status=WARN,
        device=where,
        measured=measured,
        expected=expected,
        whence=whence,
        why=why,
        advice=advice(_RESEAT, where),
        category="pcie_link_downgrade",
    )


class Fabric(Struct, frozen=True, kw_only=True):
    """A GPU's registration with the NVLink fabric.

    `state`: 0 no fabric, 1 not started, 2 in progress, 3 done.

    `status`: NVML's result code. `health`: a mask of two-bit and four-bit fields.
    """

    gpu: Gpu
    state: int
    status: int = 0
    health: int = 0


class Switches(Struct, frozen=True, kw_only=True):
    """The NVSwitch devices on the PCI bus.

    `is_managed`: a fabric manager runs; None if its processes are not visible.
    """

    count: int = 0
    is_managed: bool | None = None


NOT_BEGUN, GOING_ON, DONE = 1, 2, 3
_TRUE = 1
_HEALTH = (  # position in the mask, meaning
    (0, "its bandwidth is degraded"),
    (2, "a route is being recovered"),
    (4, "a route is unhealthy"),
    (6, "an access time-out is being recovered"),
)
_CONFIGURATION = (8, 0xF)  # position and mask; 0: unknown, 1: correct


def judge_fabric(seen: Sequence[Fabric], unread: Sequence[Unread], switches: Switches) -> list[Finding]:
    """Returns findings about the registration of GPUs with the NVLink fabric: an unregistered GPU of an NVSwitch
    system cannot start CUDA (error 802).
    """
    part = [one for one in seen if one.state]
    troubles = [finding for one in part for finding in _fabric(one, len(part), switches)]
    if not part and switches.count and switches.is_managed is False:
        troubles.append(
            _unmanaged("", f"{counted(switches.count, 'NVSwitch', 'NVSwitches')}, no fabric manager")
        )
    if not troubles and not part and not switches.count and seen:
        return answered([], unread, len(seen), measured="no NVSwitch here")
    if not troubles and not part and switches.count and switches.is_managed is None:
        why = "whether a fabric manager runs is not visible here"
        return answered([], [*unread, Unread("NVSwitch", why)], 0, measured="")
    good = len(part) or (1 if switches.is_managed else 0)
    measured = f"registered: {counted(len(part), 'GPU')}" if part else "the fabric manager runs"
    return answered(troubles, unread, good, measured=measured, expected="registered", whence=STATED)


def _fabric(one: Fabric, members: int, switches: Switches) -> Iterable[Finding]:
    where = one.gpu.where
    if one.state == DONE and one.status:
        yield _unmanaged(where, f"registration failed with NVML error {one.status}")
    elif one.state in (NOT_BEGUN, GOING_ON) and members > 1 and switches.is_managed is False:
        yield _unmanaged(where, "not registered, and no fabric manager runs")
    elif one.state in (NOT_BEGUN, GOING_ON) and members > 1:
        yield _unmanaged(where, "not registered yet", status=WARN, fault=NO_FAULT)
    elif one.state == DONE:
        yield from _fabric_health(one)


def _fabric_health(one: Fabric) -> Iterable[Finding]:
    says = [words for place, words in _HEALTH if one.health >> place & 3 == _TRUE]
    place, mask = _CONFIGURATION
    if (one.health >> place & mask) > 1:
        says.append(f"its configuration is wrong ({one.health >> place & mask})")
    if says:
        yield Finding(
            status=WARN,
            device=one.gpu.where,
            measured="; ".join(says),
            expected="a healthy fabric",
            whence=STATED,
            why=f"the NVLink fabric of this GPU is not healthy: {'; '.join(says)}",
            advice=advice(RESET, one.gpu.where),
            category="nvlink_error",
        )


def _unmanaged(where: str, measured: str, *, status: str = FAIL, fault: str = DEVICE_FAULT) -> Finding:
    return Finding(
        status=status,
        device=where,
        measured=measured,
        expected="registered with the fabric manager",
        whence=STATED,
        why=f"the NVSwitch fabric is not set up, so CUDA cannot start here: {measured}",
        advice=Words(
            en="`systemctl restart nvidia-fabricmanager` (its version must be that of the driver), read"
            " /var/log/fabricmanager.log, and check again; reboot the node if it does not come up.",
            zh="执行 `systemctl restart nvidia-fabricmanager`（其版本须与驱动一致），查看 /var/log/fabricmanager.log 后再检查；"
            "仍失败则重启节点。",
        ),
        fault=fault,
        category="fabric_manager",
    )


class Pair(Struct, frozen=True):
    """Two GPUs by index, and whether one can read the other's memory. `why`: NVML's reason if it cannot."""

    one: int
    other: int
    can: bool
    why: str = ""


def judge_peers(
    pairs: Sequence[Pair], gpus: Sequence[Gpu], unread: Sequence[Unread], baseline: Baseline
) -> list[Finding]:
    """Returns findings about peer access: a GPU that can access no other GPU while the others can, or fewer pairs
    than in the baseline.
    """
    good = [pair for pair in pairs if pair.can]
    partners = {gpu.index: sum(gpu.index in (pair.one, pair.other) for pair in good) for gpu in gpus}
    learned = baseline.of("node", "peer pairs")
    troubles = [
        _no_peer(gpu, next((pair.why for pair in pairs if gpu.index in (pair.one, pair.other)), ""))
        for gpu in gpus
        if good and not partners[gpu.index] and _is_alone(gpu, gpus, partners)
    ]
    if (
        not troubles
        and isinstance(learned, int)
        and learned > len(good)
        and baseline.of("node", "peer gpus") == len(gpus)
    ):
        troubles.append(
            _p2p(
                "",
                counted(len(good), "pair"),
                counted(learned, "pair"),
                BASELINE,
                "fewer GPUs reach each other directly",
            )
        )
    looked_at = len(pairs) and len(gpus)
    measured = f"{len(good)} of {counted(len(pairs), 'pair')}"
    silent = list(unread)
    if not pairs and not silent and gpus:
        silent = [Unread(gpus[0].where, "the only GPU here has no peer")]
    return answered(troubles, silent, looked_at, measured=measured)


def _is_alone(gpu: Gpu, gpus: Sequence[Gpu], partners: Mapping[int, int]) -> bool:
    """Returns whether all other GPUs of its model have a peer."""
    alike = [other for other in gpus if other is not gpu and other.name == gpu.name]
    return len(alike) > 1 and all(partners[other.index] for other in alike)


def _no_peer(gpu: Gpu, why: str) -> Finding:
    because = f" ({why})" if why else ""
    return _p2p(
        gpu.where,
        f"reaches no other GPU{because}",
        "as the others",
        PEERS,
        "the GPU has no peer access (P2P) to any other GPU",
    )


def _p2p(where: str, measured: str, expected: str, whence: str, why: str) -> Finding:
    return Finding(
        status=WARN,
        device=where,
        measured=measured,
        expected=expected,
        whence=whence,
        why=f"{why}: collectives go through the host's memory and are slow",
        advice=Words(
            en="Check `nvidia-smi topo -p2p r` and `nvidia-smi topo -m`; check ACS and IOMMU in the BIOS, and in a"
            " virtual machine how the GPUs are passed through.",
            zh="查看 `nvidia-smi topo -p2p r` 与 `nvidia-smi topo -m`；检查 BIOS 中的 ACS 与 IOMMU，虚拟机需检查 GPU 直通方式。",
        ),
        category="p2p_failure",
    )
