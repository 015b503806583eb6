"""The admission policy: its fields are the API's, its CEL does what the page says, and kubectl applies it.

The CEL is evaluated here by another implementation, with mappings in place of typed objects; field names of the typed objects
are checked against the models of the API by themselves.
"""

import copy
import os
import re
import subprocess
import sys

import pytest
import yaml

cel = pytest.importorskip("cel")

from kubernetes import schemas  # noqa: E402
from kubernetes.apiserver import patches  # noqa: E402
from kubernetes.kubectl import apply  # noqa: E402

IMAGE = "registry.example/agent:1"
TYPED = re.compile(r"\b(JSONPatch|Object(?:\.\w+)*)\{")


@pytest.fixture(scope="module")
def text():
    words = [sys.executable, "-m", "holdfast", "k8s", "policy", "--agent-image", IMAGE]
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    run = subprocess.run(words, capture_output=True, text=True, timeout=60, env=env)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def policies(text):
    documents = list(yaml.safe_load_all(text))
    return {
        one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "MutatingAdmissionPolicy"
    }


def plain(expression):
    """The expression with mappings in place of typed objects: Object.spec{name: 1} is {"name": 1}."""
    expression = TYPED.sub("{", expression)
    return re.sub(r"([{,]\s*)(\w+):", r'\1"\2":', expression)


def context(one, variables=None):
    found = cel.Context(variables={"object": one, "variables": variables or {}})
    found.add_function("indexOf", lambda items, item: list(items).index(item))
    return found


def admitted(policy, one):
    """The object as the policy makes it; unchanged where a condition does not hold."""
    for condition in policy["matchConditions"]:
        if not cel.evaluate(plain(condition["expression"]), context(one)):
            return one
    variables = {}
    for variable in policy.get("variables", ()):
        variables[variable["name"]] = cel.evaluate(plain(variable["expression"]), context(one, variables))
    (mutation,) = policy["mutations"]
    patch = cel.evaluate(plain(mutation["jsonPatch"]["expression"]), context(one, variables))
    return patches.patched(copy.deepcopy(one), patch, patches.JSON_PATCH)


def pod(train, **annotations):
    notes = {f"holdfast.dev/{key}": value for key, value in annotations.items()}
    containers = [
        {"name": "side", "image": "s", "command": ["s"]},
        {"name": "train", "image": "t", **train},
    ]
    spec = {"restartPolicy": "Never", "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": notes}, "spec": spec}


def test_every_document_has_only_the_fields_of_its_kind(text):
    documents = list(yaml.safe_load_all(text))
    assert len(documents) == 4
    assert [problem for one in documents for problem in schemas.problems(one)] == []
    assert IMAGE in text and "AGENT_IMAGE" not in text


@pytest.mark.parametrize(("wrap", "command"), [("restart", "run"), ("watch", "agent")])
def test_an_annotated_pod_runs_its_command_under_holdfast(policies, wrap, command):
    before = pod(
        {"command": ["torchrun"], "args": ["train.py"], "env": [{"name": "A", "value": "1"}]},
        wrap=wrap,
        container="train",
    )
    after = admitted(policies["holdfast-pods"], before)
    side, train = after["spec"]["containers"]
    assert side == before["spec"]["containers"][0]
    assert train["command"] == ["/holdfast/agent/bin/holdfast", command, "--", "torchrun"]
    assert train["args"] == ["train.py"]
    assert [one["name"] for one in train["env"]] == ["A", "HOLDFAST_STATE_DIR"]
    assert after["spec"]["initContainers"][0]["image"] == IMAGE
    assert schemas.problems(after) == []
    assert admitted(policies["holdfast-pods"], after) == after


@pytest.mark.parametrize(
    "one",
    [
        pod({"command": ["x"]}),
        pod({"command": ["x"]}, wrap="done"),
        pod({"command": ["x"]}, wrap="restart", container="none"),
        pod({}, wrap="restart", container="train"),
    ],
)
def test_other_pods_and_containers_without_a_command_stay_as_they_are(policies, one):
    assert admitted(policies["holdfast-pods"], one) == one


def test_the_first_container_trains_where_none_is_named(policies):
    after = admitted(policies["holdfast-pods"], pod({}, wrap="watch"))
    assert after["spec"]["containers"][0]["command"][0] == "/holdfast/agent/bin/holdfast"


@pytest.mark.parametrize("meta", [None, {"labels": {"a": "b"}}, {"annotations": {"x": "y"}}])
def test_an_annotated_job_passes_its_annotations_to_its_pods(policies, meta):
    template = {"spec": {}, **({"metadata": meta} if meta is not None else {})}
    notes = {"holdfast.dev/wrap": "restart", "holdfast.dev/container": "train"}
    before = {"metadata": {"annotations": notes}, "spec": {"template": template}}
    after = admitted(policies["holdfast-jobs"], before)["spec"]["template"]["metadata"]
    assert after["annotations"] == {**((meta or {}).get("annotations") or {}), **notes}


def test_field_names_of_typed_objects_are_the_apis(policies):
    expression = policies["holdfast-pods"]["mutations"][0]["jsonPatch"]["expression"]
    found = re.findall(r"Object\.([\w.]+)\{([^{}]*)", expression)
    assert len(found) > 8
    for path, fields in found:
        names = re.findall(r"(?:^|,)\s*(\w+):", fields)
        assert set(names) <= fields_at(path), path


def fields_at(path):
    """Names of fields of a pod's part, by the model of the API."""
    kind = schemas.model("core_v1.Pod")
    for name in path.split("."):
        kind = schemas.inner(kind, name)
    return set(schemas.hints_of(kind))


def test_kubectl_applies_it(server, text):
    assert len([line for line in apply(server, text) if line.endswith(" created")]) == 4


def test_without_an_image_it_says_what_is_missing():
    run = subprocess.run(
        [sys.executable, "-m", "holdfast", "k8s", "policy"], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 2 and "--agent-image IMAGE is required" in run.stderr
