"""Defines what the checks that use NVML have in common: their specification, and queries of all GPUs at once."""

from pathlib import Path
from typing import Any

from holdfast.checks.readers import nvml
from holdfast.checks.readers.nvml import Answer, Device, NotOpen, Nvml
from holdfast.core.checks.gpu.presence import HANGS
from holdfast.core.checks.gpu.readings import Unread
from holdfast.model.checks import (
    BOOT,
    CONTINUOUS,
    DEVICE_FAULT,
    EPILOG,
    FAIL,
    MANUAL,
    ON_FAILURE,
    PROLOG,
    SKIP,
    Finding,
    Scene,
    Spec,
)
from holdfast.model.signatures import Words

OPTION_S_MAX = 2.0
ANCESTORS_MAX = 64
ASK_S = 4.0  # opening, which has its own limit, and the questions; within the 5 s of the quick suite
EVERYWHERE = (BOOT, PROLOG, EPILOG, CONTINUOUS, ON_FAILURE, MANUAL)


def nvml_spec(name: str, en: str, zh: str, *, quick: bool = False, timeout_s: float = ASK_S) -> Spec:
    """Returns the specification of a check that uses NVML.

    A timeout of such a check counts as a device fault.
    """
    return Spec(
        name=name,
        area="gpu",
        what=Words(en=en, zh=zh),
        contexts=EVERYWHERE,
        timeout_s=timeout_s,
        needs=("nvml",),
        quick=quick,
        on_hang=FAIL,
        on_hang_fault=DEVICE_FAULT,
        hang_advice=HANGS,
    )


def opened() -> Nvml | Finding:
    """Returns the open NVML, or the finding that a check reports if NVML cannot be used."""
    library = nvml.opened()
    return Finding(status=SKIP, why=library.why) if isinstance(library, NotOpen) else library


def asked(library: Nvml, function: str, *given: object) -> tuple[list[tuple[Device, Answer]], list[Unread]]:
    """Calls an NVML function for each GPU.

    Returns the results of the GPUs that responded, and the errors of the others.
    """
    devices, unread = library.readable()
    answers = [(device, library.ask(function, device.handle, *given)) for device in devices]
    unread += [Unread(device.gpu.where, answer.why) for device, answer in answers if answer.trouble]
    return [(device, answer) for device, answer in answers if not answer.trouble], unread


def read(path: Path, bytes_max: int = 1 << 16) -> str:
    """Returns the text of a small file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(bytes_max).decode("utf-8", "replace")
    except OSError:
        return ""


def option_s(scene: Scene, name: str, none: float) -> float:
    """Returns an option of a check in seconds (such as "gpu-clocks.between_s"), or `none` if the option is not set or
    no number.
    """
    try:
        return min(max(float(scene.options.get(name, none)), 0.0), OPTION_S_MAX)
    except ValueError:
        return none


def is_below(pid: int, own: frozenset[int], proc: Path) -> bool:
    """Returns True if a process or one of its ancestors is in `own`, the processes of this job."""
    for _ in range(ANCESTORS_MAX):
        if pid in own:
            return True
        fields = read(proc / str(pid) / "stat").rpartition(") ")[2].split()
        if len(fields) < 2 or not fields[1].isdecimal() or fields[1] == "0":
            return False
        pid = int(fields[1])
    return False


def is_divided(library: Nvml, handle: Any) -> bool:
    """Returns True if a GPU is in MIG mode. GPUs without MIG report it as not supported."""
    mode = library.ask("DeviceGetMigMode", handle).value
    return bool(mode and mode[0])
