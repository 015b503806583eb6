"""Identifies GPUs, and merges the findings on many GPUs into one result. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.model.checks import PASS, SKIP, Finding
from holdfast.model.signatures import Words

NAMED_MAX = 4

RESET = Words(
    en="End all processes on {gpu}, reset it (`nvidia-smi --gpu-reset -i {gpu}`; on NVSwitch systems all GPUs together)"
    " and check again; if it comes back, keep the node out and have the GPU inspected.",
    zh="结束 {gpu} 上的所有进程并重置（`nvidia-smi --gpu-reset -i {gpu}`；NVSwitch 系统需全部 GPU 一起重置），再检查一次；"
    "若复现，隔离该节点并检修该 GPU。",
)
REPLACE = Words(
    en="Keep the node out of the run, save nvidia-bug-report.sh, and have {gpu} replaced.",
    zh="不要在训练中使用该节点，保存 nvidia-bug-report.sh 后更换 {gpu}。",
)
REBOOT = Words(
    en="Drain the node and reboot it (power-cycle where a GPU is off the bus), then check again; if {gpu} fails again,"
    " have it inspected.",
    zh="排空节点并重启（GPU 掉线时需断电重启）后再检查；若 {gpu} 再次出错，请检修。",
)


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU as NVML lists it.

    `address`: PCI address, "0000:1a:00.0". `key`: "gpu:SERIAL", or by UUID without a serial number. `why_not`: why it
    cannot be queried; empty if it can; `is_lost`: it no longer responds.
    """

    index: int
    address: str = ""
    name: str = ""
    uuid: str = ""
    serial: str = ""
    key: str = ""
    why_not: str = ""
    is_lost: bool = False

    @property
    def where(self) -> str:
        """Returns the GPU's name for users: its PCI address, else its index."""
        return self.address or f"GPU {self.index}"


class Unread(Struct, frozen=True):
    """A device for which a value could not be read, and the reason."""

    where: str
    why: str


def advice(words: Words, gpu: str, **more: object) -> Words:
    """Returns an advice text with placeholders replaced by names."""
    return Words(en=words.en.format(gpu=gpu, **more), zh=words.zh.format(gpu=gpu, **more))


def answered(
    troubles: Iterable[Finding],
    unread: Sequence[Unread],
    good: int,
    *,
    measured: str,
    expected: str = "",
    whence: str = "",
) -> list[Finding]:
    """Returns the findings of a check on many devices: all failures and warnings; a pass if there are none and some
    device is good; skips, by reason, for devices without a value.

    `good`: number of devices that were read and are healthy.
    """
    found = together(troubles)
    if good and not found:
        found.append(Finding(status=PASS, measured=measured, expected=expected, whence=whence))
    by_reason: dict[str, list[str]] = defaultdict(list)
    for one in unread:
        by_reason[one.why].append(one.where)
    found += [Finding(status=SKIP, why=f"{named(where)}: {why}") for why, where in by_reason.items()]
    if not found:
        found.append(Finding(status=SKIP, why="NVML shows no GPU here"))
    return found


def together(troubles: Iterable[Finding]) -> list[Finding]:
    """Merges equal findings on several devices into one."""
    alike: dict[Finding, list[str]] = defaultdict(list)
    for one in troubles:
        alike[replace(one, device="")].append(one.device)
    return [_of(one, [place for place in where if place]) for one, where in alike.items()]


def _of(one: Finding, places: Sequence[str]) -> Finding:
    if len(places) < 2:
        return replace(one, device=places[0] if places else "")
    return replace(one, measured=f"{one.measured} ({named(places)})")


def named(where: Sequence[str]) -> str:
    """Returns the names of devices: "0000:1a:00.0, 0000:2a:00.0 and 6 more"."""
    more = f" and {len(where) - NAMED_MAX} more" if len(where) > NAMED_MAX else ""
    return ", ".join(where[:NAMED_MAX]) + more


def key_of(serial: str, uuid: str, address: str) -> str:
    """Returns the GPU's permanent identity. Cards without a serial number report 0 or nothing."""
    known = serial if serial.strip("0") else uuid or address
    return f"gpu:{known}" if known else ""
