"""A kubeconfig without rights: refused in one line, before anything is created."""

import pytest

from kubernetes.whole_job import KubernetesJob
from many.whole_job import LONG_S


@pytest.fixture
def job(tmp_path, cache_home):
    one = KubernetesJob(tmp_path, cache_home, nodes=0)
    yield one
    one.end()


@pytest.mark.parametrize(
    ("denied", "said"),
    [
        (
            [["create", "secrets"], ["create", "roles"]],
            "to create secrets; create roles: nothing was created",
        ),
        ([["*", "jobs"]], "to create, get, patch, delete jobs"),
    ],
)
def test_missing_rights_are_named_and_nothing_is_created(job, denied, said):
    job.server.control("deny", denied=denied)
    run = job.submit("--detach")
    assert run.code(LONG_S) == 2
    assert said in run.err and "holdfast k8s doctor --kind job --namespace default" in run.err
    assert job.server.control("writes") == []


def test_credentials_that_are_not_accepted_are_said(job):
    job.server.kubeconfig.write_text(
        job.server.kubeconfig.read_text().replace("token: test", "token: unknown")
    )
    run = job.submit("--detach")
    assert run.code(LONG_S) == 2 and "401" in run.err, run.err


def test_a_job_of_that_name_that_is_there_already_is_named(job):
    assert job.submit("--detach").code(LONG_S) == 0
    again = job.submit("--detach")
    assert again.code(LONG_S) == 2
    assert "Job t exists already: choose another --job, or remove it with kubectl delete job t" in again.err
