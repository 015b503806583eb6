"""holdfast k8s wrap as a command: streams, lists, JSON, a post-renderer, a function for Kustomize, and its diff."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from holdfast.engines.kubernetes.wrap.asked import Asked
from holdfast.engines.kubernetes.wrap.texts import parsed, split, written
from holdfast.engines.kubernetes.wrap.trees import own_mapping
from holdfast.engines.kubernetes.wrap.whole import wrap
from kubernetes.wrap.test_examples import AGENT, EXAMPLES, documents, example

ODD = """%s
# head
a: &x
    - name: "q"   # comment
      mode: 0644
      yes: no
b: *x
c: |
    text
     more
e: {a: 1, b: [1,2]}
i: ~
k:   'x'
h: 12:30:00
"""


def command(*words, given=""):
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "k8s", "wrap", *map(str, words)],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        env={key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")},
    )


def test_a_stream_is_cut_into_its_documents_without_loss():
    text = "# a\n---\nb: 1\n--- # c\nd: |\n  --- no\n---\n"
    assert split(text) == ["# a\n", "---\nb: 1\n", "--- # c\nd: |\n  --- no\n", "---\n"]
    assert "".join(split(text)) == text


@pytest.mark.parametrize("begin", ["---", "--- # c", "%YAML 1.2\n---"])
def test_lines_that_do_not_change_keep_their_form(begin):
    from_text = ODD % begin
    assert split(from_text) == [from_text]
    document = parsed(from_text)
    own_mapping(document, "new")["added"] = "1"
    assert written(document, from_text) == from_text + "new:\n    added: '1'\n".replace("    ", "  ")


def test_a_file_is_wrapped_and_the_diff_shows_what_changes(tmp_path):
    run = command(EXAMPLES / "job.yaml", "--agent-image", "a:1", "--spares", 2)
    assert run.returncode == 0, run.stderr
    job = next(
        one for one in documents(run.stdout) if one["metadata"]["name"] == "trainer" and one["kind"] == "Job"
    )
    assert job["spec"]["completions"] == 6
    run = command(EXAMPLES / "job.yaml", "--agent-image", "a:1", "--diff", "--", "--max-restarts", 7)
    assert (
        "-  completions: 4\n-  parallelism: 4\n+  completions: 5\n" in run.stdout
        and '+        - "7"' in run.stdout
    )
    changed = [
        line for line in run.stdout.splitlines() if line.startswith("-") and not line.startswith("---")
    ]
    assert len(changed) == 6, changed


def test_a_helm_post_renderer_passes_other_documents_through():
    other = (
        "---\n# Source: chart/templates/cm.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name:   odd }\n"
    )
    run = command("-", "--agent-image", "a:1", given=other + "---\n" + example("pod"))
    assert run.returncode == 0 and run.stdout.startswith(other)


def test_a_list_and_json_are_wrapped():
    job = next(one for one in documents(example("job")) if one["kind"] == "Job")
    listed = {"apiVersion": "v1", "kind": "List", "items": [job, {"apiVersion": "v1", "kind": "ConfigMap"}]}
    found = yaml.safe_load(wrap([("f", json.dumps(listed))], AGENT).text)
    kinds = [one["kind"] for one in found["items"]]
    assert kinds == ["Job", "ConfigMap", "Secret", "ServiceAccount", "Role", "RoleBinding", "Service", "Job"]
    again = yaml.safe_load(wrap([("f", json.dumps(found))], AGENT).text)
    assert again == found


def test_a_function_for_kustomize_takes_its_flags_from_its_configuration():
    (pod,) = documents(example("pod"))
    job = next(one for one in documents(example("job")) if one["kind"] == "Job")
    given = {
        "apiVersion": "config.kubernetes.io/v1",
        "kind": "ResourceList",
        "functionConfig": {
            "kind": "ConfigMap",
            "data": {"spares": "3", "agent-image": "a:1", "jobs": "trainer"},
        },
        "items": [pod, job],
    }
    run = command("-", given=yaml.safe_dump(given))
    assert run.returncode == 0, run.stderr
    found = yaml.safe_load(run.stdout)
    assert found["kind"] == "ResourceList" and found["functionConfig"] == given["functionConfig"]
    assert found["items"][0] == pod
    assert found["items"][1]["spec"]["completions"] == 7
    given["functionConfig"]["data"]["spare"] = "1"
    run = command("-", given=yaml.safe_dump(given))
    assert (
        run.returncode == 2
        and "functionConfig has the unknown key spare; known keys: container, spares" in run.stderr
    )


def test_several_files_are_one_stream_and_a_runtime_may_be_in_another():
    train, runtime = example("trainjob").split("---\n")
    found = wrap([("train.yaml", train), ("runtime.yaml", runtime)], AGENT)
    assert len(documents(found.text)) == 9


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["no-such-file.yaml"], "no-such-file.yaml cannot be read"),
        ([], "no file is given; - reads stdin"),
        (["--", "--max-restarts", "3"], "no file is given; - reads stdin"),
        (["-", "--", "--max-restart", "3"], "the flags after -- are not flags of holdfast run"),
        (
            ["-", "--", "--spares=3"],
            "--spares=3 after -- is set from the manifest or a flag of k8s wrap: leave it out",
        ),
    ],
)
def test_a_command_that_cannot_be_carried_out_says_why(words, reason):
    run = command(*words)
    assert run.returncode == 2 and reason in run.stderr


def test_nothing_is_written_where_something_is_refused():
    run = command("-", given=example("pod") + "---\n" + example("volcano").replace("Never", "OnFailure"))
    assert run.returncode == 2 and run.stdout == ""
    assert "set it to Never" in run.stderr


def test_a_secret_that_exists_is_used_and_none_is_written():
    found = documents(wrap([("f", example("job"))], Asked(secret="mine")).text)
    assert "Secret" not in [one["kind"] for one in found]
    pod = next(one for one in found if one["metadata"]["name"] == "trainer" and one["kind"] == "Job")
    secret = next(
        one for one in pod["spec"]["template"]["spec"]["volumes"] if one["name"] == "holdfast-secret"
    )
    assert secret["secret"]["secretName"] == "mine"


def test_the_controllers_record_is_on_a_claim_where_one_is_named():
    found = documents(wrap([("f", example("job"))], Asked(state_claim="records")).text)
    volumes = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["volumes"]
        for one in found
        if one["kind"] == "Job"
    }
    assert volumes["trainer-controller"][0]["persistentVolumeClaim"] == {"claimName": "records"}
    assert volumes["trainer"][1] == {"name": "holdfast-state", "emptyDir": {}}
