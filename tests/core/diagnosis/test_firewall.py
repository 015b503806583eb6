"""What a firewall dropped is a cause where it is the connection that failed, and noise of strangers elsewhere."""

import pytest

from core.diagnosis.candidate_kit import NO_SIGNATURES, match, search, signature
from holdfast.core.diagnosis.compare.firewall import refused_by_firewall

REFUSED = signature("firewall-refused-packet", "nccl_network_error", role="context")
STORE = signature("torch-store-timeout", "rendezvous_timeout")
DOWN = signature("slurmctld-node-down", "slurm_node_fail")


def refused(source="10.1.0.3", peer="10.1.0.4", port="29500", **where):
    return match(REFUSED, captures={"source": source, "peer": peer, "port": port}, **where)


def found(*matches):
    every = search(*matches)
    return refused_by_firewall(every.matches, every.sources, NO_SIGNATURES)


def test_the_connection_that_failed_is_the_one_that_was_refused():
    stranger = refused(source="93.12.7.3", port="22", offset=1, host="n4")
    ours = refused(offset=2, host="n4")
    failed = match(STORE, offset=3, captures={"peer": "n4/10.1.0.4:29500"})
    said = found(stranger, ours, failed)
    assert said is not None
    assert said.first is ours
    assert (said.category, said.action) == ("rendezvous_timeout", "fix_network")
    assert [one.host for one in said.culprits] == ["n4"]
    assert said.explained == (failed,)


@pytest.mark.parametrize(
    "captures",
    [{"peer": "10.1.0.5"}, {"peer": "10.1.0.4", "port": "29501"}, {}],
)
def test_another_connection_is_not_explained(captures):
    assert found(refused(offset=1), match(STORE, offset=2, captures=captures)) is None


@pytest.mark.parametrize(("source", "is_told"), [("10.1.0.3", True), ("93.12.7.3", False), ("1.2.3", False)])
def test_a_node_that_slurm_cannot_reach(source, is_told):
    said = found(refused(source=source, port="6818"), match(DOWN, offset=2, captures={"host": "n4"}))
    assert (said is not None) == is_told
    if said is not None:
        assert said.category == "node_down"
