"""Queries GPUs through NVML, NVIDIA's management library.

Each query returns a value or a reason, and never raises.

A query fails for many reasons: a function that the driver or nvidia-ml-py lacks, one that the device does not
support, a missing permission, a lost GPU, a library that does not fit the driver, a driver that was reloaded
between two calls. Opening the library can hang, so it runs in a thread with a time limit.

source: NVML API reference; nvidia-ml-py (module pynvml)
"""

import importlib
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.checks.gpu.readings import Gpu, Unread, key_of

MODULE = "pynvml"
GPUS_MAX = 64
ADDRESS_DIGITS = 12  # 0000:5d:00.0; NVML writes the domain with 8 digits
OPEN_S = 2.0  # without persistence mode the first to open attaches every GPU, a second each and more
SHUTDOWNS_MAX = 256

# What stood against an answer.
ABSENT = "absent"  # neither device nor driver nor library has it
REFUSED = "refused"  # for want of a right
LOST = "lost"  # the GPU does not answer any more
RESET = "reset"  # the GPU answers nothing before a reset
GONE = "gone"  # the driver was unloaded, reloaded or replaced
OTHER = "other"

# Why NVML is not open.
NO_MODULE = "no-module"
NO_LIBRARY = "no-library"
NO_DRIVER = "no-driver"
MISMATCH = "mismatch"
NO_RIGHT = "no-right"
SLOW = "slow"
BROKEN = "broken"

_TROUBLES = {
    2: ABSENT,  # invalid argument: a link, a field or a struct of later drivers
    3: ABSENT,
    6: ABSENT,
    13: ABSENT,
    21: ABSENT,
    25: ABSENT,
    26: ABSENT,
    4: REFUSED,
    15: LOST,
    28: LOST,
    16: RESET,
    1: GONE,
    9: GONE,
    18: GONE,
}
_WHY = {
    ABSENT: "not supported by this GPU or driver",
    REFUSED: "no permission",
    LOST: "the GPU is lost (see gpu-count)",
    RESET: "the GPU needs a reset before it responds (see gpu-count)",
    GONE: "the driver was unloaded or reloaded during the query",
}
_CLOSED = {9: NO_DRIVER, 18: MISMATCH, 12: NO_LIBRARY, 4: NO_RIGHT, 13: BROKEN}


class Answer(NamedTuple):
    """The result of one NVML query.

    `value`: what was queried. `trouble`: the kind of error, empty if `value` could be read. `why`: the error in
    words.
    """

    value: Any = None
    trouble: str = ""
    why: str = ""


class NotOpen(Struct, frozen=True):
    """The reason why NVML cannot be used.

    `kind`: NO_MODULE, NO_LIBRARY, NO_DRIVER, MISMATCH, NO_RIGHT, SLOW or BROKEN. `after_s`: for SLOW, how
    many seconds the driver has not responded.
    """

    kind: str
    why: str
    after_s: float = 0.0


class Device(NamedTuple):
    """A GPU with its NVML handle. The handle is None if NVML could not return one."""

    gpu: Gpu
    handle: Any


