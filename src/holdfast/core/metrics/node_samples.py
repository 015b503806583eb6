"""Converts the state of one node, and of a Holdfast process, into metric samples. Pure."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from holdfast.model.monitoring.metrics import AnySample, Sample
from holdfast.model.nodes.samples import DeviceSample, NodeSample

DEVICES_MAX = 64
PORTS_MAX = 32
PORT_ERRORS_MAX = 12  # per port: nonzero counters


class Spooled(Struct, frozen=True, kw_only=True):
    """The state of an agent's link to the controller and of its spool of reports."""

    connected: bool
    entries: int
    memory_bytes: int
    dropped: int
    lost: int


class NodeFacts(Struct, frozen=True, kw_only=True):
    """Values for the metrics of one node of a job. `link`: None if agent and controller are one process."""

    job: str
    node: str
    version: str
    ranks_running: int = 0
    ranks_ended: int = 0
    step: int | None = None
    last_output_s: float | None = None
    devices: Sequence[DeviceSample] = ()
    devices_age_s: float | None = None
    sample: NodeSample | None = None
    link: Spooled | None = None


class OwnFacts(Struct, frozen=True, kw_only=True):
    """Values for the metrics of a Holdfast process. `part`: controller, agent or server.

    `journal`: whether the process can write its journal; None if it has none.
    """

    part: str
    version: str
    python: str
    started_s: float
    cpu_s: float
    resident_bytes: int | None = None
    faults: int = 0
    journal: bool | None = None
    rows_lost: int = 0


def node_samples(facts: NodeFacts) -> list[AnySample]:
    """Returns the samples of all metrics of a node."""
    place = (facts.job, facts.node)
    found: list[AnySample] = [
        Sample("holdfast_agent_info", (*place, facts.version), 1.0),
        Sample("holdfast_worker_ranks", (*place, "running"), facts.ranks_running),
        Sample("holdfast_worker_ranks", (*place, "ended"), facts.ranks_ended),
    ]
    if facts.step is not None:
        found.append(Sample("holdfast_worker_step", place, facts.step))
    if facts.last_output_s is not None:
        found.append(Sample("holdfast_worker_last_output_timestamp_seconds", place, facts.last_output_s))
    if facts.devices_age_s is not None:
        found.append(Sample("holdfast_device_samples_age_seconds", place, facts.devices_age_s))
    for device in facts.devices[:DEVICES_MAX]:
        found += _device(place, device)
    if facts.sample is not None:
        found += _ports(place, facts.sample)
    if facts.link is not None:
        found += _link(place, facts.link)
    return found


def _device(place: tuple[str, str], device: DeviceSample) -> Iterator[Sample]:
    labels = (*place, str(device.index))
    values = {
        "holdfast_device_utilization_ratio": device.utilization,
        "holdfast_device_sm_active_ratio": device.sm_active,
        "holdfast_device_power_watts": device.power_w,
        "holdfast_device_power_limit_watts": device.power_limit_w,
        "holdfast_device_temperature_celsius": device.temperature_c,
        "holdfast_device_memory_used_bytes": device.memory_used_bytes,
        "holdfast_device_memory_bytes": device.memory_bytes,
    }
    for metric, value in values.items():
        if value is not None:
            yield Sample(metric, labels, value)


def _ports(place: tuple[str, str], sample: NodeSample) -> Iterator[Sample]:
    for port in sample.ports[:PORTS_MAX]:
        labels = (*place, port.device, str(port.port))
        if port.state:
            yield Sample("holdfast_port_up", labels, float(port.state == "ACTIVE"))
        for name, count in sorted(port.errors.items())[:PORT_ERRORS_MAX]:
            yield Sample("holdfast_port_errors_total", (*labels, name), count)


def _link(place: tuple[str, str], link: Spooled) -> Iterator[Sample]:
    yield Sample("holdfast_link_connected", place, float(link.connected))
    yield Sample("holdfast_link_spool_entries", place, link.entries)
    yield Sample("holdfast_link_spool_memory_bytes", place, link.memory_bytes)
    yield Sample("holdfast_link_spool_dropped_total", place, link.dropped)
    yield Sample("holdfast_link_spool_lost_total", place, link.lost)


def own_samples(
    facts: OwnFacts, *, snapshot_age_s: float, exposition_s: float, dropped: int
) -> list[AnySample]:
    """Returns the samples of a Holdfast process's own metrics.

    `snapshot_age_s`, `exposition_s`, `dropped`: age of the exported values, time taken to collect them, and
    series dropped.
    """
    part = (facts.part,)
    found = [
        Sample("holdfast_build_info", (*part, facts.version, facts.python), 1.0),
        Sample("holdfast_process_start_timestamp_seconds", part, facts.started_s),
        Sample("holdfast_process_cpu_seconds_total", part, facts.cpu_s),
        Sample("holdfast_faults_total", part, facts.faults),
        Sample("holdfast_snapshot_age_seconds", part, snapshot_age_s),
        Sample("holdfast_exposition_seconds", part, exposition_s),
        Sample("holdfast_series_dropped", part, dropped),
    ]
    if facts.resident_bytes is not None:
        found.append(Sample("holdfast_process_resident_memory_bytes", part, facts.resident_bytes))
    if facts.journal is not None:
        found.append(Sample("holdfast_journal_writable", part, float(facts.journal)))
        found.append(Sample("holdfast_journal_rows_lost_total", part, facts.rows_lost))
    return list(found)
