"""Emulates the JobSet controller: child Jobs, restarts of all of them, success and failure policies, suspension.

| behaviour | source |
|---|---|
| child Jobs named JOBSET-PART-NUMBER, labelled with jobset.sigs.k8s.io/… | jobset.sigs.k8s.io/docs/reference/labels/ |
| a failed child Job restarts all (Recreate), up to failurePolicy.maxRestarts; rules by the reason of the Job's failure | jobset.sigs.k8s.io/docs/tasks/simple/failure_policy_example/ |
| success: all Jobs, or those of successPolicy, are complete | jobset.sigs.k8s.io/docs/tasks/simple/success_policy_example/ |
| suspend is passed on to the child Jobs, and told as the condition Suspended | jobset.sigs.k8s.io/docs/concepts/ |
"""

import copy

from kubernetes.apiserver.admission import admit
from kubernetes.apiserver.answers import now
from kubernetes.apiserver.controllers.pods import (
    condition,
    has_condition,
    is_ending,
    owned,
    owner,
    with_condition,
    with_suspended,
)
from kubernetes.apiserver.kinds import Kind

KEY, JOBS = ("jobset.x-k8s.io", "jobsets"), ("batch", "jobs")
JOB = Kind("batch", "v1", "Job", "jobs", status=True)
PREFIX = "jobset.sigs.k8s.io"


class JobSets:
    def __init__(self, store):
        self._store = store

    def turn(self, now_s):
        for one in self._store.all(*KEY):
            if (
                not is_ending(one)
                and not has_condition(one, "Completed")
                and not has_condition(one, "Failed")
            ):
                self._turn(one)

    def _turn(self, one):
        state = dict(one.get("status") or {})
        restarts = state.get("restarts", 0)
        jobs = owned(self._store, one, JOBS)
        old = [job for job in jobs if int(job["metadata"]["labels"][f"{PREFIX}/restart-attempt"]) < restarts]
        for job in old:
            if not is_ending(job):
                self._store.delete(JOBS, job, policy="Foreground")
        if old:
            return
        failed = next((job for job in jobs if has_condition(job, "Failed")), None)
        if failed is not None:
            self._fail(one, state, restarts, failed)
            return
        if self._is_done(one, jobs):
            done = condition("Completed", "AllJobsCompleted", "jobset completed successfully", now())
            state |= {
                "conditions": with_condition(state.get("conditions"), done),
                "terminalState": "Completed",
            }
            self._store.change(KEY, one, status=state)
            return
        self._make(one, jobs, restarts)
        self._pass_on_suspend(one, jobs)
        told = with_suspended(state.get("conditions"), bool(one["spec"].get("suspend")), "JobSet")
        if told != state.get("conditions", []):
            self._store.change(KEY, one, status={**state, "conditions": told})

    def _fail(self, one, state, restarts, failed):
        policy = one["spec"].get("failurePolicy") or {}
        reason = next(
            (each["reason"] for each in failed["status"]["conditions"] if each["type"] == "Failed"), ""
        )
        action = "RestartJobSet" if policy else "FailJobSet"
        for rule in policy.get("rules", ()):
            if not rule.get("onJobFailureReasons") or reason in rule["onJobFailureReasons"]:
                action = rule["action"]
                break
        counted = state.get("restartsCountTowardsMax", 0)
        if action == "FailJobSet" or (action == "RestartJobSet" and counted >= policy.get("maxRestarts", 0)):
            why = "FailedJobs" if action == "FailJobSet" else "ReachedMaxRestarts"
            bad = condition("Failed", why, f"jobset failed due to {failed['metadata']['name']}", now())
            state |= {"conditions": with_condition(state.get("conditions"), bad), "terminalState": "Failed"}
            for job in owned(self._store, one, JOBS):
                if not has_condition(job, "Complete") and not has_condition(job, "Failed"):
                    self._store.delete(JOBS, job)
        else:
            state |= {"restarts": restarts + 1}
            state["restartsCountTowardsMax"] = counted + (0 if "Ignore" in action else 1)
        self._store.change(KEY, one, status=state)

    def _is_done(self, one, jobs):
        policy = one["spec"].get("successPolicy") or {"operator": "All"}
        parts = policy.get("targetReplicatedJobs") or [part["name"] for part in one["spec"]["replicatedJobs"]]
        wanted = sum(
            part.get("replicas", 1) for part in one["spec"]["replicatedJobs"] if part["name"] in parts
        )
        done = [
            job
            for job in jobs
            if has_condition(job, "Complete")
            and job["metadata"]["labels"][f"{PREFIX}/replicatedjob-name"] in parts
        ]
        return bool(done) if policy["operator"] == "Any" else len(done) >= wanted > 0

    def _make(self, one, jobs, restarts):
        meta = one["metadata"]
        have = {job["metadata"]["name"] for job in jobs}
        for part in one["spec"]["replicatedJobs"]:
            for number in range(part.get("replicas", 1)):
                name = f"{meta['name']}-{part['name']}-{number}"
                if name in have:
                    continue
                labels = {
                    f"{PREFIX}/jobset-name": meta["name"],
                    f"{PREFIX}/replicatedjob-name": part["name"],
                    f"{PREFIX}/job-index": str(number),
                    f"{PREFIX}/restart-attempt": str(restarts),
                }
                self._store.create(JOB, meta["namespace"], self._job(one, part, name, labels))

    def _job(self, one, part, name, labels):
        template = copy.deepcopy(part["template"])
        own = template.get("metadata") or {}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "labels": {**(own.get("labels") or {}), **labels},
                "annotations": dict(own.get("annotations") or {}),
                "ownerReferences": [owner(one)],
            },
            "spec": template["spec"],
        }
        pod = job["spec"]["template"].setdefault("metadata", {})
        pod["labels"] = {**(pod.get("labels") or {}), **labels}
        job["spec"]["template"]["spec"].setdefault("restartPolicy", "OnFailure")
        job["spec"]["template"]["spec"].setdefault("subdomain", one["metadata"]["name"])
        job["spec"].setdefault("completionMode", "Indexed")
        job["spec"]["suspend"] = bool(one["spec"].get("suspend"))
        admit(JOB, job)
        return job

    def _pass_on_suspend(self, one, jobs):
        wanted = bool(one["spec"].get("suspend"))
        for job in jobs:
            if bool(job["spec"].get("suspend")) != wanted:
                self._store.change(JOBS, job, spec={**job["spec"], "suspend": wanted})
