"""Every example, wrapped, is applied with the real kubectl, validated by the server, applied again and deleted."""

import pytest

from holdfast.engines.kubernetes.wrap.whole import wrap
from kubernetes.kubectl import apply, kubectl
from kubernetes.wrap.test_examples import AGENT, EXAMPLES, NAMES, wrapped
from run.place import wait_for


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_applied_and_applied_again_and_deleted(name, server):
    for space in ("research", "default"):
        server.client.post(
            "/api/v1/namespaces", json={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
        )
    text = wrapped(name).text
    lines = apply(server, text)
    assert all(line.endswith(" created") for line in lines), lines
    lines = apply(server, text)
    assert all(line.endswith((" unchanged", " configured")) for line in lines), lines
    kubectl(server, "delete", "-f", "-", "--wait=false", "--ignore-not-found", given=text)
    spaces = ("research", "default")
    wait_for("no pod", lambda: not any(server.items("pods", namespace=space) for space in spaces))


def test_kubectl_kustomize_goes_before_the_filter(server, tmp_path):
    (tmp_path / "job.yaml").write_text((EXAMPLES / "job.yaml").read_text())
    (tmp_path / "kustomization.yaml").write_text("resources: [job.yaml]\nnamespace: team\nnamePrefix: my-\n")
    built = kubectl(server, "kustomize", tmp_path)
    lines = apply(server, wrap([("-", built)], AGENT).text)
    assert "job.batch/my-trainer created" in lines and "job.batch/my-trainer-controller created" in lines
    names = [
        one["metadata"]["namespace"] for one in server.items("jobs", group="apis/batch/v1", namespace="team")
    ]
    assert names == ["team", "team"]
