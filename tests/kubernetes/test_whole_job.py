"""A whole job that is rescheduled on Kubernetes: all its pods are made anew, and its record continues."""

import pytest

from holdfast.engines.kubernetes.names import REMAKE
from holdfast.engines.kubernetes.remaking import kept_off
from kubernetes.whole_job import KubernetesJob
from many.whole_job import LONG_S
from run.place import wait_for

pytestmark = pytest.mark.timeout(280)
LASTING = {"flags": ("--reschedule-pods",), "workers": 2}
RESTARTS = ("--max-restarts", 100, "--unconditional-restart")


def uids(job):
    return {pod["metadata"]["uid"] for pod in job.pods().values()}


def has_succeeded(job):
    """The owner's controller sees the end of the pods a little later than who follows their log."""
    wait_for(lambda: f"the end of {job.owner()}", lambda: job.owner_says() == "succeeded", LONG_S)


def has_all_pods_made_anew(job):
    """By the first restart that is counted here."""
    before = uids(job)
    job.kill(job.rank(1))
    job.trains(attempt=2)
    assert not before & uids(job)
    assert REMAKE not in (job.owner()["metadata"].get("annotations") or {})
    job.waits_for("job-moved")
    assert len(job.events("job-moved")) == 1


def test_a_reschedule_makes_all_pods_anew(running):
    has_all_pods_made_anew(running)


def test_a_job_that_is_suspended_waits_and_continues_when_it_is_resumed(running):
    job = running
    path = "/apis/batch/v1/namespaces/default/jobs/t"
    job.server.merge(path, {"spec": {"suspend": True}})
    wait_for(lambda: f"no pod: {job.said()}", lambda: not job.pods(), LONG_S)
    wait_for(
        lambda: f"the wait: {job.said()}",
        lambda: job.has_said("Job t is suspended: the job continues when it is resumed"),
        LONG_S,
    )
    assert job.owner_says() == ""
    job.server.merge(path, {"spec": {"suspend": False}})
    job.trains(attempt=2)
    job.waits_for("job-moved")
    assert len(job.events("job-moved")) == 1


def test_without_the_right_to_suspend_the_job_restarts_in_its_pods(running):
    """The last test of the job that the tests above share: it ends here."""
    job = running
    job.server.control("deny", denied=[["patch", "jobs"]])
    before = uids(job)
    job.kill(job.rank(1))
    job.trains(attempt=2)
    assert before == uids(job)
    assert job.has_said("the workers restart on the remaining nodes")
    job.ends_with_success(job.attach())
    has_succeeded(job)


@pytest.mark.parametrize("kind", ["jobset", "trainjob", "volcano"])
def test_a_reschedule_makes_all_pods_of_another_owner_anew(tmp_path, cache_home, kind):
    job = KubernetesJob(tmp_path, cache_home, kind=kind)
    try:
        run = job.submit_and_train("--reschedule-pods", restarts=RESTARTS, workers=2, spares=0)
        has_all_pods_made_anew(job)
        job.ends_with_success(run)
        has_succeeded(job)
    finally:
        job.end()


def test_a_template_keeps_its_pods_off_nodes_besides_what_it_asks_for_already():
    given = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "pool", "operator": "In", "values": ["gpu"]},
                            {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]},
                        ]
                    }
                ]
            }
        },
        "podAntiAffinity": {"a": 1},
    }
    found = kept_off(given, ["n2"])
    (term,) = found["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "pool", "operator": "In", "values": ["gpu"]},
        {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1", "n2"]},
    ]
    assert found["podAntiAffinity"] == {"a": 1}
    assert kept_off(found, ["n2"]) == found
    assert kept_off(None, ["n2"])["nodeAffinity"]
