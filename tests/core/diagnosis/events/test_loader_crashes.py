"""A data loader worker that crashed, and the epochs that the training began after it."""

from core.diagnosis.candidate_kit import knowing, match, search, signature
from holdfast.core.diagnosis.diagnose import diagnose

CRASH = signature("dataloader-worker-segfault", "segfault", severity="fatal")
EPOCH = signature("training-epoch", "none", role="context")
KNOWN = knowing(CRASH, EPOCH)


def crashed(offset=50, **more):
    return match(CRASH, offset=offset, text="ERROR: Unexpected segmentation fault in worker", **more)


def epoch(number, offset):
    return match(EPOCH, offset=offset, text=f"Epoch: {number}", captures={"epoch": str(number)})


def told(*seen):
    return diagnose(search(*seen), KNOWN).category


def test_a_crash_of_a_helper_is_no_fault_once_another_epoch_began():
    assert told(epoch(7, 1), crashed(), epoch(8, 90)) == "none"


def test_a_crash_in_the_last_epoch_is_one():
    assert told(epoch(7, 1), crashed()) == "segfault"
    assert told(epoch(7, 1), crashed(), epoch(7, 90)) == "segfault"
    assert told(crashed(), epoch(8, 90)) == "segfault"


def test_an_exception_of_the_training_about_it_is_one():
    assert told(epoch(7, 1), crashed(error_type="RuntimeError"), epoch(8, 90)) == "segfault"
