"""Emulates the Job controller: Indexed Jobs, retries, pod failure and success policies, suspension.

| behaviour | source |
|---|---|
| one pod for each index, named JOB-INDEX-xxxxx; its index in an annotation, a label and JOB_COMPLETION_INDEX | kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode |
| failed pods are made again with a back-off of 10 s, doubling to 6 min; backoffLimit fails the Job | …/job/#pod-backoff-failure-policy |
| the back-off counts every pod with phase Failed since the last success, ignored ones too | pkg/controller/job/backoff_utils.go |
| backoffLimitPerIndex: each index has a count and a back-off of its own | …/job/#backoff-limit-per-index, indexed_job_utils.go |
| podFailurePolicy: FailJob, Ignore (no failure counted), Count | …/job/#pod-failure-policy |
| podReplacementPolicy Failed: a terminating pod is replaced once it has failed or is gone | …/job/#pod-replacement-policy |
| a pod deleted with grace 0 is replaced at once, whatever its node | seen on a 1.36 server |
| successPolicy: the rest of the pods is ended | …/job/#success-policy |
| suspend ends all active pods; their ends are no failures | …/job/#suspending-a-job |
| pods carry the finalizer batch.kubernetes.io/job-tracking until they are counted | …/job/#job-tracking-with-finalizers |
"""

from kubernetes.apiserver.answers import now
from kubernetes.apiserver.controllers.pods import (
    POD,
    PODS,
    condition,
    has_condition,
    is_ending,
    is_over,
    is_ready,
    of_template,
    owned,
    phase,
    with_condition,
)
from kubernetes.apiserver.store import made_up

TRACKED = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
BACKOFF_S_MAX = 360.0
SYNC_S = 0.3  # of the real one: a second
KEY = ("batch", "jobs")


class _Counts:
    """What the controller remembers of a Job, which the real one keeps in its status."""

    def __init__(self):
        self.counted = set()  # uids of finished pods
        self.done = set()  # indexes
        self.failed = 0
        self.waits = {}  # by index, or None for all: how many failures in a row, and when the last was
        self.fails_with = None  # the condition with which the Job fails once its pods have ended
        self.succeeds = False
        self.synced_s = 0.0


