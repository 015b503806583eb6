"""Progress of a TrainJob where Kubeflow Trainer's feature gate TrainJobStatus is on: shown by kubectl, without a change of the training."""

import pytest

from holdfast.supervise.monitoring.trainer_status import CA, TOKEN, URL, is_on, posted
from kubernetes.apiserver.trainer_server import audience, path_of
from kubernetes.server import Server
from kubernetes.whole_job import KubernetesJob
from many.whole_job import LONG_S
from run.place import wait_for

pytestmark = pytest.mark.timeout(280)
GATE = ("--trainer-status",)


def test_a_train_job_shows_its_progress_and_ends_at_100(tmp_path, cache_home):
    job = KubernetesJob(tmp_path, cache_home, kind="trainjob", more=GATE)
    try:
        job.server.control("trainer-refuses", requests=1)
        run = job.submit_and_train("--env", "STEPS=100000", workers=2, spares=0)

        def shown():
            found = job.owner().get("status", {}).get("trainerStatus", {})
            return {one["name"]: one["value"] for one in found.get("metrics", ())}

        wait_for(lambda: f"a status: {job.said()}", lambda: "step" in shown(), LONG_S)
        assert shown()["totalSteps"] == "100000" and shown()["attempt"] == "1"
        assert job.has_said("Kubeflow Trainer's status server does not take the progress: 500")
        job.kill(job.rank(1))
        job.trains(attempt=2)
        wait_for(lambda: f"attempt 2: {shown()}", lambda: shown()["attempt"] == "2", LONG_S)
        job.ends_with_success(run)
        wait_for("100 %", lambda: job.owner()["status"]["trainerStatus"]["progressPercentage"] == 100, LONG_S)
        assert job.owner_says() == "succeeded"
    finally:
        job.end()


@pytest.fixture
def place(tmp_path):
    """A TrainJob and the variables of its pods."""
    server = Server(tmp_path / "cluster", more=GATE)
    runtime = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime"}
    container = {"name": "node", "image": "i", "command": ["sleep", "1"]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": spec}},
    }
    jobs = [{"name": "node", "template": template}]
    server.create(
        {**runtime, "metadata": {"name": "r"}, "spec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    )
    given = {"runtimeRef": {"kind": "TrainingRuntime", "name": "r"}}
    server.create({**runtime, "kind": "TrainJob", "metadata": {"name": "t"}, "spec": given})
    server.wait_for(lambda: server.items("pods"))
    (pod,) = server.items("pods")
    env = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"] if "value" in one}
    (config,) = server.items("configmaps")
    for name, text in ((CA, config["data"]["ca.crt"]), (TOKEN, audience("default", "t"))):
        env[name] = str(tmp_path / name)
        (tmp_path / name).write_text(text)
    yield server, env
    server.close()


def test_the_servers_answers_are_reported(place, tmp_path):
    server, env = place
    assert env[URL].endswith(path_of("default", "t"))
    assert posted(env, {"progressPercentage": 5}) == ""
    found = server.get("/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/t")
    assert found["status"]["trainerStatus"] == {"progressPercentage": 5}
    assert posted(env, {"progressPercentage": 500}).startswith("422: ")
    assert "no https address" in posted({**env, URL: "http://127.0.0.1/x"}, {})
    (tmp_path / TOKEN).write_text(audience("default", "another"))
    assert posted(env, {"progressPercentage": 6}).startswith("403: ")
    other = tmp_path / "other-ca"
    other.write_text("")
    with pytest.raises(OSError, match="certificate|SSL|PEM|no start line"):
        posted({**env, CA: str(other)}, {})


def test_a_training_that_reports_itself_can_keep_holdfast_from_it():
    assert not is_on({})
    assert is_on({URL: "https://x"})
    assert not is_on({URL: "https://x", "HOLDFAST_TRAINER_STATUS": "off"})
