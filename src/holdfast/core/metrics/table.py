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
_OF_JOB: tuple[Exporter, ...] = ("controller",)
# The server exports only these of each running job, from its index; the others need the job's controller.
_OF_SERVER = frozenset(
    {
        "job_submitted_timestamp_seconds",
        "job_attempts_total",
        "job_step",
        "job_step_target",
        "job_step_time_seconds",
        "job_goodput_ratio",
        "incident_open",
    }
)
_AGENT: tuple[Exporter, ...] = ("agent",)
_ALL: tuple[Exporter, ...] = ("controller", "agent", "server")
RECOVERY_BUCKETS_S = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_STEPS = "steps in the training log"
_JOURNAL = "journal"
_LEDGER = "journal: each second of the job has one cause"
_DEVICES = "driver (NVML), once a second while ranks use the device"


def _job(name: str, help_: str, source: str, *labels: str, unit: str = "") -> Metric:
    return Metric(
        name=f"holdfast_{name}",
        type="counter" if name.endswith("_total") else "info" if name.endswith("_info") else "gauge",
        help=help_,
        source=source,
        exported_by=(*_OF_JOB, "server") if name in _OF_SERVER else _OF_JOB,
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
    _job("job_info", "Engine and version of the job", "settings", "engine", "version"),
    _job("job_phase", "1 for the current phase of the job, 0 for the others", _JOURNAL, "phase"),
    _job("job_outcome", "1 for the outcome of a job that has ended", _JOURNAL, "outcome"),
    _job("job_submitted_timestamp_seconds", "Submission time of the job", _JOURNAL, unit="seconds"),
    _job("job_attempts_total", "Attempts started", _JOURNAL),
    _job(
        "job_restarts_total",
        "Restarts by kind: restart (counted by max-restarts), hardware, replacement",
        _JOURNAL,
        "kind",
    ),
    _job(
        "job_restarts_max",
        "Maximum number of restarts in the policy; absent if it allows none",
        "setting max-restarts",
    ),
    _job("job_nodes", "Nodes of the job by state: working, isolated, lost", _JOURNAL, "state"),
    _job("job_ranks", "Ranks of the current attempt by state: running, ended", _JOURNAL, "state"),
    _job("job_step", "Highest step of the current attempt", _STEPS),
    _job("job_step_target", "Last step of the training", _STEPS),
    _job("job_step_time_seconds", "Current time of one step", _STEPS, unit="seconds"),
    _job("job_step_time_median_seconds", "Median time of one step", _STEPS, unit="seconds"),
    _job("job_step_time_best_seconds", "Best sustained time of one step", _STEPS, unit="seconds"),
    _job(
        "job_samples_per_second",
        "Training samples per second: batch size divided by step time; absent if the log has no batch size",
        _STEPS,
    ),
    _job(
        "job_tokens_per_second",
        "Training tokens per second; absent if the log has neither a batch size in tokens nor a sequence length",
        _STEPS,
    ),
    _job("job_loss", "Last loss of the training; may be NaN", _STEPS),
    _job("job_last_step_timestamp_seconds", "Time of the last step seen", _STEPS, unit="seconds"),
    _job(
        "job_last_output_timestamp_seconds",
        "Time of the last growth of the training's output",
        "size of the output",
        unit="seconds",
    ),
    _job(
        "job_finding_open",
        "1 while the condition holds: slowdown, straggler, step-stands, loss-nan, loss-diverged",
        "detectors on steps",
        "kind",
    ),
    _job("job_hang", "1 from the confirmation of a hang until recovery", "hang detector"),
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
        "Time when the open incident was found; absent without one",
        _JOURNAL,
        unit="seconds",
    ),
    Metric(
        name="holdfast_recovery_seconds",
        type="histogram",
        help="Time from the detection of an incident until training resumes; exemplar: the number of the incident",
        source=_JOURNAL,
        exported_by=_OF_JOB,
        labels=JOB,
        unit="seconds",
        buckets=RECOVERY_BUCKETS_S,
    ),
    _job(
        "job_lost_seconds_total",
        "Time without a new step. category: of the incident, or none. stage: start, stalled, "
        "diagnosing, isolating, stopping, healing, placing, waiting, checking, repeated",
        _LEDGER,
        "category",
        "stage",
        unit="seconds",
    ),
    _job("job_productive_seconds_total", "Time spent on new steps", _LEDGER, unit="seconds"),
    _job("job_goodput_ratio", "Productive time divided by the time since submission", _LEDGER, unit="ratio"),
    _job("job_steps_repeated_total", "Steps repeated after a restart", _JOURNAL),
    _job("job_agents_connected", "Agents connected to the controller", "link"),
)
_AGENT_METRICS = (
    _of_agent("agent_info", "The agent of a node", "agent", (*NODE, "version")),
    _of_agent(
        "worker_ranks",
        "Ranks of the worker on this node by state: running, ended",
        "reaper",
        (*NODE, "state"),
    ),
    _of_agent("worker_step", "Highest step in this worker's output", _STEPS),
    _of_agent(
        "worker_last_output_timestamp_seconds",
        "Time of the last growth of this worker's output",
        "size of the output",
        unit="seconds",
    ),
    _of_agent(
        "device_utilization_ratio",
        "Share of time with a running kernel, including waiting collectives",
        _DEVICES,
        DEVICE,
        unit="ratio",
    ),
    _of_agent("device_sm_active_ratio", "Share of active SMs", _DEVICES, DEVICE, unit="ratio"),
    _of_agent("device_power_watts", "Power of the board", _DEVICES, DEVICE, unit="watts"),
    _of_agent("device_power_limit_watts", "Power limit of the board", _DEVICES, DEVICE, unit="watts"),
    _of_agent("device_temperature_celsius", "Temperature of the core", _DEVICES, DEVICE, unit="celsius"),
    _of_agent("device_memory_used_bytes", "Device memory in use", _DEVICES, DEVICE, unit="bytes"),
    _of_agent("device_memory_bytes", "Size of the device memory", _DEVICES, DEVICE, unit="bytes"),
    _of_agent(
        "device_samples_age_seconds",
        "Age of the device samples; grows while the driver does not respond",
        _DEVICES,
        unit="seconds",
    ),
    _of_agent("port_up", "1 while the port of an RDMA device is active", "sysfs", PORT),
    _of_agent(
        "port_errors_total",
        "Nonzero error and congestion counters of an RDMA port",
        "sysfs",
        (*PORT, "counter"),
    ),
    _of_agent("link_connected", "1 while the agent is connected to the controller", "link"),
    _of_agent("link_spool_entries", "Reports not yet recorded by the controller", "link"),
    _of_agent("link_spool_memory_bytes", "Memory of these reports", "link", unit="bytes"),
    _of_agent("link_spool_dropped_total", "Samples dropped because the spool was full", "link"),
    _of_agent("link_spool_lost_total", "Reports lost because the spool was full", "link"),
)
_OWN_METRICS = (
    _own("build_info", "Versions of Holdfast and Python", "process", "version", "python"),
    _own("process_start_timestamp_seconds", "Start time of this Holdfast process", "process", unit="seconds"),
    _own("process_cpu_seconds_total", "CPU time of this Holdfast process", "process", unit="seconds"),
    _own(
        "process_resident_memory_bytes",
        "Resident memory of this Holdfast process",
        "/proc/self/statm",
        unit="bytes",
    ),
    _own("faults_total", "Internal errors that Holdfast survived", "main loop"),
    _own("journal_writable", "1 while the journal is writable", _JOURNAL),
    _own("journal_rows_lost_total", "Rows not written to the journal", _JOURNAL),
    _own(
        "snapshot_age_seconds",
        "Age of these values; grows while the main loop is blocked",
        "main loop",
        unit="seconds",
    ),
    _own("exposition_seconds", "Time taken to collect these values", "main loop", unit="seconds"),
    _own("series_dropped", "Series dropped because of the limit", "exposition"),
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
    _server("jobs", "Jobs of the server by state, as on the page", "state"),
    _server("fleet_incidents", "Recorded incidents of all jobs of the server, by category", "category"),
    _server("fleet_nodes", "Nodes of the node book by state: known, isolated, lemon", "state"),
    _server("server_viewers", "Open event streams of the page and the API"),
    _server("server_warnings", "Current warnings in the health document of the server"),
    _server("alerts_received_total", "Alerts received from Alertmanager as evidence, by status", "status"),
)
METRICS = (*_JOB_METRICS, *_AGENT_METRICS, *_OWN_METRICS, *_SERVER_METRICS)
BY_NAME = {metric.name: metric for metric in METRICS}


def series_names() -> frozenset[str]:
    """Returns the names of all series of these metrics; a histogram has three."""
    names: set[str] = set()
    for metric in METRICS:
        if metric.type == "histogram":
            names |= {f"{metric.name}_{part}" for part in ("bucket", "sum", "count")}
        else:
            names.add(metric.name)
    return frozenset(names)
