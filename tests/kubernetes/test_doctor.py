"""holdfast k8s doctor: what a cluster has, what is allowed, the second ways, and the roles that grant the rest."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from holdfast.core.kubernetes.needs import features, needs, version_of
from holdfast.engines.kubernetes.kinds import OWNERS
from holdfast.engines.kubernetes.manifests import Wanted, access
from kubernetes import schemas
from kubernetes.kubectl import apply


def doctor(server, *words, kubeconfig=None):
    env = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "KUBE"))}
    env |= {"KUBECONFIG": str(kubeconfig or server.kubeconfig), "HOME": str(server.folder)}
    words = [sys.executable, "-m", "holdfast", "k8s", "doctor", *words]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, env=env)


def test_a_cluster_where_everything_is_allowed_is_enough(server):
    run = doctor(server)
    assert run.returncode == 0, run.stderr
    first, *lines = run.stdout.splitlines()
    assert first == f"{server.url}, Kubernetes v1.36.0-test, namespace default, as test"
    assert "jobs can run here, with all that Holdfast can do" in lines
    assert "  yes     RestartAllContainers (a dry run)" in lines
    assert "  yes     get, list, watch, patch nodes, in the whole cluster: states of nodes" in run.stdout
    assert server.control("writes") == []


def test_what_is_missing_has_its_second_way_and_the_roles_that_grant_it_can_be_applied(server):
    server.control("deny", denied=[["patch", "nodes"], ["create", "pods/eviction"], ["create", "secrets"]])
    run = doctor(server, "--json")
    assert run.returncode == 1
    found = json.loads(run.stdout)
    missing = {one["need"]["resource"]: one for one in found["rights"] if one["missing"]}
    assert {name: one["missing"] for name, one in missing.items()} == {
        "nodes": ["patch"],
        "pods/eviction": ["create"],
        "secrets": ["create"],
    }
    assert "5 times at most" in missing["nodes"]["need"]["instead"]
    assert found["enough"] is False
    granted = [one for text in found["grants"].values() for one in yaml.safe_load_all(text)]
    assert [one["kind"] for one in granted] == ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]
    assert [problem for one in granted for problem in schemas.problems(one)] == []
    server.control("deny", denied=[])
    assert len(apply(server, "".join(found["grants"].values()))) == 4
    text = doctor(server).stdout
    assert "apiVersion" not in text


def test_lines_say_what_is_lost_and_what_is_done_instead(server):
    server.control("deny", denied=[["patch", "nodes"], ["get", "pods/log"]])
    run = doctor(server, "--kind", "jobset")
    assert run.returncode == 0
    assert "jobs can run here; what is marked (better) has a second way" in run.stdout
    assert "  no      patch nodes, in the whole cluster" in run.stdout
    assert "          without it: a frozen node is proven only by the state of nodes" in run.stdout
    assert "# what is missing in the cluster (optional): an administrator applies" in run.stdout


def test_an_old_server_without_operators_is_said_to_be_too_old(server):
    server.control("version", version=[1, 31])
    server.control("forget", group="jobset.x-k8s.io")
    server.control("forget", group="admissionregistration.k8s.io")
    run = doctor(server)
    assert run.returncode == 1
    assert "this version is too old: jobs need 1.33 or later" in run.stdout
    for feature in (
        "image volumes (a dry run)",
        "RestartAllContainers (a dry run)",
        "JobSet (API group jobset.x-k8s.io)",
    ):
        assert f"  no      {feature}" in run.stdout


def test_without_the_right_to_try_a_feature_the_version_decides(server):
    server.control("deny", denied=[["create", "pods"]])
    assert "RestartAllContainers (the server's version (1.36 or later))" in doctor(server).stdout


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("token: unknown", "does not accept these credentials (401): log in again"),
        ("nobody", "have no permission to query their own rights (403)"),
        ("away", "the API server does not respond"),
        ("missing", "no Kubernetes cluster is configured"),
    ],
)
def test_a_cluster_that_cannot_be_asked_is_one_clear_line(server, change, reason):
    path = server.folder / "other"
    text = server.kubeconfig.read_text()
    if change == "nobody":
        server.control("deny", denied=[["*", "*"]])
    if change == "away":
        server.control("faults", away=True)
    if change != "missing":
        path.write_text(text.replace("token: test", change) if "token" in change else text)
    run = doctor(server, kubeconfig=path)
    server.control("faults", away=False)
    assert run.returncode == 2 and run.stdout == ""
    assert reason in run.stderr and run.stderr.count("\n") == 1, run.stderr


def test_all_rules_of_a_namespace_are_listed_by_the_server_of_tests(server):
    server.control("deny", denied=[["delete", "pods"]])
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"},
    }
    status = server.client.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", json=body).json()[
        "status"
    ]
    (pods,) = [rule for rule in status["resourceRules"] if rule["resources"] == ["pods"]]
    assert "watch" in pods["verbs"] and "delete" not in pods["verbs"] and not status["incomplete"]


@pytest.mark.parametrize("kind", OWNERS)
def test_the_controllers_needs_are_the_rules_of_its_role(kind):
    wanted = Wanted(job="t", namespace="n", image="i", pods=2, run=(), secret="ab", kind=kind)
    role = next(one for one in access(wanted) if one["kind"] == "Role")
    rules = {
        (rule["apiGroups"][0], rule["resources"][0], verb) for rule in role["rules"] for verb in rule["verbs"]
    }
    listed = needs(OWNERS[kind].group, OWNERS[kind].plural)
    controllers = [one for one in listed if one.who == "controller" and one.namespaced]
    assert {(one.group, one.resource, verb) for one in controllers for verb in one.verbs} == rules


def test_versions_are_read_with_what_vendors_add():
    assert version_of("v1.36.2-gke.1500") == (1, 36)
    assert version_of("") == (0, 0)
    assert {one.present for one in features("v1.40.0", None, {})} == {True, None}
