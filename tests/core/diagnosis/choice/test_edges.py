"""Which match explains which."""

import pytest

from core.diagnosis.candidate_kit import candidate, signature
from holdfast.core.diagnosis.choice.edges import explainers, explains

OOM = signature("oom", "gpu_oom", explains=("collective_timeout",))
TIMEOUT = signature("timeout", "collective_timeout", role="symptom")
LOST = signature("lost", "gpu_missing")
ACCESS = signature("access", "cuda_illegal_access", explained_by=("hardware", "device_side_assert"))
ASSERT = signature("assert", "device_side_assert")
TERM = signature("term", "terminated", explained_by=("*",))


@pytest.mark.parametrize(
    ("cause", "effect", "does"),
    [
        (OOM, TIMEOUT, True),  # the cause declares it
        (LOST, ACCESS, True),  # the effect names the cause's class
        (ASSERT, ACCESS, True),  # or its category
        (OOM, ACCESS, False),
        (ACCESS, TIMEOUT, True),  # a symptom that names nobody follows from any cause
        (TIMEOUT, ACCESS, False),
        (OOM, TERM, True),
        (TERM, TIMEOUT, False),  # what any cause explains is no cause for others
    ],
)
def test_edges(cause, effect, does):
    assert explains(candidate(cause, offset=1), candidate(effect, offset=2)) is does


def test_output_that_arrives_late_still_explains():
    assert explains(candidate(ASSERT, offset=900), candidate(ACCESS, offset=100))


def test_what_is_stamped_much_later_explains_nothing():
    assert not explains(candidate(ASSERT, at_s=1000.0), candidate(ACCESS, at_s=900.0))


def test_of_two_that_explain_each_other_the_earlier_does():
    one = signature("one", "gpu_oom", explained_by=("host_oom",))
    other = signature("other", "host_oom", explained_by=("gpu_oom",))
    assert explains(candidate(one, offset=1), candidate(other, offset=2))
    assert not explains(candidate(other, offset=2), candidate(one, offset=1))


def test_nothing_explains_itself():
    first, second = candidate(OOM, offset=1), candidate(OOM, offset=2)
    assert explainers(second, [first, second]) == []


def test_another_ranks_own_mistake_is_the_cause_even_where_it_is_logged_a_little_later():
    lost = signature("gone", "nccl_init_failure", explained_by=("*",))
    own = signature("own", "import_error")
    reset = candidate(lost, offset=100, rank=2)

    def does(rank, offset=900, error_type="ImportError", **where):
        return explains(candidate(own, offset=offset, rank=rank, error_type=error_type, **where), reset)

    assert does(0)
    assert not does(2)  # its own, after it
    assert not does(None)
    assert not does(0, error_type="")
    assert not does(0, offset=1 << 20)
    closed = signature("closed", "nccl_network_error", explained_by=("*",))
    assert not explains(candidate(closed, offset=900, rank=0, error_type="RuntimeError"), reset)


def test_the_code_that_a_script_tells_at_its_end_explains_nothing_above_it():
    task = signature("task-exited", "slurm_task_crash", role="symptom", explained_by=("*", "terminated"))
    code = signature("ended-with-a-code", "terminated", role="symptom")
    assert explains(candidate(code, offset=1), candidate(task, offset=2))
    assert not explains(candidate(code, offset=2), candidate(task, offset=1))
