"""The API server of these tests behaves as documented where the engine depends on it."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from kubernetes.server import Server

CHECKS = Path(__file__).parents[3] / "shared" / "design" / "engines" / "k8s_api_checks.py"
PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j"},
    "spec": {
        "completions": 2,
        "parallelism": 2,
        "completionMode": "Indexed",
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [90]}},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
    },
}


def config(name, **meta):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}, "data": {"a": "1"}}


def pod(name):
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "nodeName": "none",
        "terminationGracePeriodSeconds": 5,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def events(server, path, count, **params):
    """The first events of a watch."""
    found = []
    given = {"watch": "true", "timeoutSeconds": "20", **params}
    with httpx.Client(base_url=server.url, trust_env=False, timeout=100) as client:
        with client.stream("GET", path, params=given) as answer:
            if answer.status_code != 200:
                return [answer.status_code]
            for line in answer.iter_lines():
                found.append(json.loads(line))
                if len(found) == count:
                    break
    return found


def checked(server):
    """The checks of real servers that fail, and the whole output."""
    run = subprocess.run(
        [sys.executable, str(CHECKS), server.url, ""], capture_output=True, text=True, timeout=120
    )
    failed = [line for line in run.stdout.splitlines() if line.startswith("FAIL")]
    return failed, run.stdout + run.stderr


def test_all_checks_of_real_servers_pass(server, tmp_path):
    """A watch of theirs ends 4 s after its start, whether or not its writes were made by then, as on a busy machine:
    where only such checks fail, all are repeated on a new server, three times at most."""
    if not CHECKS.exists():
        pytest.skip("the checks (shared/design/engines/k8s_api_checks.py) are not beside this checkout")
    failed, output = checked(server)
    for number in range(3):
        if not failed or not all("watch" in line for line in failed):
            break
        another = Server(tmp_path / f"another-{number}")
        try:
            failed, output = checked(another)
        finally:
            another.close()
    assert not failed and "31/31 pass" in output, output


def test_a_watch_resumes_from_a_bookmark_without_what_was_before(server):
    server.create(config("before"))
    marks = events(server, MAPS, 2, allowWatchBookmarks="true", resourceVersion="0")
    assert [one["type"] for one in marks] == ["ADDED", "BOOKMARK"]
    version = marks[-1]["object"]["metadata"]["resourceVersion"]
    server.create(config("after"))
    (event,) = events(server, MAPS, 1, resourceVersion=version)
    assert event["object"]["metadata"]["name"] == "after"


def test_a_version_that_was_compacted_away_is_gone(server):
    old = server.create(config("one"))["metadata"]["resourceVersion"]
    server.create(config("two"))
    server.control("compact")
    assert events(server, MAPS, 1, resourceVersion=old) == [410]


def test_pages_of_a_list_are_of_one_version(server):
    for number in range(5):
        server.create(config(f"c{number}"))
    names, more, versions = [], "", set()
    while True:
        page = server.client.get(MAPS, params={"limit": "2", **({"continue": more} if more else {})}).json()
        names += [one["metadata"]["name"] for one in page["items"]]
        versions.add(page["metadata"]["resourceVersion"])
        more = page["metadata"].get("continue", "")
        if not more:
            break
    assert names == [f"c{number}" for number in range(5)]
    assert len(versions) == 1


def test_faults_are_injected_as_asked_and_end(server):
    server.control(
        "faults", rules=[{"code": 429, "count": 1, "verb": "list"}, {"code": 500, "count": 1, "after": True}]
    )
    client = {"Authorization": "Bearer test"}  # the administrator is spared
    assert server.client.get(MAPS).status_code == 200
    answer = server.client.get(MAPS, headers=client)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
    assert server.client.get(MAPS, headers=client).status_code == 200
    assert (
        server.client.post(MAPS, json=config("x"), headers=client).status_code == 500
    )  # it is there all the same
    assert server.get(f"{MAPS}/x")["data"] == {"a": "1"}
    server.control("faults", away=True)
    with pytest.raises(httpx.RemoteProtocolError):
        server.client.get(MAPS)
    server.control("faults", away=False)
    assert server.client.get(MAPS).status_code == 200


def test_a_pod_that_is_evicted_says_so_and_waits_for_its_kubelet(server):
    server.create(pod("p"))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert server.client.post(f"{PODS}/p/eviction", json=body).status_code == 201
    found = server.get(f"{PODS}/p")
    assert found["metadata"]["deletionGracePeriodSeconds"] == 5
    (target,) = (one for one in found["status"]["conditions"] if one["type"] == "DisruptionTarget")
    assert target["reason"] == "EvictionByEvictionAPI"
    server.delete(f"{PODS}/p", gracePeriodSeconds=0)
    assert server.get(f"{PODS}/p") is None


def test_a_disruption_budget_refuses_an_eviction(server):
    one = pod("p")
    one["metadata"]["labels"] = {"a": "b"}
    server.create(one)
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    budget["spec"] = {"selector": {"matchLabels": {"a": "b"}}, "minAvailable": 1}
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    assert server.client.post(path, json=budget).status_code == 201
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert server.client.post(f"{PODS}/p/eviction", json=body).status_code == 429


def finished(server, name, phase, code, conditions=()):
    state = {"terminated": {"exitCode": code}}
    status = {
        "phase": phase,
        "conditions": list(conditions),
        "containerStatuses": [{"name": "c", "state": state}],
    }
    server.merge(f"{PODS}/{name}/status", {"status": status})


def job_pods(server, count=2):
    def found():
        pods = [one for one in server.items("pods") if one["status"]["phase"] == "Pending"]
        return pods if len(pods) == count else None

    return sorted(one["metadata"]["name"] for one in server.wait_for(found))


def job_status(server):
    return server.get("/apis/batch/v1/namespaces/default/jobs/j")["status"]


def test_an_indexed_job_makes_a_pod_for_each_index_and_is_complete_when_all_have_succeeded(server):
    server.create(JOB)
    names = job_pods(server)
    assert [name[:4] for name in names] == ["j-0-", "j-1-"]
    for name in names:
        finished(server, name, "Succeeded", 0)
    server.wait_for(
        lambda: any(one["type"] == "Complete" for one in job_status(server).get("conditions", ()))
    )
    assert job_status(server)["completedIndexes"] == "0,1"


@pytest.mark.parametrize("server", [{"more": ("--backoff", "0.5")}], indirect=True)
def test_a_disrupted_pod_counts_no_failure_and_one_removed_by_force_is_replaced_at_once(server):
    server.create(JOB)
    first, second = job_pods(server)
    finished(server, first, "Failed", 137, [{"type": "DisruptionTarget", "status": "True"}])
    server.delete(f"{PODS}/{second}", gracePeriodSeconds=0)
    server.wait_for(lambda: server.get(f"{PODS}/{second}") is None)
    server.wait_for(lambda: [one for one in server.items("pods") if one["status"]["phase"] == "Pending"])
    assert job_status(server)["failed"] <= 1


def test_each_index_has_a_back_off_of_its_own_where_it_has_a_limit(server):
    spec = {**JOB["spec"], "backoffLimitPerIndex": 5}
    server.create({**JOB, "spec": spec})
    first, second = job_pods(server)
    finished(server, first, "Failed", 1)
    finished(server, second, "Succeeded", 0)
    server.wait_for(lambda: job_status(server)["failed"] == 1)
    server.wait_for(lambda: [one for one in server.items("pods") if one["status"]["phase"] == "Pending"])


def test_an_exit_code_of_the_failure_policy_fails_the_job_and_ends_the_other_pods(server):
    server.create(JOB)
    finished(server, job_pods(server)[0], "Failed", 90)
    server.wait_for(lambda: any(one["type"] == "Failed" for one in job_status(server).get("conditions", ())))
    (reason,) = (one["reason"] for one in job_status(server)["conditions"] if one["type"] == "Failed")
    assert reason == "PodFailurePolicy"


def test_other_failures_are_retried_only_after_the_back_off(server):
    server.create(JOB)
    first = job_pods(server)[0]
    finished(server, first, "Failed", 1)
    server.wait_for(lambda: job_status(server)["failed"] == 1)
    assert len(job_pods(server, 1)) == 1  # the other one; the next of this index comes after 10 s


def test_a_suspended_job_has_no_pods_and_their_end_is_no_failure(server):
    server.create(JOB)
    job_pods(server)
    server.merge("/apis/batch/v1/namespaces/default/jobs/j", {"spec": {"suspend": True}})
    server.wait_for(lambda: not server.items("pods"))
    assert job_status(server)["failed"] == 0
    server.merge("/apis/batch/v1/namespaces/default/jobs/j", {"spec": {"suspend": False}})
    job_pods(server)


def test_a_template_cannot_be_changed_once_the_job_has_begun(server):
    server.create(JOB)
    job_pods(server)
    patch = {"spec": {"template": {"spec": {"priorityClassName": "high"}}}}
    answer = server.client.request(
        "PATCH",
        "/apis/batch/v1/namespaces/default/jobs/j",
        json=patch,
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert answer.status_code == 422 and "field is immutable" in answer.text


def test_many_watches_see_each_change_once(server):
    version = server.client.get(MAPS).json()["metadata"]["resourceVersion"]
    seen = [[] for _ in range(4)]

    def watch(found):
        found += events(server, MAPS, 6, resourceVersion=version)

    threads = [threading.Thread(target=watch, args=(found,)) for found in seen]
    for thread in threads:
        thread.start()
    for number in range(6):
        server.create(config(f"m{number}"))
    for thread in threads:
        thread.join(25)
    assert all(
        [one["object"]["metadata"]["name"] for one in found] == [f"m{n}" for n in range(6)] for found in seen
    )
