"""What cannot be wrapped is refused before anything is written, with what to change."""

import pytest

from holdfast.engines.kubernetes.wrap.asked import Asked, Refused
from holdfast.engines.kubernetes.wrap.whole import wrap
from kubernetes.wrap.test_examples import AGENT, documents, example


def refused(text, asked=AGENT):
    with pytest.raises(Refused) as caught:
        wrap([("f.yaml", text)], asked)
    return "\n".join(caught.value.reasons)


def job(**changes):
    """The example's Job, with replaced lines."""
    text = example("job")
    for before, after in changes.values():
        assert before in text
        text = text.replace(before, after)
    return text


COMMAND = ('command: ["torchrun", "--nproc-per-node=8", "train.py"]', "")
CASES = {
    "no command": (
        job(c=COMMAND),
        "has no command, and the ENTRYPOINT of registry.example/training:1 is not known here",
    ),
    "OnFailure": (
        job(r=("restartPolicy: Never", "restartPolicy: OnFailure")),
        "restartPolicy is OnFailure: the kubelet",
    ),
    "hostNetwork": (
        job(n=("subdomain: trainer", "hostNetwork: true")),
        "set spec.template.spec.dnsPolicy to ClusterFirstWithHostNet",
    ),
    "several containers": (
        job(
            s=(
                "      volumes:",
                "        - {name: side, image: x, resources: {limits: {nvidia.com/gpu: 1}}}\n      volumes:",
            )
        ),
        "which container trains? Name it with --container: train, side",
    ),
    "not all at once": (
        job(p=("parallelism: 4", "parallelism: 2")),
        "spec.parallelism is 2 and spec.completions is 4",
    ),
    "no name": (
        job(g=("  name: trainer\n  labels", "  generateName: trainer-\n  labels")),
        "replace generateName by a name",
    ),
    "long name": (job(g=("  name: trainer\n  labels", f"  name: {'a' * 41}\n  labels")), "40 at most"),
    "name that YAML 1.1 reads as a boolean": (
        job(g=("  name: trainer\n  labels", "  name: 'on'\n  labels")),
        "'on'",
    ),
    "reserved volume": (
        job(v=("- name: data\n          pers", "- name: holdfast-x\n          pers")),
        "rename it",
    ),
    "a pod's address": (
        job(a=("--nproc-per-node=8", "--rdzv-endpoint=trainer-0.trainer:29400")),
        "the command has --rdzv-endpoint trainer-0.trainer:29400, but a worker may run in any pod: remove it",
    ),
    "a pod's number": (job(a=('"--nproc-per-node=8"', '"--node-rank", "0"')), "--node-rank 0"),
    "another number of pods": (job(a=("--nproc-per-node=8", "--nnodes=2")), "the job has 4 pods"),
    "labelled": (
        job(a=("labels: {app: trainer}\n    spec", "labels: {holdfast.dev/job: x}\n    spec")),
        "remove it",
    ),
    "wrong type": (job(a=("completions: 4", "completions: many")), "completions is not a whole number"),
    "no YAML": ("a: [1\nb: 2", "f.yaml: this is not YAML: line 2"),
    "an unknown alias": ("a: *b", "this is not YAML"),
    "a CronJob": ("kind: CronJob\nmetadata: {name: x}", "wrap the Job of spec.jobTemplate"),
    "unknown kinds": (
        "kind: Deployment\n---\nkind: Foo",
        "nothing to wrap: found Deployment, Foo; known kinds: Job, JobSet",
    ),
    "nothing": ("# empty\n", "no Kubernetes object is in the input"),
    "Volcano with OnFailure": (example("volcano").replace("Never", "OnFailure"), "set it to Never"),
    "PyTorchJob with OnFailure": (
        example("pytorchjob").replace("ExitCode", "OnFailure"),
        "spec.pytorchReplicaSpecs.Master.restartPolicy is OnFailure",
    ),
    "elastic PyTorchJob": (
        example("pytorchjob").replace("spec:\n  py", "spec:\n  elasticPolicy: {}\n  py"),
        "remove it",
    ),
    "different commands": (
        example("pytorchjob").replace("train.py", "first.py", 1),
        "Master and Worker have different commands or images in container pytorch",
    ),
    "no runtime": (
        example("trainjob").split("---")[0],
        "kubectl get clustertrainingruntime torch-distributed -o yaml > runtime.yaml",
    ),
    "MPI runtime": (example("trainjob").replace("torch: {}", "mpi: {}"), "mlPolicy is mpi"),
    "replicas of several pods": (
        example("jobset").replace("replicas: 1", "replicas: 2"),
        "replicas to 1 with parallelism",
    ),
    "a container that its kubelet restarts": (
        job(r=("- name: train\n", "- name: train\n          restartPolicy: OnFailure\n")),
        "containers[train] has restartPolicy or restartPolicyRules: the kubelet would restart the agent",
    ),
    "a sidecar that restarts all containers": (
        job(
            s=(
                "      volumes:",
                "        - {name: side, image: x, restartPolicy: Never, restartPolicyRules: [{action: "
                "RestartAllContainers, exitCodes: {operator: In, values: [1]}}]}\n      volumes:",
            )
        ),
        "containers[side] has a rule RestartAllContainers, which would end the training without grace: remove it",
    ),
    "an annotation out of range": (
        job(a=("labels: {app: trainer}\nspec", "annotations: {fault-tolerance/job-retry-num: '500'}\nspec")),
        "annotation fault-tolerance/job-retry-num is refused",
    ),
    "an annotation that is no text": (
        job(a=("labels: {app: trainer}\nspec", "annotations: {fault-tolerance/job-retry-num: 5}\nspec")),
        "fault-tolerance/job-retry-num is 5, and Kubernetes takes text alone: quote it",
    ),
    "JobSet's restart in place": (
        example("jobset").replace("maxRestarts: 3", "maxRestarts: 3\n    restartStrategy: InPlaceRestart"),
        "without the API server; remove restartStrategy",
    ),
    "JobSet's agent as a sidecar": (
        example("jobset").replace(
            "image: registry.example/log-shipper:2", "image: x/in-place-restart-agent:v1"
        ),
        "initContainers[logs] is JobSet's agent for restarts in place: remove it",
    ),
    "JobSet's agent as the first process": (
        example("jobset").replace(
            "resources: {limits: {nvidia.com/gpu: 8}}",
            "resources: {limits: {nvidia.com/gpu: 8}}\n"
            "              env: [{name: JOBSET_NAME, value: x}, {name: WORKER_COMMAND, value: y}]",
        ),
        "write its WORKER_COMMAND as command",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_manifest_is_refused_with_what_to_change(name):
    text, reason = CASES[name]
    assert reason in refused(text)


def test_all_reasons_of_all_objects_are_said_at_once():
    text = job(c=COMMAND, r=("restartPolicy: Never", "restartPolicy: OnFailure"))
    found = refused(f"{text}---\n{example('volcano').replace('Never', 'OnFailure')}")
    assert found.count("\n") == 3
    assert "Job/trainer" in found and "Job/sweep" in found


def test_a_container_and_a_job_that_are_not_there_are_named():
    assert "there are train" in refused(example("job"), Asked(container="other"))
    assert "there are workers/train, data/reader" in refused(example("jobset"), Asked(container="reader2"))
    assert "no object is named x" in refused(example("job"), Asked(jobs=("x",)))


def test_spares_need_a_worker_of_a_pytorch_job():
    text = example("pytorchjob").split("    Worker:")[0]
    assert "give --spares 0" in refused(text)
    assert wrap([("f", text)], Asked(spares=0)).names == ("PyTorchJob/classic",)


def test_pods_of_a_pytorch_job_cannot_all_be_made_anew():
    asked = Asked(run_flags=("--reschedule-pods",))
    assert "does not work with a PyTorchJob" in refused(example("pytorchjob"), asked)
    found = documents(wrap([("f", example("volcano"))], asked).text)
    assert next(one for one in found if "tasks" in one.get("spec", {}))["spec"]["maxRetry"] == 10_000


def test_variables_of_platforms_are_taken_in_launch_options():
    text = job(a=("--nproc-per-node=8", "--node-rank=$(JOB_COMPLETION_INDEX)"))
    assert wrap([("f", text)], AGENT).names == ("Job/trainer",)


def test_host_network_with_its_dns_policy_is_wrapped():
    text = job(n=("subdomain: trainer", "hostNetwork: true\n      dnsPolicy: ClusterFirstWithHostNet"))
    assert wrap([("f", text)], AGENT).names == ("Job/trainer",)


def test_a_container_beside_the_training_is_noted():
    text = job(s=("      volumes:", "        - {name: side, image: x}\n      volumes:"))
    found = wrap([("f", text)], AGENT)
    assert "move it to initContainers with restartPolicy: Always" in found.notes[0]


def test_an_unknown_annotation_is_noted_and_a_good_one_is_not():
    notes = "annotations: {fault-tolerance/job-retry-num: '5', fault-tolerance/job-retries: '5'}"
    found = wrap([("f", job(a=("labels: {app: trainer}\nspec", f"{notes}\nspec")))], AGENT)
    assert ["is unknown and ignored" in note for note in found.notes].count(True) == 1


def test_an_anchor_that_is_defined_twice_is_no_trouble():
    text = example("job").replace("metadata:", "metadata: &m")
    assert text.count("&m") > 1
    assert wrap([("f", text)], AGENT).names == ("Job/trainer",)


def test_an_object_that_is_annotated_stays_as_it_is():
    text = job(a=("labels: {app: trainer}\nspec", "annotations: {holdfast.dev/wrap: 'false'}\nspec"))
    found = wrap([("f", text + "---\n" + example("volcano"))], AGENT)
    assert found.names == ("Job/sweep",)
    assert [one for one in documents(found.text) if one["metadata"]["name"] == "trainer"] == documents(text)
