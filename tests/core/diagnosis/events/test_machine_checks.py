"""Machine checks by the bits of their status register: corrected, not enabled, uncorrected at boot and later."""

import pytest

from core.diagnosis.candidate_kit import knowing, match
from holdfast.core.diagnosis.events.machine_checks import is_uncorrected, machine_checks
from known import PACKAGE

SIGNATURES = {one.id: one for one in PACKAGE}
KNOWN = knowing(*PACKAGE)


def seen(id_, **where):
    return match(SIGNATURES[id_], **where)


@pytest.mark.parametrize(
    ("status", "is_fault"),
    [
        ("8c00004000010090", False),  # corrected
        ("a600000000020408", False),  # uncorrected, but its report was not enabled: left by the firmware
        ("b200000000070f0f", True),
        ("bea0000000000108", True),  # and the processor's context is lost
    ],
)
def test_an_error_is_a_fault_if_it_was_not_corrected_and_its_report_was_enabled(status, is_fault):
    assert is_uncorrected(int(status, 16)) is is_fault


def test_an_uncorrected_error_is_fatal_later_and_a_warning_at_boot():
    fault = {"status": "b200000000070f0f"}
    assert [one.severity for one in machine_checks([seen("mce-logged", captures=fault)], (), KNOWN)] == [
        "fatal"
    ]
    booted = seen("kernel-booted", at_s=1000.0)
    at_boot = seen("mce-logged", captures=fault, offset=9, at_s=1001.0)
    assert [one.severity for one in machine_checks([booted, at_boot], (), KNOWN)] == ["warning"]
    raised = seen("mce-exception", captures=fault, offset=9, at_s=1001.0)
    assert [one.severity for one in machine_checks([booted, raised], (), KNOWN)] == ["fatal"]


def test_what_mcelog_decodes_is_no_fault_if_every_status_is_corrected():
    event = seen("mcelog-event", offset=1)
    good = seen("mcelog-status", offset=2, captures={"status": "8c00004000010090"})
    bad = seen("mcelog-status", offset=2, captures={"status": "b200000000070f0f"})
    assert [one.role for one in machine_checks([event, good], (), KNOWN)] == ["context"]
    assert [one.first for one in machine_checks([event, bad], (), KNOWN)] == [bad]
    assert machine_checks([event], (), KNOWN) == []
    odd = seen("mcelog-status", offset=2, captures={"status": "no number"})
    assert machine_checks([event, odd], (), KNOWN) == []
