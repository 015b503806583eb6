"""Converts incidents to Alertmanager alerts, and alerts of other sources to evidence about nodes. Pure."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from holdfast.core.job.story import IncidentStory, Summary
from holdfast.model.monitoring.alerts import Alert, AlertEvidence, ReceivedAlert

NAME = "HoldfastIncident"
RESEND_S = 60.0
# Alertmanager resolves an alert at this time unless it is sent again; three sends may fail.
LIVES_S = 4 * RESEND_S
ENDED_SENT_S = 900.0  # a resolved alert is sent again for this long, in case Alertmanager was down
FIRING = "firing"
# Labels that name a node, the most reliable first: Holdfast, DCGM, Kubernetes, relabelled node-exporter.
NODE_LABELS = ("node", "Hostname", "kubernetes_node", "nodename", "host", "instance")
WORDS_MAX = 400


def alerts_of(summary: Summary, at_s: float, *, url: str = "") -> list[Alert]:
    """Returns one alert per open incident and per recently closed one.

    `url`: of the job's page, for the link in the alert.

    The category is an annotation and no label: it comes with the verdict, and a changed label would create
    another alert.
    """
    is_over = bool(summary.outcome)
    return [
        _alert(summary.job, one, at_s, url, ended_s=ended_s)
        for one in summary.incidents
        for ended_s in [_ended_s(one, summary.last_at_s if is_over else None)]
        if ended_s is None or at_s - ended_s <= ENDED_SENT_S
    ]


def _ended_s(one: IncidentStory, job_ended_s: float | None) -> float | None:
    if one.over:
        return one.found_at_s + (one.took_s or 0.0)
    return job_ended_s


def _alert(job: str, one: IncidentStory, at_s: float, url: str, *, ended_s: float | None) -> Alert:
    verdict = one.verdict
    title = verdict.title if verdict is not None else one.found
    annotations = {
        "summary": f"job {job}, incident {one.number}: {title}"[:WORDS_MAX],
        "description": verdict.advice[:WORDS_MAX] if verdict is not None else "",
        "category": verdict.category if verdict is not None else "",
        "action": one.rungs[-1].rung if one.rungs else "",
    }
    return Alert(
        labels={"alertname": NAME, "severity": "critical", "job_name": job, "incident": str(one.number)},
        annotations={name: text for name, text in annotations.items() if text},
        starts_s=one.found_at_s,
        ends_s=ended_s if ended_s is not None else at_s + LIVES_S,
        url=url,
    )


# Received alerts -----------------------------------------------------------------------------------------


def evidence(
    alerts: Iterable[ReceivedAlert],
    jobs: Mapping[str, Sequence[str]],
    known: Collection[tuple[str, str]] = (),
) -> list[AlertEvidence]:
    """Converts monitoring alerts about nodes of jobs to evidence, once per job, alert and state of the alert.

    `jobs`: the nodes of each job. `known`: (job, key) of evidence that is already recorded.
    """
    by_node: dict[str, list[tuple[str, str]]] = {}
    for job, nodes in jobs.items():
        for node in nodes:
            by_node.setdefault(_short(node), []).append((job, node))
    found: dict[tuple[str, str], AlertEvidence] = {}
    for alert in alerts:
        for one in _of_alert(alert, by_node):
            if (one.job, one.key) not in known:
                found.setdefault((one.job, one.key), one)
    return list(found.values())


def _of_alert(
    alert: ReceivedAlert, by_node: Mapping[str, Sequence[tuple[str, str]]]
) -> Iterator[AlertEvidence]:
    name = alert.labels.get("alertname", "")
    if name == NAME:
        return  # an alert that Holdfast sent
    label = next((label for label in NODE_LABELS if _short(alert.labels.get(label, "")) in by_node), None)
    if label is None:
        return
    words = alert.annotations.get("summary") or alert.annotations.get("description") or name
    verb = "fires" if alert.status == FIRING else "is resolved"
    at_s = alert.starts_s if alert.status == FIRING else alert.ends_s
    for job, node in by_node[_short(alert.labels[label])]:
        yield AlertEvidence(
            job=job,
            node=node,
            text=" ".join(f"alert {name or 'without a name'} {verb} for {node}: {words}".split())[:WORDS_MAX],
            at_s=at_s,
            status=alert.status,
            key=_key(alert),
        )


def _key(alert: ReceivedAlert) -> str:
    """Returns a key that is equal for the same alert in the same state."""
    identity = f"{alert.fingerprint or sorted(alert.labels.items())}/{alert.status}/{alert.starts_s}"
    return hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=12).hexdigest()


def _short(name: str) -> str:
    """Returns the short host name: node-1 for "node-1.example.com:9100".

    Keeps an IP address, without its port.
    """
    host = name.rpartition(":")[0] if name.count(":") == 1 else name
    return host if host.replace(".", "").isdecimal() else host.partition(".")[0].lower()
