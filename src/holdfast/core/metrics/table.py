"""Defines all metrics that Holdfast exports; docs/metrics.md is generated from it.

Names follow Prometheus conventions: base units, the unit last, `_total` for counters. The label of a job is
`job_name`, because Prometheus itself sets the label `job`.
"""

from holdfast.model.monitoring.metrics import Exporter, Metric

JOB = ("job_name",)
NODE = ("job_name", "node")
DEVICE = (*NODE, "device")
PORT = (*DEVICE, "port")
PART = ("part",)
_OF_JOB: tuple[Exporter, ...] = ("controller", "server")
_AGENT: tuple[Exporter, ...] = ("agent",)
_ALL: tuple[Exporter, ...] = ("controller", "agent", "server")
RECOVERY_BUCKETS_S = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_STEPS = "steps that the log of the training names"
_JOURNAL = "journal"
_LEDGER = "journal: every second of the job has one cause"
_DEVICES = "the driver's answer (NVML), once a second while ranks have the device open"


def _job(name: str, help_: str, source: str, *labels: str, unit: str = "") -> Metric:
    return Metric(
        name=f"holdfast_{name}",
        type="counter" if name.endswith("_total") else "info" if name.endswith("_info") else "gauge",
        help=help_,
        source=source,
        exported_by=_OF_JOB,
        labels=(*JOB, *labels),
        unit=unit,
    )


def _of_agent(
    name: str, help_: str, source: str, labels: tuple[str, ...] = NODE, *, unit: str = ""
) -> Metric:
    return Metric(
        name=f"holdfast_{name}",
        type="counter" if name.endswith("_total") else "info" if name.endswith("_info") else "gauge",
        help=help_,
        source=source,
        exported_by=_AGENT,
        labels=labels,
        unit=unit,
    )


def _own(name: str, help_: str, source: str, *labels: str, unit: str = "") -> Metric:
    return Metric(
        name=f"holdfast_{name}",
        type="counter" if name.endswith("_total") else "info" if name.endswith("_info") else "gauge",
        help=help_,
        source=source,
        exported_by=_ALL,
        labels=(*PART, *labels),
        unit=unit,
    )


