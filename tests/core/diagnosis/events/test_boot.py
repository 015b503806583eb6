"""What drivers and services write while a machine starts, and errors of disks that no job uses."""

from core.diagnosis.candidate_kit import knowing, match
from holdfast.core.diagnosis.events.boot import boot_complaints, removable_disks
from known import PACKAGE

SIGNATURES = {one.id: one for one in PACKAGE}
KNOWN = knowing(*PACKAGE)


def seen(id_, **where):
    return match(SIGNATURES[id_], **where)


def test_a_complaint_is_no_fault_only_in_the_start_of_a_machine():
    booted, complaint = seen("kernel-booted", at_s=1000.0), seen("mlx5-slot-power", offset=9, at_s=1030.0)
    assert [one.role for one in boot_complaints([booted, complaint], KNOWN)] == ["context"]
    assert boot_complaints([complaint], KNOWN) == []
    later = seen("mlx5-slot-power", offset=9, at_s=9000.0)
    assert boot_complaints([booted, later], KNOWN) == []
    elsewhere = seen("mlx5-slot-power", offset=9, at_s=1030.0, source=1)
    assert boot_complaints([booted, elsewhere], KNOWN) == []


def test_a_disk_that_a_person_can_pull_out_is_not_the_jobs():
    stick = seen("removable-disk-attached", captures={"device": "sdc"})
    errors = [
        seen("block-io-error", offset=5, captures={"device": "sdc"}),
        seen("buffer-io-error", offset=6, captures={"device": "sdc1"}),
        seen("block-io-error", offset=7, captures={"device": "sda"}),
    ]
    assert [one.first for one in removable_disks([stick, *errors], KNOWN)] == errors[:2]
    assert removable_disks(errors, KNOWN) == []
