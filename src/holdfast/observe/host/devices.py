"""Reads GPU metrics through NVML: power, utilisation, SM activity, memory, temperature.

During a waiting NCCL collective the driver reports full utilisation, because the NCCL kernel spins. Power
near idle and low SM activity distinguish this from work. NVML runs in its own thread, because a faulty driver
may not return, and is loaded only once a rank has a GPU open, because loading it wakes sleeping devices. It
needs nvidia-ml-py (the `gpu` extra); without it, or without a driver, there are no devices and `why_not` says
so.

source: NVML API reference; GPM (SM activity) from Hopper on
"""

import importlib
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from holdfast.model.nodes.samples import DeviceSample
from holdfast.observe.host.aside import Answer, Aside

MODULE = "pynvml"
DEVICES_MAX = 64
OPEN_AGAIN_EVERY = 60  # questions, where NVML could not be opened
ADDRESS_DIGITS = 12  # 0000:5d:00.0; NVML writes the domain with 8 digits


class Devices:
    """Reader of the metrics of this node's GPUs.

    `open_nvml`: returns the initialised NVML module; tests pass another one.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        open_nvml: Callable[[], ModuleType] | None = None,
    ) -> None:
        reader = NvmlReader(open_nvml or load_nvml)
        self._aside: Aside[tuple[DeviceSample, ...]] = Aside(reader.read, "holdfast-nvml", clock)

    def ask(self) -> bool:
        """Starts to read the metrics of all GPUs and returns at once.

        Returns False if the driver has not responded to the previous reading. Call it only while a GPU is in use.
        """
        return self._aside.ask()

    def last(self) -> Answer[tuple[DeviceSample, ...]] | None:
        return self._aside.last()

    @property
    def why_not(self) -> str:
        return self._aside.why_not

    def stuck_s(self) -> float:
        """Returns how many seconds the driver has not responded to the current reading; 0 if none runs."""
        return self._aside.stuck_s()

    def wait(self, timeout_s: float) -> bool:
        """Waits until the current reading ends, at most `timeout_s` seconds. Returns False at the timeout."""
        return self._aside.wait(timeout_s)

    def close(self) -> None:
        self._aside.close()


class NoDevices(OSError):
    """Raised when NVML cannot be used. The message says why."""


def load_nvml() -> ModuleType:
    """Imports nvidia-ml-py, initialises NVML and returns the module. Raises NoDevices."""
    try:
        nvml = importlib.import_module(MODULE)
    except ImportError as error:
        raise NoDevices(
            "GPUs cannot be read: nvidia-ml-py is not installed (pip install 'holdfast[gpu]')"
        ) from error
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NoDevices(f"GPUs cannot be read: NVML reports {error}") from error
    return nvml


class NvmlReader:
    """Reader of metrics of all GPUs, for use by one thread.

    It keeps the state from which SM activity is computed.
    """

    def __init__(self, open_nvml: Callable[[], ModuleType]) -> None:
        self._open_nvml = open_nvml
        self._nvml: Any = None
        self._refused = ""
        self._reads = 0
        self._names: dict[int, tuple[str, str]] = {}
        self._activity: dict[int, Any] = {}  # the GPM sample before; None: the device has none

    def read(self) -> tuple[DeviceSample, ...]:
        """Returns the current metrics of all GPUs. Raises NoDevices."""
        self._open()
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            self._nvml = None
            raise NoDevices(f"GPUs cannot be read: NVML reports {error}") from error
        return tuple(self._device(index) for index in range(min(count, DEVICES_MAX)))

    def _open(self) -> None:
        self._reads += 1
        if self._nvml is not None:
            return
        if self._refused and self._reads % OPEN_AGAIN_EVERY:
            raise NoDevices(self._refused)
        try:
            self._nvml = self._open_nvml()
        except NoDevices as error:
            self._refused = str(error)
            raise

    def _device(self, index: int) -> DeviceSample:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            address, uuid = self._name(index, handle)
            memory = self._memory(handle)
        except nvml.NVMLError as error:
            address, uuid = self._names.get(index, ("", ""))
            return DeviceSample(index=index, address=address, uuid=uuid, error=str(error))
        power_mw = self._value(nvml.nvmlDeviceGetPowerUsage, handle)
        limit_mw = self._value(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        rates = self._value(nvml.nvmlDeviceGetUtilizationRates, handle)
        return DeviceSample(
            index=index,
            address=address,
            uuid=uuid,
            power_w=None if power_mw is None else power_mw / 1000,
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            utilization=None if rates is None else rates.gpu / 100,
            sm_active=self._sm_active(index, handle),
            memory_used_bytes=None if memory is None else memory.used,
            memory_bytes=None if memory is None else memory.total,
            temperature_c=self._value(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        )

    def _memory(self, handle: Any) -> Any:
        """Returns the memory use of a GPU; None for one without own memory (Grace).

        Raises NVMLError if the GPU is lost.
        """
        try:
            return self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except self._nvml.NVMLError_NotSupported:
            return None

    def _value(self, ask: Callable[..., Any], *given: Any) -> Any:
        """Calls an NVML function and returns its result; None if it fails."""
        try:
            return ask(*given)
        except self._nvml.NVMLError:
            return None

    def _name(self, index: int, handle: Any) -> tuple[str, str]:
        """Returns the PCI address and the UUID of a GPU. Raises NVMLError."""
        if index not in self._names:
            address = _text(self._nvml.nvmlDeviceGetPciInfo(handle).busId).lower()[-ADDRESS_DIGITS:]
            self._names[index] = (address, _text(self._nvml.nvmlDeviceGetUUID(handle)))
        return self._names[index]

    def _sm_active(self, index: int, handle: Any) -> float | None:
        """Returns the share of SMs that were active since the previous reading (GPM); None before Hopper
        and at first.
        """
        nvml = self._nvml
        if index in self._activity and self._activity[index] is None:
            return None
        try:
            if index not in self._activity and not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                self._activity[index] = None
                return None
            now = nvml.nvmlGpmSampleGet(handle, nvml.nvmlGpmSampleAlloc())
        except (nvml.NVMLError, AttributeError):  # an older driver, or an older nvidia-ml-py
            self._activity[index] = None
            return None
        before = self._activity.get(index)
        self._activity[index] = now
        return self._between(before, now) if before is not None else None

    def _between(self, before: Any, now: Any) -> float | None:
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
        asked.sample1, asked.sample2 = before, now
        asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        try:
            nvml.nvmlGpmMetricsGet(asked)
            share = asked.metrics[0].value / 100 if asked.metrics[0].nvmlReturn == nvml.NVML_SUCCESS else None
        except nvml.NVMLError:
            share = None
        self._value(nvml.nvmlGpmSampleFree, before)
        return share if share is not None and 0 <= share <= 1.05 else None


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
