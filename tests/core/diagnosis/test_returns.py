"""Nodes, leases and services that were back before anything was lost with them."""

from core.diagnosis.candidate_kit import knowing, match, search, signature
from holdfast.core.diagnosis.diagnose import diagnose

LEASE = signature("k8s-kubelet-unwell", "node_not_ready", area="scheduler", weight=0.75)
ANSWERED = signature("k8s-lease-conflict", "none", role="harmless", area="scheduler")
FAILED = signature("service-of-gpu-failed", "driver_error", severity="warning", area="tool", weight=0.65)
AGAIN = signature("service-started-again", "none", role="context", area="tool")
KNOWN = knowing(LEASE, ANSWERED, FAILED, AGAIN)


def told(*seen):
    return diagnose(search(*seen), KNOWN).category


def test_a_lease_that_could_not_be_renewed_is_nothing_once_the_api_server_answers():
    away = match(LEASE, offset=1, text="Failed to update lease: timeout")
    assert told(away) == "node_not_ready"
    assert told(away, match(ANSWERED, offset=2)) == "none"
    assert told(match(ANSWERED, offset=0), away) == "node_not_ready"
    network = match(LEASE, offset=1, text="container runtime network not ready")
    assert told(network, match(ANSWERED, offset=2)) == "node_not_ready"


def test_a_service_that_was_started_again_has_not_failed_unless_it_fails_on():
    failed = match(FAILED, offset=1, captures={"name": "nvidia-dcgm"})
    again = match(AGAIN, offset=2, captures={"name": "nvidia-dcgm"})
    other = match(AGAIN, offset=2, captures={"name": "nvidia-persistenced"})
    often = match(AGAIN, offset=2, captures={"name": "nvidia-dcgm"}, count=9)
    assert told(failed) == "driver_error"
    assert told(failed, again) == "none"
    assert told(failed, other) == "driver_error"
    assert told(failed, often) == "driver_error"
    assert told(again, match(FAILED, offset=3, captures={"name": "nvidia-dcgm"})) == "driver_error"