class Jobs:
    def __init__(self, store, backoff_s=10.0):
        self._store, self._backoff_s = store, backoff_s
        self._counts = {}

    def turn(self, now_s):
        jobs = self._store.all(*KEY)
        alive = {job["metadata"]["uid"] for job in jobs}
        self._counts = {uid: counts for uid, counts in self._counts.items() if uid in alive}
        for job in jobs:
            counts = self._counts.setdefault(job["metadata"]["uid"], _Counts())
            if job["spec"].get("managedBy", "kubernetes.io/job-controller") == "kubernetes.io/job-controller":
                self._turn(job, counts, now_s)
        self._untrack_orphans()

    def _turn(self, job, counts, now_s):
        pods = owned(self._store, job)
        over = has_condition(job, "Complete") or has_condition(job, "Failed") or is_ending(job)
        for pod in pods:
            self._count(job, pod, counts, now_s, over)
        if over:
            for pod in pods:
                if not is_over(pod) and not is_ending(pod):
                    self._store.delete(PODS, pod)
            return
        pods = owned(self._store, job)
        active = [pod for pod in pods if not is_over(pod) and not is_ending(pod)]
        ending = [pod for pod in pods if not is_over(pod) and is_ending(pod)]
        if counts.fails_with is None and counts.failed > job["spec"]["backoffLimit"] and not _per_index(job):
            counts.fails_with = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        if job["spec"].get("suspend") or counts.fails_with or counts.succeeds:
            for pod in active:
                self._store.delete(PODS, pod)
        elif now_s - counts.synced_s >= SYNC_S:
            counts.synced_s = now_s
            self._make(job, counts, pods, now_s)
        self._tell(job, counts, active, ending)

    # Ends of pods -----------------------------------------------------------------------------------------

    def _count(self, job, pod, counts, now_s, over):
        uid, meta = pod["metadata"]["uid"], pod["metadata"]
        forced = is_ending(pod) and meta.get("deletionGracePeriodSeconds") == 0
        if not (is_over(pod) or forced or (over and is_ending(pod))) or TRACKED not in meta.get(
            "finalizers", ()
        ):
            return
        if uid not in counts.counted:
            counts.counted.add(uid)
            index = meta["annotations"].get(INDEX)
            if phase(pod) == "Succeeded":
                counts.done.add(int(index or len(counts.done)))
                counts.waits.clear()
                self._judge_success(job, counts)
            elif not (job["spec"].get("suspend") or over or counts.succeeds):
                if phase(pod) == "Failed":
                    which = index if _per_index(job) else None
                    counts.waits[which] = (counts.waits.get(which, (0, 0.0))[0] + 1, now_s)
                self._judge_failure(job, pod, counts)
        left = [name for name in meta["finalizers"] if name != TRACKED]
        self._store.change(PODS, pod, metadata={**meta, "finalizers": left})

    def _judge_success(self, job, counts):
        spec = job["spec"]
        if len(counts.done) >= (spec.get("completions") or 1):
            counts.succeeds = True
        for rule in (spec.get("successPolicy") or {}).get("rules", ()):
            among = _indexes(rule.get("succeededIndexes", ""), spec["completions"])
            if len(counts.done & among) >= rule.get("succeededCount", len(among)):
                counts.succeeds = True

    def _judge_failure(self, job, pod, counts):
        for rule in (job["spec"].get("podFailurePolicy") or {}).get("rules", ()):
            if not _fits(rule, pod):
                continue
            if rule["action"] == "Ignore":
                return
            if rule["action"] == "FailJob":
                name = pod["metadata"]["name"]
                counts.fails_with = (
                    "PodFailurePolicy",
                    f"Container of pod {name} failed, matching FailJob rule",
                )
            break
        counts.failed += 1

    def _waits(self, counts, which, now_s):
        failures, last_s = counts.waits.get(which, (0, 0.0))
        return failures > 0 and now_s - last_s < min(self._backoff_s * 2.0 ** (failures - 1), BACKOFF_S_MAX)

    def _untrack_orphans(self):
        """Of Jobs that are gone."""
        for pod in self._store.all(*PODS):
            meta = pod["metadata"]
            if TRACKED not in meta.get("finalizers", ()) or not is_ending(pod):
                continue
            owners = [ref["uid"] for ref in meta.get("ownerReferences", ()) if ref["kind"] == "Job"]
            if not any(uid in self._counts for uid in owners):
                left = [name for name in meta["finalizers"] if name != TRACKED]
                self._store.change(PODS, pod, metadata={**meta, "finalizers": left})

    # New pods ---------------------------------------------------------------------------------------------

    def _make(self, job, counts, pods, now_s):
        spec = job["spec"]
        waits = spec["podReplacementPolicy"] == "Failed"
        held = [
            pod for pod in pods if not is_over(pod) and (waits or not is_ending(pod)) and not _is_forced(pod)
        ]
        taken = {int(pod["metadata"]["annotations"].get(INDEX, -1)) for pod in held}
        wanted = [
            index
            for index in range(spec.get("completions") or 1)
            if index not in counts.done | taken
            and not self._waits(counts, str(index) if _per_index(job) else None, now_s)
        ]
        for index in wanted[: max(0, spec["parallelism"] - len(held))]:
            self._make_one(job, index)
        for pod in held:  # after the Job has been made smaller
            if int(pod["metadata"]["annotations"].get(INDEX, 0)) >= (
                spec.get("completions") or 1
            ) and not is_ending(pod):
                self._store.delete(PODS, pod)

    def _make_one(self, job, index):
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        labels = {
            "job-name": name,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "batch.kubernetes.io/controller-uid": uid,
        }
        indexed = job["spec"]["completionMode"] == "Indexed"
        if indexed:
            labels[INDEX] = str(index)
        pod_name = f"{name}-{index}-{made_up()}" if indexed else f"{name}-{made_up()}"
        pod = of_template(
            job["spec"]["template"], pod_name, job, labels, {INDEX: str(index)} if indexed else {}, (TRACKED,)
        )
        if indexed:
            pod["spec"].setdefault("hostname", f"{name}-{index}")
            place = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
            for container in pod["spec"]["containers"]:
                container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "valueFrom": place})
        pod["spec"].setdefault("terminationGracePeriodSeconds", 30)
        pod["spec"].setdefault("restartPolicy", "Never")
        pod["status"] = {"phase": "Pending"}
        self._store.create(POD, job["metadata"]["namespace"], pod)

    # Status -----------------------------------------------------------------------------------------------

    def _tell(self, job, counts, active, ending):
        state = dict(job.get("status") or {})
        state |= {
            "active": len(active),
            "ready": sum(map(is_ready, active)),
            "terminating": len(ending),
            "succeeded": len(counts.done),
            "failed": counts.failed,
            "completedIndexes": ",".join(map(str, sorted(counts.done))),
        }
        conditions = state.get("conditions") or []
        suspended = job["spec"].get("suspend")
        if suspended and not has_condition(job, "Suspended"):
            conditions = with_condition(
                conditions, condition("Suspended", "JobSuspended", "Job suspended", now())
            )
            state.pop("startTime", None)
        elif not suspended and not state.get("startTime"):
            state["startTime"] = now()
            if has_condition(job, "Suspended"):
                back = condition("Suspended", "JobResumed", "Job resumed", now(), "False")
                conditions = with_condition(conditions, back)
        if counts.fails_with:
            reason, message = counts.fails_with
            last = "Failed" if not (active or ending) else "FailureTarget"
            conditions = with_condition(conditions, condition(last, reason, message, now()))
        elif counts.succeeds:
            last = "Complete" if not (active or ending) else "SuccessCriteriaMet"
            conditions = with_condition(
                conditions, condition(last, "CompletionsReached", "Reached expected number", now())
            )
            if last == "Complete":
                state.setdefault("completionTime", now())
        if conditions:
            state["conditions"] = (
                conditions if not _same_kinds(conditions, job) else job["status"]["conditions"]
            )
        self._store.change(KEY, job, status=state)


def _per_index(job):
    return job["spec"].get("backoffLimitPerIndex") is not None


def _same_kinds(conditions, job):
    def kinds(them):
        return {(one["type"], one["status"], one["reason"]) for one in them}

    return kinds(conditions) == kinds((job.get("status") or {}).get("conditions") or ())


def _is_forced(pod):
    return is_ending(pod) and pod["metadata"].get("deletionGracePeriodSeconds") == 0


def _indexes(text, completions):
    if not text:
        return set(range(completions))
    found = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found


def _fits(rule, pod):
    codes = rule.get("onExitCodes")
    if codes:
        for one in pod.get("status", {}).get("containerStatuses", ()):
            ended = one.get("state", {}).get("terminated")
            named = codes.get("containerName") in (None, one["name"])
            if ended and named and ended["exitCode"] != 0:
                if (ended["exitCode"] in codes["values"]) == (codes["operator"] == "In"):
                    return True
        return False
    wanted = rule.get("onPodConditions") or ()
    return any(has_condition(pod, one["type"]) for one in wanted)
