"""Emulates the Volcano Job controller: tasks, RestartJob by policy or Command, ends by policies of exit codes.

| behaviour | source |
|---|---|
| pods are named JOB-TASK-INDEX, a name that its successor has too; VC_TASK_INDEX and labels volcano.sh/… | volcano.sh/en/docs/vcjob/, github.com/volcano-sh/volcano pkg/controllers/job |
| policies: the event or exit code of a pod chooses an action; RestartJob ends all pods and makes them again, up to maxRetry | volcano.sh/en/docs/vcjob/#key-fields |
| RestartTask and RestartPod do nothing for failed or pending pods | open upstream, seen in 1.12 |
| a Command object asks for an action, and is deleted | github.com/volcano-sh/volcano docs/design/job-api.md |
"""

from kubernetes.apiserver.answers import now
from kubernetes.apiserver.controllers.pods import POD, PODS, is_ending, is_over, of_template, owned, phase

KEY, COMMANDS = ("batch.volcano.sh", "jobs"), ("bus.volcano.sh", "commands")
ENDED = ("Completed", "Failed", "Aborted", "Terminated")
TASK, JOB_NAME, INDEX = "volcano.sh/task-spec", "volcano.sh/job-name", "volcano.sh/task-index"


class VolcanoJobs:
    def __init__(self, store):
        self._store = store
        self._seen = set()  # uids of pods whose end was judged

    def turn(self, now_s):
        for job in self._store.all(*KEY):
            if is_ending(job):
                continue
            state = (job.get("status") or {}).get("state") or {}
            if state.get("phase") not in ENDED:
                self._turn(job, state.get("phase", "Pending"))

    def _turn(self, job, where):
        pods = owned(self._store, job)
        asked = self._command(job)
        if where in ("Restarting", "Aborting", "Terminating"):
            left = [pod for pod in pods if not is_over(pod) or where == "Restarting"]
            for pod in left:
                if not is_ending(pod):
                    self._store.delete(PODS, pod)
            if not left:
                ended = {"Restarting": "Pending", "Aborting": "Aborted", "Terminating": "Terminated"}[where]
                self._say(job, ended, pods)
            return
        action = asked or self._policy(job, pods)
        if action == "RestartJob":
            retries = (job.get("status") or {}).get("retryCount", 0)
            over = retries >= job["spec"].get("maxRetry", 3)
            self._say(job, "Failed" if over else "Restarting", pods, retries + (0 if over else 1))
        elif action in ("AbortJob", "TerminateJob"):
            self._say(job, "Aborting" if action == "AbortJob" else "Terminating", pods)
        elif action == "CompleteJob" or self._all_succeeded(job, pods):
            for pod in pods:
                if not is_over(pod) and not is_ending(pod):
                    self._store.delete(PODS, pod)
            self._say(job, "Completed", pods)
        else:
            self._make(job, pods)
            running = sum(1 for pod in pods if phase(pod) == "Running")
            self._say(job, "Running" if running >= job["spec"].get("minAvailable", 1) else where, pods)

    def _command(self, job):
        for command in self._store.all(*COMMANDS, job["metadata"]["namespace"]):
            if command["target"]["uid"] == job["metadata"]["uid"]:
                self._store.delete(COMMANDS, command)
                return command["action"]
        return ""

    def _policy(self, job, pods):
        for pod in pods:
            uid = pod["metadata"]["uid"]
            if not (is_over(pod) or is_ending(pod)) or uid in self._seen:
                continue
            self._seen.add(uid)
            task = pod["metadata"]["annotations"][TASK]
            own = next(one for one in job["spec"]["tasks"] if one["name"] == task)
            for policy in [*own.get("policies", ()), *job["spec"].get("policies", ())]:
                if _fits(policy, pod) and policy["action"] in (
                    "RestartJob",
                    "AbortJob",
                    "TerminateJob",
                    "CompleteJob",
                ):
                    return policy["action"]
        return ""

    def _all_succeeded(self, job, pods):
        done = sum(1 for pod in pods if phase(pod) == "Succeeded")
        wanted = job["spec"].get("minSuccess") or sum(
            task.get("replicas", 1) for task in job["spec"]["tasks"]
        )
        return done >= wanted

    def _make(self, job, pods):
        name = job["metadata"]["name"]
        have = {pod["metadata"]["name"] for pod in pods}
        for task in job["spec"]["tasks"]:
            for number in range(task.get("replicas", 1)):
                pod_name = f"{name}-{task['name']}-{number}"
                if pod_name in have:
                    continue
                marks = {TASK: task["name"], JOB_NAME: name, INDEX: str(number)}
                pod = of_template(task["template"], pod_name, job, marks, marks)
                pod["spec"].setdefault("restartPolicy", "Never")
                pod["spec"].setdefault("terminationGracePeriodSeconds", 30)
                for container in pod["spec"]["containers"]:
                    more = [
                        {"name": "VC_TASK_INDEX", "value": str(number)},
                        {"name": "VK_TASK_INDEX", "value": str(number)},
                    ]
                    container.setdefault("env", []).extend(more)
                pod["status"] = {"phase": "Pending"}
                self._store.create(POD, job["metadata"]["namespace"], pod)

    def _say(self, job, where, pods, retries=None):
        state = dict(job.get("status") or {})
        old = state.get("state") or {}
        if old.get("phase") != where:
            state["state"] = {"phase": where, "lastTransitionTime": now()}
        if retries is not None:
            state["retryCount"] = retries
        for name in ("running", "succeeded", "failed", "pending"):
            state[name] = sum(1 for pod in pods if phase(pod).lower() == name)
        self._store.change(KEY, job, status=state)


def _fits(policy, pod):
    if policy.get("exitCode") is not None:
        return any(
            (one.get("state", {}).get("terminated") or {}).get("exitCode") == policy["exitCode"]
            for one in pod.get("status", {}).get("containerStatuses", ())
        )
    events = set(policy.get("events") or ()) | {policy.get("event", "")}
    if phase(pod) == "Failed" and {"PodFailed", "*"} & events:
        return True
    return is_ending(pod) and not is_over(pod) and bool({"PodEvicted", "*"} & events)