class Nvml:
    """The open NVML library and its GPUs. `why_not_counted`: why the GPUs could not be listed, or empty."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self.why_not_counted = ""
        self.devices: tuple[Device, ...] = ()

    def constant(self, name: str, value: int) -> int:
        """Returns the constant of this name in the installed nvidia-ml-py, or `value` if it has none."""
        return int(getattr(self._module, name, value))

    def ask(self, function: str, *given: Any) -> Answer:
        """Calls the NVML function `nvml{function}` with the given arguments, and returns its result or its
        error.
        """
        call = getattr(self._module, f"nvml{function}", None)
        if call is None:
            return Answer(trouble=ABSENT, why="this version of nvidia-ml-py lacks the function")
        return self._answer(call, *given)

    def filled(self, function: str, struct: str, *given: Any) -> Answer:
        """Calls the NVML function `nvml{function}` with a struct of type `struct` as its last argument, and returns
        the filled struct.
        """
        make = getattr(self._module, struct, None)
        if make is None:
            return Answer(trouble=ABSENT, why="this version of nvidia-ml-py lacks the function")
        blank = make()
        answer = self.ask(function, *given, self._module_pointer(blank))
        return answer if answer.trouble else Answer(blank)

    def fields(self, handle: Any, fields: Sequence[int | tuple[int, int]]) -> tuple[Answer, ...]:
        """Returns the values of NVML fields of a GPU.

        A field is given by its id, or by id and scope (the number of a link).
        """
        answer = self.ask("DeviceGetFieldValues", handle, list(fields))
        if answer.trouble:
            return tuple(answer for _ in fields)
        return tuple(self._field(value) for value in answer.value)

    def count(self) -> None:
        """Queries the list of GPUs from NVML and stores them in `devices`."""
        answer = self.ask("DeviceGetCount")
        self.why_not_counted = answer.why
        found = [self._device(index) for index in range(min(answer.value or 0, GPUS_MAX))]
        doubled = Counter(gpu.key for gpu, _ in found)
        self.devices = tuple(
            Device(_by_uuid(gpu) if doubled[gpu.key] > 1 else gpu, handle) for gpu, handle in found
        )

    def readable(self) -> tuple[tuple[Device, ...], list[Unread]]:
        """Returns the GPUs that NVML can query, and for each other GPU the reason why it cannot be queried."""
        able = tuple(device for device in self.devices if not device.gpu.why_not)
        unread = [Unread(gpu.where, gpu.why_not) for gpu, _ in self.devices if gpu.why_not]
        if self.why_not_counted:
            unread.append(Unread("NVML", self.why_not_counted))
        return able, unread

    def _device(self, index: int) -> Device:
        handle = self.ask("DeviceGetHandleByIndex", index)
        if handle.trouble:
            lost = handle.trouble in (LOST, RESET, OTHER)
            return Device(Gpu(index=index, why_not=handle.why, is_lost=lost), None)
        pci = self.ask("DeviceGetPciInfo", handle.value)
        uuid = self.ask("DeviceGetUUID", handle.value)
        serial = self.ask("DeviceGetSerial", handle.value)
        name = self.ask("DeviceGetName", handle.value)
        address = "" if pci.trouble else _text(pci.value.busId).lower()[-ADDRESS_DIGITS:]
        bad = next((one for one in (pci, uuid, name) if one.trouble in (LOST, RESET, GONE)), None)
        return Device(
            Gpu(
                index=index,
                address=address,
                name=_text(name.value),
                uuid=_text(uuid.value),
                serial=_text(serial.value),
                key=key_of(_text(serial.value), _text(uuid.value), address),
                why_not=bad.why if bad else "",
                is_lost=bad is not None and bad.trouble in (LOST, RESET),
            ),
            handle.value,
        )

    def _field(self, value: Any) -> Answer:
        code = int(value.nvmlReturn)
        if code != 0:
            return self._trouble(code, "")
        kinds = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
        kind = int(value.valueType)
        if kind >= len(kinds):
            return Answer(trouble=OTHER, why=f"a value of unknown type {kind}")
        return Answer(getattr(value.value, kinds[kind], None))

    def _answer(self, call: Any, *given: Any) -> Answer:
        try:
            return Answer(call(*given))
        except self._module.NVMLError as error:
            return self._trouble(getattr(error, "value", 0), str(error))
        except (AttributeError, TypeError, ValueError, UnicodeDecodeError) as error:
            return Answer(trouble=ABSENT, why=f"nvidia-ml-py does not work with this driver: {error}")

    def _trouble(self, code: int, says: str) -> Answer:
        trouble = _TROUBLES.get(code, OTHER)
        return Answer(trouble=trouble, why=_WHY.get(trouble) or f"NVML reports {says or f'error {code}'}")

    def _module_pointer(self, struct: Any) -> Any:
        return self._module.byref(struct)


class _Opening:
    """A thread that opens NVML and lists its GPUs, because this can hang."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._done = threading.Event()
        self._result: Nvml | NotOpen = NotOpen(SLOW, "")
        self._thread = threading.Thread(target=self._run, name="holdfast-nvml", daemon=True)
        self._thread.start()

    def result(self, patience_s: float) -> Nvml | NotOpen:
        """Returns the open NVML, or the reason why there is none.

        `patience_s`: how many seconds after its start the thread may take; an earlier check may have started
        it.
        """
        if not self._done.wait(max(0.0, self._began_s + patience_s - time.monotonic())):
            after_s = time.monotonic() - self._began_s
            return NotOpen(SLOW, f"the GPU driver has not responded for {after_s:.1f} s", after_s)
        return self._result

    @property
    def is_over(self) -> bool:
        return self._done.is_set()

    def _run(self) -> None:
        try:
            self._result = _open()
        finally:
            self._done.set()


_openings: list[_Opening] = []  # the one that has not come back: another would wait behind it


def opened(patience_s: float = OPEN_S) -> Nvml | NotOpen:
    """Opens NVML and returns it, or the reason why it cannot be used. Waits at most `patience_s`.

    NVML stays open for later checks of this process, because attaching GPUs can take seconds.
    """
    stuck = [one for one in _openings if not one.is_over]
    opening = stuck[0] if stuck else _Opening()
    _openings[:] = [opening]
    return opening.result(patience_s)


def _open() -> Nvml | NotOpen:
    try:
        module = importlib.import_module(MODULE)
    except ImportError:
        return NotOpen(NO_MODULE, "nvidia-ml-py is not installed (pip install 'holdfast[gpu]')")
    closed = _initialised(module)
    if closed is not None:
        return closed
    nvml = Nvml(module)
    if nvml.ask("SystemGetDriverVersion").trouble == GONE:  # it was open, and the driver is another one now
        _shut(nvml)
        closed = _initialised(module)
        if closed is not None:
            return closed
    nvml.count()
    return nvml


def _initialised(module: ModuleType) -> NotOpen | None:
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        code = getattr(error, "value", 0)
        return NotOpen(_CLOSED.get(code, BROKEN), f"NVML reports: {error}")
    return None


def _shut(nvml: Nvml) -> None:
    """Closes NVML as often as it was opened, because the library counts."""
    for _ in range(SHUTDOWNS_MAX):
        if nvml.ask("Shutdown").trouble:
            return


def _by_uuid(gpu: Gpu) -> Gpu:
    """Returns the GPU with a key made of its UUID, because two GPUs on one board share a serial number."""
    return replace(gpu, key=key_of("", gpu.uuid, gpu.address))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)).strip()


def first_trouble(answers: Iterable[Answer]) -> str:
    """Returns the error text of the first failed NVML query; empty if all succeeded."""
    return next((answer.why for answer in answers if answer.trouble), "")