_JOB_METRICS = (
    _job("job_info", "The job, and what runs it", "settings", "engine", "version"),
    _job("job_phase", "1 for the phase that the job is in, 0 for the others", _JOURNAL, "phase"),
    _job("job_outcome", "1 for the outcome of a job that has ended", _JOURNAL, "outcome"),
    _job("job_submitted_timestamp_seconds", "When the job was submitted", _JOURNAL, unit="seconds"),
    _job("job_attempts_total", "Attempts started", _JOURNAL),
    _job(
        "job_restarts_total",
        "Restarts by kind: restart (counted by max-restarts), hardware, replacement",
        _JOURNAL,
        "kind",
    ),
    _job(
        "job_restarts_max",
        "Restarts that the policy allows; absent where it allows none",
        "setting max-restarts",
    ),
    _job("job_nodes", "Nodes of the job by state: working, isolated, lost", _JOURNAL, "state"),
    _job("job_ranks", "Ranks of the present attempt by state: running, ended", _JOURNAL, "state"),
    _job("job_step", "Highest step of the present attempt", _STEPS),
    _job("job_step_target", "Last step of the training", _STEPS),
    _job("job_step_time_seconds", "Time of one step now", _STEPS, unit="seconds"),
    _job("job_step_time_median_seconds", "Median time of one step", _STEPS, unit="seconds"),
    _job(
        "job_step_time_best_seconds", "Best time of one step that the training held", _STEPS, unit="seconds"
    ),
    _job(
        "job_samples_per_second",
        "Samples trained in a second: batch over step time; absent where the log names no batch",
        _STEPS,
    ),
    _job(
        "job_tokens_per_second",
        "Tokens trained in a second; absent where the log names no batch of tokens and no sequence length",
        _STEPS,
    ),
    _job("job_loss", "Last loss of the training; may be NaN", _STEPS),
    _job("job_last_step_timestamp_seconds", "When the last step was seen", _STEPS, unit="seconds"),
    _job(
        "job_last_output_timestamp_seconds",
        "When the output of the training last grew",
        "size of the output",
        unit="seconds",
    ),
    _job(
        "job_finding_open",
        "1 while it is so: slowdown, straggler, step-stands, loss-nan, loss-diverged",
        "detectors on steps",
        "kind",
    ),
    _job("job_hang", "1 while a hang is confirmed and not recovered from", "hang detector"),
    _job("ranks_at_fault", "Ranks at fault in the open incident, and stragglers, by kind", "verdict", "kind"),
    _job(
        "rank_at_fault",
        "1 for a rank at fault; kind is the category of the verdict, or straggler. At most 16",
        "verdict; straggler detector",
        "node",
        "rank",
        "kind",
    ),
    _job(
        "incidents_total",
        "Incidents by category of the verdict and by the rung that recovers; exemplar: the number of the incident",
        _JOURNAL,
        "category",
        "rung",
    ),
    _job("incident_open", "1 while an incident is open", _JOURNAL),
    _job(
        "incident_open_since_timestamp_seconds",
        "When the open incident was found; absent without one",
        _JOURNAL,
        unit="seconds",
    ),
    Metric(
        name="holdfast_recovery_seconds",
        type="histogram",
        help="Time from the finding of an incident until training goes on; exemplar: the number of the incident",
        source=_JOURNAL,
        exported_by=_OF_JOB,
        labels=JOB,
        unit="seconds",
        buckets=RECOVERY_BUCKETS_S,
    ),
    _job(
        "job_lost_seconds_total",
        "Time in which no new step was made. category: of the incident, none outside of one. stage: start, stalled, "
        "diagnosing, isolating, stopping, healing, placing, waiting, checking, repeated",
        _LEDGER,
        "category",
        "stage",
        unit="seconds",
    ),
    _job("job_productive_seconds_total", "Time in which new steps were made", _LEDGER, unit="seconds"),
    _job(
        "job_goodput_ratio", "Productive time to all time since the job was submitted", _LEDGER, unit="ratio"
    ),
    _job("job_steps_repeated_total", "Steps that were made again after a restart", _JOURNAL),
    _job("job_agents_connected", "Agents that are connected to the controller", "link"),
)
_AGENT_METRICS = (
    _of_agent("agent_info", "The agent of a node", "agent", (*NODE, "version")),
    _of_agent(
        "worker_ranks",
        "Ranks of the worker on this node by state: running, ended",
        "reaper",
        (*NODE, "state"),
    ),
    _of_agent("worker_step", "Highest step that the output of this worker names", _STEPS),
    _of_agent(
        "worker_last_output_timestamp_seconds",
        "When the output of this worker last grew",
        "size of the output",
        unit="seconds",
    ),
    _of_agent(
        "device_utilization_ratio",
        "Share of time with a kernel running; a waiting collective counts",
        _DEVICES,
        DEVICE,
        unit="ratio",
    ),
    _of_agent(
        "device_sm_active_ratio", "Share of the SMs that did something", _DEVICES, DEVICE, unit="ratio"
    ),
    _of_agent("device_power_watts", "Power of the board", _DEVICES, DEVICE, unit="watts"),
    _of_agent("device_power_limit_watts", "Power limit of the board", _DEVICES, DEVICE, unit="watts"),
    _of_agent("device_temperature_celsius", "Temperature of the core", _DEVICES, DEVICE, unit="celsius"),
    _of_agent("device_memory_used_bytes", "Device memory in use", _DEVICES, DEVICE, unit="bytes"),
    _of_agent("device_memory_bytes", "Size of the device memory", _DEVICES, DEVICE, unit="bytes"),
    _of_agent(
        "device_samples_age_seconds",
        "Age of the device samples; grows while the driver does not answer",
        _DEVICES,
        unit="seconds",
    ),
    _of_agent("port_up", "1 while the port of an RDMA device is active", "sysfs", PORT),
    _of_agent(
        "port_errors_total",
        "Error and congestion counters of an RDMA port that are not zero",
        "sysfs",
        (*PORT, "counter"),
    ),
    _of_agent("link_connected", "1 while the agent is connected to the controller", "link"),
    _of_agent("link_spool_entries", "Reports that the controller has not recorded yet", "link"),
    _of_agent("link_spool_memory_bytes", "Memory that they take", "link", unit="bytes"),
    _of_agent("link_spool_dropped_total", "Samples dropped for want of room", "link"),
    _of_agent("link_spool_lost_total", "Reports lost for want of room", "link"),
)
_OWN_METRICS = (
    _own("build_info", "Version of Holdfast and of Python", "process", "version", "python"),
    _own(
        "process_start_timestamp_seconds", "When this process of Holdfast started", "process", unit="seconds"
    ),
    _own(
        "process_cpu_seconds_total", "Processor time of this process of Holdfast", "process", unit="seconds"
    ),
    _own(
        "process_resident_memory_bytes",
        "Resident memory of this process of Holdfast",
        "/proc/self/statm",
        unit="bytes",
    ),
    _own("faults_total", "Faults of Holdfast itself that it went on from", "main loop"),
    _own("journal_writable", "1 while the journal is being written", _JOURNAL),
    _own("journal_rows_lost_total", "Rows that never reached the journal", _JOURNAL),
    _own(
        "snapshot_age_seconds",
        "Age of these values; grows while the main loop is held up",
        "main loop",
        unit="seconds",
    ),
    _own("exposition_seconds", "What collecting these values took", "main loop", unit="seconds"),
    _own("series_dropped", "Series left out because there were too many", "exposition"),
)


def _server(name: str, help_: str, *labels: str) -> Metric:
    return Metric(
        name=f"holdfast_{name}",
        type="counter" if name.endswith("_total") else "gauge",
        help=help_,
        source="server",
        exported_by=("server",),
        labels=labels,
    )


_SERVER_METRICS = (
    _server("jobs", "Jobs that the server sees, by phase", "phase"),
    _server("fleet_nodes", "Nodes of the node book by state: known, isolated, lemon", "state"),
    _server("alerts_received_total", "Alerts taken from Alertmanager as evidence, by status", "status"),
)
METRICS = (*_JOB_METRICS, *_AGENT_METRICS, *_OWN_METRICS, *_SERVER_METRICS)
BY_NAME = {metric.name: metric for metric in METRICS}


def series_names() -> frozenset[str]:
    """Returns every series name of these metrics. A histogram has three."""
    names: set[str] = set()
    for metric in METRICS:
        if metric.type == "histogram":
            names |= {f"{metric.name}_{part}" for part in ("bucket", "sum", "count")}
        else:
            names.add(metric.name)
    return frozenset(names)
