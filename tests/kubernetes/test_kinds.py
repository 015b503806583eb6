"""The other owners of pods: JobSet, TrainJob of Trainer v2, Volcano Job; and what each makes of a job's end."""

import pytest

from kubernetes.whole_job import KubernetesJob
from many.whole_job import LONG_S
from run.place import wait_for

pytestmark = pytest.mark.timeout(280)


@pytest.fixture(params=["jobset", "trainjob", "volcano"])
def job(request, tmp_path, cache_home):
    one = KubernetesJob(tmp_path, cache_home, kind=request.param)
    yield one
    one.end()


def test_a_rank_and_a_pod_are_lost_and_the_job_ends_well(job):
    run = job.submit()
    job.given_to()
    job.trains()
    spare = job.spare()
    job.writes()
    job.kill(job.rank(1))
    job.trains(attempt=2)
    assert job.writes() == []
    pod = job.placed(2)[2]
    job.server.control("kill-pod", pod=pod)
    job.trains(attempt=3)
    assert spare in job.placed(3) and pod not in job.placed(3)
    wait_for(lambda: f"another pod:\n{job.said()}", lambda: len(job.pods()) == 5, LONG_S)
    assert len(job.writes()) <= 5
    job.go()
    assert run.code(LONG_S) == 0, job.said()
    wait_for(lambda: f"the end of {job.owner()}", lambda: job.owner_says() == "succeeded", LONG_S)
    wait_for(lambda: f"no pod of {job.pods()}", lambda: not job.pods(), LONG_S)
    assert job.server.control("failed") == []


def test_a_training_that_fails_fails_its_owner(job):
    run = job.submit(restarts=())
    job.given_to()
    job.trains().kill(job.rank(1))
    assert run.code(LONG_S) == 1, job.said()
    wait_for(lambda: f"the end of {job.owner()}", lambda: job.owner_says() == "failed", LONG_S)
    wait_for(lambda: f"no pod of {job.pods()}", lambda: not job.pods(), LONG_S)
