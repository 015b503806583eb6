"""Every document that Holdfast writes has only fields that its kind has, of their types, and the API server takes it."""

import json
from pathlib import Path

import pytest

from holdfast.engines.kubernetes.kinds import KINDS
from holdfast.engines.kubernetes.manifests import Wanted, owner, the_rest
from holdfast.model.kubernetes import JOB_FAILED

FACTS = Path(__file__).parents[3] / "shared" / "facts" / "k8s_kinds.json"
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
# Below these the facts end: pod specs are cut off.
CUT = (
    "template.spec.template.spec",
    "tasks[].template.spec",
    "template.spec.template.metadata",
    "tasks[].template.metadata",
)


def wanted(kind):
    return Wanted(
        job="t",
        namespace="default",
        image="registry.example/training:1",
        pods=5,
        gpus=8,
        run=("run", "--", "train"),
        secret="ab" * 32,
        env=(("NCCL_DEBUG", "INFO"),),
        kind=kind,
    )


def documents(kind):
    made = owner(wanted(kind))
    made["metadata"]["uid"] = "u"
    return [made, *the_rest(wanted(kind), made)]


def paths(value, fields, path=""):
    """(path, value) of everything in a document, as the facts write paths."""
    yield path, value
    if any(path.endswith(end) for end in CUT):
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            is_map = f"{path}{{}}" in fields
            yield from paths(inner, fields, f"{path}{{}}" if is_map else f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, fields, f"{path}[]")


@pytest.fixture(scope="module")
def facts():
    if not FACTS.exists():
        pytest.skip("the fields of the kinds (shared/facts/k8s_kinds.json) are not beside this checkout")
    return {(one["apiVersion"], one["kind"]): one for one in json.loads(FACTS.read_text())}


@pytest.mark.parametrize("kind", KINDS)
def test_custom_resources_have_only_the_fields_of_their_kind(kind, facts):
    checked = 0
    for document in documents(kind):
        known = facts.get((document["apiVersion"], document["kind"]))
        if known is None:
            continue
        checked += 1
        fields = {field["path"]: field for field in known["fields"]}
        for path, value in paths({"spec": document["spec"]}, fields):
            if not path:
                continue
            assert path in fields, f"{document['kind']} has no field {path}"
            field = fields[path]
            assert isinstance(value, TYPES.get(field["type"], object)), f"{path} is no {field['type']}"
            assert value in field.get("enum", [value]), f"{path}: {value!r} is none of {field['enum']}"
    assert checked == {"job": 0, "jobset": 1, "trainjob": 2, "volcano": 1}[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_takes_every_document_and_the_owners_removal_removes_all(kind, server):
    groups = {"Role": "roles", "RoleBinding": "rolebindings", "TrainingRuntime": "trainingruntimes"}
    made = None
    for document in [owner(wanted(kind)), *documents(kind)[1:]]:
        if made is not None:
            document["metadata"]["ownerReferences"][0]["uid"] = made["metadata"]["uid"]
        base = "api" if "/" not in document["apiVersion"] else "apis"
        plural = groups.get(document["kind"], f"{document['kind'].lower()}s")
        path = f"/{base}/{document['apiVersion']}/namespaces/default/{plural}"
        answer = server.client.post(path, json=document)
        assert answer.status_code == 201, answer.text
        made = made or answer.json()
    server.delete(KINDS[kind].path("default", "t"))
    secrets = server.wait_for(lambda: not server.items("secrets"))
    assert secrets and not server.items("services") and not server.items("serviceaccounts")


@pytest.mark.parametrize("kind", KINDS)
def test_one_exit_code_says_that_the_job_has_failed_in_each_kind(kind):
    assert str(JOB_FAILED) in json.dumps(
        [document["spec"] for document in documents(kind) if "spec" in document]
    )


def test_pods_have_no_token_and_the_controller_has_rights_in_its_namespace_only():
    made = documents("job")
    assert made[0]["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    kinds = {document["kind"] for document in made}
    assert "Role" in kinds and not {"ClusterRole", "ClusterRoleBinding"} & kinds
    (role,) = (document for document in made if document["kind"] == "Role")
    assert not any("*" in rule["verbs"] or "*" in rule["resources"] for rule in role["rules"])
