"""Whether the disk's checkpoint is still the one that was copied."""

import pytest
from msgspec.structs import replace

from holdfast.core.checkpoints.judge import Found, Kept, lacking, plan, verdict

KEPT = Kept(name="a.pt", size=100, crc=7, inode=1, changed_ns=10)
SAME = Found(size=100, inode=1, changed_ns=10, crc=7)
RENAMED = replace(KEPT, renamed=True)


@pytest.mark.parametrize(
    ("kept", "found", "says"),
    [
        (KEPT, SAME, "intact"),
        (KEPT, replace(SAME, inode=9, changed_ns=99), "intact"),
        (KEPT, None, "missing"),
        (KEPT, replace(SAME, crc=8), "damaged"),  # nobody wrote it: the disk has lost it
        (RENAMED, replace(SAME, crc=8, changed_ns=99), "damaged"),  # its writer never writes in place
        (KEPT, replace(SAME, crc=8, changed_ns=99), "newer"),
        (KEPT, replace(SAME, size=90, crc=None, changed_ns=99), "newer"),
        (KEPT, replace(SAME, size=90, crc=None, changed_ns=99, wrong="it is truncated"), "damaged"),
        (KEPT, replace(SAME, size=0, crc=None, changed_ns=99), "damaged"),
        (RENAMED, replace(SAME, inode=2, crc=8, changed_ns=99), "newer"),
        (RENAMED, replace(SAME, inode=2, crc=8, changed_ns=99, wrong="it is truncated"), "damaged"),
        (RENAMED, replace(SAME, inode=2, size=0, crc=None), "damaged"),
        (Kept(name="empty.pt", size=0), Found(size=0, inode=3, changed_ns=1, crc=0), "intact"),
    ],
)
def test_one_file(kept, found, says):
    assert verdict(kept, found) == says


def test_a_tracker_is_good_as_long_as_it_names_a_checkpoint():
    tracker = Kept(name="latest", size=5, crc=1, tracker=True)
    other = Found(size=6, inode=4, changed_ns=5, crc=2)
    assert verdict(tracker, other) == "intact"
    assert verdict(tracker, replace(other, names_nothing=True)) == "damaged"
    assert verdict(tracker, replace(other, size=0)) == "damaged"


OTHER = replace(KEPT, name="b.pt")
TRACKER = Kept(name="latest", size=5, tracker=True)


def test_nothing_is_done_to_a_good_checkpoint():
    assert plan([KEPT, OTHER], {"a.pt": SAME, "b.pt": SAME}, superseded=False).outcome == "intact"


def test_only_what_is_damaged_or_gone_is_written_again():
    made = plan([KEPT, OTHER], {"a.pt": SAME, "b.pt": None}, superseded=False)
    assert (made.outcome, made.files, made.missing, made.damaged) == ("restore", ("b.pt",), 1, 0)


def test_a_newer_checkpoint_stays():
    newer = replace(SAME, inode=2, crc=8)
    assert plan([KEPT], {"a.pt": newer}, superseded=False).outcome == "newer"
    assert plan([KEPT], {"a.pt": None}, superseded=True).outcome == "newer"


def test_a_checkpoint_never_consists_of_files_of_two_moments():
    """The fault came while it was rewritten in place: one file is new, the other is cut."""
    newer, cut = replace(SAME, changed_ns=99, crc=8), replace(SAME, changed_ns=99, size=5, wrong="it is cut")
    made = plan([KEPT, OTHER], {"a.pt": newer, "b.pt": cut}, superseded=False)
    assert made.files == ("a.pt", "b.pt")


def test_a_tracker_that_is_gone_is_written_again():
    made = plan([KEPT, TRACKER], {"a.pt": SAME, "latest": None}, superseded=False)
    assert (made.outcome, made.files) == ("restore", ("latest",))


def test_a_newer_checkpoint_without_one_of_the_files_is_not_complete():
    kept = ["checkpoint-5/model.pt", "checkpoint-5/rng_state_0.pth", "checkpoint-5/trainer_state.json"]
    newer = ["checkpoint-10/model.pt", "checkpoint-10/rng_state_7.pth"]
    assert lacking(kept, newer) == "checkpoint-5/trainer_state.json"
    assert lacking(kept, [*newer, "checkpoint-10/trainer_state.json"]) == ""
