"""Plans which checks a run makes and when; after a failure, those that the first verdict suggests come first.

Pure.
"""

from collections.abc import Sequence

from holdfast.model.checks import BOOT, CONTINUOUS, LIGHT, ON_FAILURE, PASSIVE, Spec

_OF_CLASS = {
    "hardware": ("gpu", "npu", "host"),
    "gpu_software": ("gpu", "env"),
    "network": ("rdma", "net", "host"),
    "communication": ("rdma", "net", "gpu", "env"),
    "memory": ("host", "io", "gpu"),
    "environment": ("env", "io"),
    "process": ("host", "io"),
    "host": ("host", "io", "gpu"),
    "training": ("env", "io"),
}
_OF_CATEGORY = {
    **dict.fromkeys(("gpu_oom", "gpu_oom_hidden", "gpu_oom_external_process"), ("gpu", "host")),
    **dict.fromkeys(("npu_hccl", "npu_heartbeat", "npu_runtime", "npu_fault"), ("npu", "rdma", "host")),
    **dict.fromkeys(("nvidia_peermem", "gdr_mismatch"), ("rdma", "gpu")),
    **dict.fromkeys(("pcie_aer", "pcie_link_downgrade"), ("gpu", "rdma", "host")),
    **dict.fromkeys(("rendezvous_timeout", "port_in_use", "nccl_wrong_interface"), ("net", "env", "rdma")),
    **dict.fromkeys(("filesystem_error", "disk_full", "permission_error"), ("io", "host")),
    **dict.fromkeys(("checkpoint_load_error", "checkpoint_save_error"), ("io", "host")),
    **dict.fromkeys(("missing_file", "data_error", "dataloader_stuck"), ("io", "env", "host")),
    **dict.fromkeys(("storage_io", "nfs_lustre_stall", "hung_task"), ("io", "host")),
    **dict.fromkeys(("shm_oom", "host_limit"), ("io", "host")),
    "straggler": ("gpu", "host", "rdma"),
}


def areas_for(category: str, class_: str) -> tuple[str, ...]:
    """Returns the check areas (gpu, rdma, ...) that can explain a verdict, most likely first; empty if unknown."""
    return _OF_CATEGORY.get(category) or _OF_CLASS.get(class_, ())


def before_a_start(specs: Sequence[Spec], *, quick: bool) -> tuple[Spec, ...]:
    """Returns the checks of the boot check. `quick`: only the fast ones."""
    return tuple(
        spec for spec in specs if BOOT in spec.contexts and not spec.bench and (spec.quick or not quick)
    )


def while_training(specs: Sequence[Spec]) -> tuple[Spec, ...]:
    """Returns the checks that run while the training runs."""
    return tuple(
        spec for spec in specs if CONTINUOUS in spec.contexts and spec.cost == PASSIVE and spec.quick
    )


def troubleshooting(specs: Sequence[Spec], category: str, class_: str, *, living: bool) -> tuple[Spec, ...]:
    """Returns the checks after a failure: all of the suggested areas, fast ones first; then the quick ones of
    the others.

    `living`: processes of the training still run, so only passive checks. Never checks that load a device,
    because the next attempt may start at any moment.
    """
    areas = areas_for(category, class_)
    allowed = (PASSIVE,) if living else (PASSIVE, LIGHT)
    places = {area: place for place, area in enumerate(areas)}
    wanted = [
        spec
        for spec in specs
        if ON_FAILURE in spec.contexts
        and not spec.bench
        and spec.cost in allowed
        and (spec.quick or spec.area in places)
    ]
    return tuple(
        sorted(wanted, key=lambda spec: (places.get(spec.area, len(places)), not spec.quick, spec.timeout_s))
    )
