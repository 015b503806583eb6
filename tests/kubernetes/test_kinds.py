"""The other owners of pods: JobSet, TrainJob of Trainer v2, Volcano Job; and what each makes of a job's end."""

import pytest

from kubernetes.whole_job import SPARES
from many.whole_job import LONG_S
from run.place import wait_for

KINDS = ("jobset", "trainjob", "volcano")
pytestmark = [
    pytest.mark.timeout(280),
    pytest.mark.parametrize("job", [{"kind": kind} for kind in KINDS], ids=KINDS, indirect=True),
]


def test_a_rank_and_a_pod_are_lost_and_the_job_ends_well(job):
    workers = 3 if job.kind == "volcano" else 2  # there a task for the first, and one for the others
    run = job.submit_and_train(workers=workers)
    job.loses_a_rank_and_a_pod()
    wait_for(lambda: f"another pod:\n{job.said()}", lambda: len(job.pods()) == workers + SPARES, LONG_S)
    assert len(job.writes()) <= 5
    job.ends_with_success(run)
    job.owner_ends("succeeded")
    assert job.server.control("failed") == []


def test_a_training_that_fails_fails_its_owner(job):
    run = job.submit(restarts=(), workers=2, spares=0)
    job.given_to()
    job.trains().kill(job.rank(1))
    assert run.code(LONG_S) == 1, job.said()
    job.owner_ends("failed")
