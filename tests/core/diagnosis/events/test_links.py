"""Which links failed, and which went down with the machine, by a person's wish, or never had a peer."""

from core.diagnosis.candidate_kit import knowing, match
from holdfast.core.diagnosis.events.links import link_changes
from known import PACKAGE

SIGNATURES = {one.id: one for one in PACKAGE}
KNOWN = knowing(*PACKAGE)
ETH = {"name": "eno1"}


def seen(id_, **where):
    return match(SIGNATURES[id_], **where)


def down(**where):
    return seen("nic-link-down-ethernet", captures=ETH, **where)


def roles(*matches):
    return [(one.category, one.role) for one in link_changes(matches, (), KNOWN)]


def test_a_link_that_was_up_and_went_down_is_a_fault():
    up = seen("nic-link-up-ethernet", captures=ETH, at_s=1000.0)
    assert roles(up, down(offset=50_000, at_s=9000.0)) == [("nic_down", "cause")]
    assert roles(down(at_s=9000.0)) == [("nic_down", "cause")]  # nothing shows the machine's start


def test_a_port_that_was_never_up_since_the_start_is_no_fault():
    booted = seen("kernel-booted", at_s=1000.0)
    assert roles(booted, down(offset=900_000, at_s=9000.0)) == [("nic_down", "context")]
    later = seen("nic-link-up-ethernet", captures=ETH, offset=950_000, at_s=9500.0)
    assert roles(booted, down(offset=900_000, at_s=9000.0), later)[0][1] == "context"


def test_a_link_that_sleeps_stops_or_is_taken_down_is_no_fault():
    up = seen("nic-link-up-ethernet", captures=ETH, at_s=1000.0)
    for id_ in ("machine-sleeps", "machine-stops", "link-set-down"):
        reason = seen(id_, offset=49_000, at_s=8999.0)
        assert roles(up, reason, down(offset=50_000, at_s=9000.0)) == [("nic_down", "context")]
    earlier = seen("machine-sleeps", offset=9000, at_s=7000.0)
    assert roles(up, earlier, down(offset=50_000, at_s=9000.0)) == [("nic_down", "cause")]
    other = seen("link-set-down", captures={"link": "eno2"}, offset=49_000, at_s=8999.0)
    assert roles(up, other, down(offset=50_000, at_s=9000.0)) == [("nic_down", "cause")]
