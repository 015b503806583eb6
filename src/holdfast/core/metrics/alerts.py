"""Converts alerts of a monitoring system to evidence about nodes. Pure."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from holdfast.model.monitoring.alerts import AlertEvidence, ReceivedAlert

NAME = "HoldfastIncident"
RESEND_S = 60.0
# Alertmanager resolves an alert at this time unless it is sent again; three sends may fail.
LIVES_S = 4 * RESEND_S
FIRING = "firing"
# Labels that name a node, the most reliable first: Holdfast, DCGM, Kubernetes, relabelled node-exporter.
NODE_LABELS = ("node", "Hostname", "kubernetes_node", "nodename", "host", "instance")
WORDS_MAX = 400


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
