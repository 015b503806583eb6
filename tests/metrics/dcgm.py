"""Plays a dcgm-exporter: its text, under the old or the new names."""

from holdfast.metrics.rule_store import package_rules
from metrics.servers import text

BOOK = package_rules()
# As a GPU in training has them: chosen, not recorded. Names and labels are those of dcgm-exporter.
VALUES = {
    "gpu_util": 1.0,
    "gpu_sm": 0.87,
    "gpu_tensor": 0.41,
    "gpu_power": 643.2,
    "gpu_temperature": 61.0,
    "gpu_memory_used": 71_204.0,
    "gpu_memory_free": 9_858.0,
    "gpu_xid": 0.0,
    "gpu_pcie_replays": 0.0,
    "gpu_remap_failed": 0.0,
    "gpu_remap_uncorrectable": 0.0,
}
NEW, OLD = 0, -1


def line(quantity, value, host, gpu, names):
    one = BOOK.series[quantity].names[names]
    labels = (
        f'gpu="{gpu}",UUID="GPU-{host}-{gpu}",device="nvidia{gpu}",modelName="NVIDIA H100",Hostname="{host}"'
    )
    return f"{one.name}{{{labels}}} {value / one.scale!r}"


def metrics(hosts=("node-1", "node-2"), gpus=8, names=OLD, **values):
    """The text of all nodes. `values`: other than these; None: without it."""
    told = {name: value for name, value in {**VALUES, **values}.items() if value is not None}
    lines = [
        line(name, value, host, gpu, names)
        for name, value in told.items()
        for host in hosts
        for gpu in range(gpus)
    ]
    return "\n".join(lines) + "\n"


def played(**more):
    return text(metrics(**more))
