"""Lists the node conditions and taints by which monitors report faults, with their meaning. Pure.

source: NVSentinel: github.com/NVIDIA/NVSentinel, docs/INTEGRATIONS.md (standard condition types; default taint examples; a
condition is True only for a fatal error). Node problem detector: github.com/kubernetes/node-problem-detector, the "conditions" of
config/kernel-monitor.json, readonly-monitor.json, kernel-monitor-counter.json, systemd-monitor-counter.json,
docker-monitor.json, health-checker-kubelet.json, health-checker-containerd.json, health-checker-docker.json and
custom-plugin-monitor.json
"""

# By the type of a condition that is True: its meaning. Other conditions of monitors are reported by their type alone.
CONDITIONS = {
    "GpuMemWatch": "GPU memory errors",
    "GpuThermalWatch": "a GPU beyond its temperature limits",
    "GpuPcieWatch": "errors of a GPU's PCIe link",
    "GpuPowerWatch": "power trouble of a GPU",
    "GpuInforomWatch": "a corrupt GPU inforom",
    "GpuSmWatch": "errors of a GPU's streaming multiprocessors",
    "GpuNvlinkWatch": "NVLink failures",
    "GpuMcuWatch": "errors of a GPU's microcontroller",
    "GpuPmuWatch": "errors of a GPU's power management unit",
    "GpuDriverWatch": "GPU driver errors",
    "SysLogsXIDError": "XID errors in the system log",
    "SysLogsSXIDError": "NVSwitch SXID errors in the system log",
    "SysLogsGPUFallenOff": "a GPU that has fallen off the bus",
    "NVSwitchFatalError": "a fatal NVSwitch error",
    "NVSwitchDown": "an NVSwitch that is down",
    "KernelDeadlock": "a deadlocked kernel",
    "ReadonlyFilesystem": "a file system that became read-only",
    "XfsShutdown": "an XFS file system that shut down",
}
# Conditions that prove no fault of the hardware: they are noted, and count for nothing.
NOT_FAULTS = {
    "NVSwitchNonFatalError": "NVSwitch warnings",
    "GpuCpusetWatch": "CPU affinity trouble",
    "DCGMError": "DCGM does not work",
    "SyslogError": "the system log cannot be analysed",
    "CSPMaintenance": "maintenance planned by the cloud provider",
    # Of services on the node: running containers continue.
    "KubeletUnhealthy": "its kubelet does not respond",
    "ContainerRuntimeUnhealthy": "its container runtime does not respond",
    "FrequentKubeletRestart": "its kubelet restarts often",
    "FrequentContainerdRestart": "containerd restarts often",
    "FrequentDockerRestart": "Docker restarts often",
    "FrequentUnregisterNetDevice": "the kernel waits for a network device of a container that has ended",
    "CorruptDockerOverlay2": "damaged image storage of Docker",
    "NTPProblem": "its clock is not synchronised",
}
# By the key of a taint: its meaning.
TAINTS = {
    "nvidia.com/gpu-xid-error": "GPU XID errors",
    "nvidia.com/gpu-nvlink-error": "NVLink failures",
    "nvidia.com/syslog-xid-error": "XID errors in the system log",
    "nvidia.com/gpu-error": "GPU hardware errors",
}
# Pressure passes, and the kubelet moves pods of too many or too large.
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def is_fault(condition: str) -> bool:
    """Returns True if a condition that is True reports a fault of the node's hardware or kernel."""
    return condition not in PRESSURES and condition not in NOT_FAULTS


def named(name: str) -> str:
    """Returns a condition or taint with its meaning, where that is known."""
    known = CONDITIONS.get(name) or NOT_FAULTS.get(name) or TAINTS.get(name)
    return f"{name} ({known})" if known else name
