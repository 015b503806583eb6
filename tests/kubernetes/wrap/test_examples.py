"""The examples of docs/examples/kubernetes are wrapped: valid, idempotent, and with nothing else changed."""

from pathlib import Path

import pytest
import yaml

from holdfast.engines.kubernetes.wrap.asked import Asked
from holdfast.engines.kubernetes.wrap.whole import wrap
from kubernetes import schemas

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "kubernetes"
NAMES = ("job", "jobset", "trainjob", "volcano", "pytorchjob", "pod")
AGENT = Asked(agent_image="registry.example/holdfast-agent:1")
ADDED = {"Secret", "ServiceAccount", "Role", "RoleBinding", "Service", "TrainingRuntime", "Job"}


def example(name):
    return (EXAMPLES / f"{name}.yaml").read_text()


def wrapped(name, asked=AGENT):
    return wrap([(f"{name}.yaml", example(name))], asked)


def documents(text):
    return [one for one in yaml.safe_load_all(text) if one]


def test_every_example_is_in_the_list():
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} >= set(NAMES)


@pytest.mark.parametrize(
    "asked",
    [
        AGENT,
        Asked(restart_containers=True),
        Asked(agent_image="a", image_volume=True, secret="own", spares=0),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_all_documents_have_only_the_fields_of_their_kinds(name, asked):
    if not schemas.has_facts():
        pytest.skip("the fields of the kinds (shared/facts/k8s_kinds.json) are not beside this checkout")
    found = documents(wrapped(name, asked).text)
    assert [problem for one in found for problem in schemas.problems(one)] == []


@pytest.mark.parametrize("name", NAMES)
def test_wrapping_twice_is_wrapping_once(name):
    once = wrapped(name).text
    assert wrap([("-", once)], AGENT).text == once


@pytest.mark.parametrize("name", NAMES)
def test_what_kubernetes_reads_is_the_same_for_both_versions_of_yaml(name):
    """Kubernetes reads YAML 1.1, as PyYAML does; what Holdfast adds holds no word that 1.1 takes for a boolean."""
    for one in documents(wrapped(name).text):
        for container in containers(one):
            words = [*container.get("command", ()), *container.get("args", ())]
            assert all(isinstance(word, str) for word in words), words
            assert all(isinstance(each.get("value", ""), str) for each in container.get("env", ()))


@pytest.mark.parametrize("name", NAMES)
def test_documents_of_other_kinds_and_unchanged_lines_stay_byte_for_byte(name):
    before = example(name)
    after = wrapped(name).text
    comments = [line for line in before.splitlines() if line.strip().startswith("#")]
    assert all(line in after.splitlines() for line in comments)
    added = after.splitlines()
    lost = [line for line in before.splitlines() if line not in added]
    allowed = (
        "completions",
        "parallelism",
        "backoffLimit",
        "command",
        "args",
        "replicas",
        "numNodes",
        "minAvailable",
    )
    other = (
        "labels",
        "event: PodEvicted",
        "action: RestartJob",
        "template: ",
        "name: torch-distributed",
        "- |",
        "set -e",
    )
    words = (*allowed, *other, "exec torchrun", "--master-addr")
    assert [line for line in lost if not any(word in line for word in words)] == []


def test_the_agent_is_started_by_its_absolute_path_and_the_command_is_the_controllers():
    found = {(one["kind"], one["metadata"]["name"]): one for one in documents(wrapped("job").text)}
    pod = found["Job", "trainer"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"] == ["/holdfast/agent/bin/holdfast", "agent"]
    assert "args" not in pod["containers"][0]
    controller = found["Job", "trainer-controller"]["spec"]["template"]["spec"]["containers"][0]
    words = controller["args"]
    assert words[words.index("--") + 1 :] == ["torchrun", "--nproc-per-node=8", "train.py", "--data", "/data"]
    assert words[words.index("--nnodes") + 1] == "4" and words[words.index("--spares") + 1] == "1"
    assert found["Job", "trainer"]["spec"]["parallelism"] == 5


def test_variables_of_the_command_are_for_the_agent_and_not_for_the_controllers_kubelet():
    text = example("job").replace('"train.py"', '"--run=$(JOB_COMPLETION_INDEX)-$$(X)", "train.py"')
    found = {one["metadata"]["name"]: one for one in documents(wrap([("f", text)], AGENT).text)}
    words = found["trainer-controller"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--run=$$(JOB_COMPLETION_INDEX)-$$$$(X)" in words


def test_a_shared_template_is_changed_for_each_task_and_nothing_shared_is_changed_elsewhere():
    found = next(
        one for one in documents(wrapped("volcano").text) if one["apiVersion"].startswith("batch.volcano")
    )
    env = [
        [each["name"] for each in container["env"]] for container in containers(found) if "env" in container
    ]
    assert env[0] == env[1] and env[0].count("HOLDFAST_NODE") == 1
    assert [task["replicas"] for task in found["spec"]["tasks"]] == [1, 4]
    assert found["spec"]["policies"] == [
        {"exitCode": 90, "action": "AbortJob"},
        {"event": "TaskCompleted", "action": "CompleteJob"},
    ]


def test_a_train_job_gets_a_runtime_of_its_own_and_the_given_one_stays():
    found = {(one["kind"], one["metadata"]["name"]): one for one in documents(wrapped("trainjob").text)}
    train = found["TrainJob", "finetune"]["spec"]
    assert train["runtimeRef"] == {
        "name": "finetune-holdfast",
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
    }
    assert (train["trainer"]["numNodes"], train["trainer"]["command"][-1], "args" in train["trainer"]) == (
        3,
        "agent",
        False,
    )
    given = documents(example("trainjob"))[1]
    assert found["ClusterTrainingRuntime", "torch-distributed"] == given


def test_a_bare_pod_is_restarted_inside_and_several_are_only_watched():
    (pod,) = documents(wrapped("pod").text)
    assert pod["spec"]["containers"][0]["command"][:3] == ["/holdfast/agent/bin/holdfast", "run", "--"]
    two = example("pod") + "---\n" + example("pod").replace("notebook-run", "other")
    found = wrap([("f", two)], AGENT)
    assert [one["spec"]["containers"][0]["command"][1] for one in documents(found.text)] == ["agent", "agent"]
    assert "use a Job to have lost pods replaced" in found.notes[0]


def containers(document):
    """Of all pod templates, at any depth."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key in ("containers", "initContainers"):
                yield from value
            else:
                yield from containers(value)
    elif isinstance(document, list):
        for value in document:
            yield from containers(value)
