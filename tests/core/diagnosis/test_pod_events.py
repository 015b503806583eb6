"""A pod that could not start at first, and then did."""

from core.diagnosis.candidate_kit import knowing, match, search, signature
from holdfast.core.diagnosis.diagnose import diagnose

WAITS = signature("k8s-failed-scheduling", "failed_scheduling")
PLACED = signature("k8s-scheduled", "none", role="context")
KNOWN = knowing(WAITS, PLACED)
WAIT, START = (
    "Warning  FailedScheduling  0/8 nodes are available",
    "Normal  Scheduled  Successfully assigned a/w-0 to g3",
)


def told(*seen):
    return diagnose(search(*seen), KNOWN).category


def test_a_wait_that_ended_is_no_fault():
    wait, placed = match(WAITS, offset=1, text=WAIT), match(PLACED, offset=90, text=START)
    assert told(wait) == "failed_scheduling"
    assert told(wait, placed) == "none"


def test_a_wait_after_the_pod_was_placed_is_one():
    assert (
        told(match(PLACED, offset=1, text=START), match(WAITS, offset=90, text=WAIT)) == "failed_scheduling"
    )


def test_events_of_many_pods_are_distinguished():
    wait = match(WAITS, offset=1, text="Warning  FailedScheduling  pod/w-1  0/8 nodes are available")
    other = match(PLACED, offset=90, text="Normal  Scheduled  pod/w-0  Successfully assigned a/w-0 to g3")
    same = match(PLACED, offset=99, text="Normal  Scheduled  pod/w-1  Successfully assigned a/w-1 to g3")
    assert told(wait, other) == "failed_scheduling"
    assert told(wait, other, same) == "none"


def test_a_runtime_or_volume_that_came_late_is_no_fault_once_the_container_runs():
    for id in ("k8s-no-gpu-runtime", "k8s-mount-of-nothing"):
        late = signature(id, "cuda_init_error")
        known = knowing(late, PLACED)
        missing = match(late, offset=1, text="Warning  FailedCreatePodSandBox  pod/w-1  not there yet")
        runs = match(PLACED, offset=99, text="Normal  Started  pod/w-1  Started container train")
        assert diagnose(search(missing), known).category == "cuda_init_error"
        assert diagnose(search(missing, runs), known).category == "none"
