"""Emulates Kueue for Jobs with a queue: admission by quota, and preemption.

| behaviour | source |
|---|---|
| a Job with the label kueue.x-k8s.io/queue-name is kept suspended until it is admitted, whoever resumes it | kueue.sigs.k8s.io/docs/tasks/run/jobs/, docs/concepts/workload/ |
| an admitted Job is resumed | docs/concepts/admission/ |
| a Job that is evicted, such as by preemption, is suspended and queued again | docs/concepts/preemption/, docs/concepts/workload/#eviction |
"""

QUEUE = "kueue.x-k8s.io/queue-name"
KEY = ("batch", "jobs")


class Kueue:
    """`quota`: pods that all queued Jobs may have together."""

    def __init__(self, store):
        self._store = store
        self._admitted = set()
        self.quota = 0

    def turn(self, now_s):
        left = self.quota
        for job in self._store.all(*KEY):
            if QUEUE not in job["metadata"].get("labels", {}):
                continue
            uid, wanted = job["metadata"]["uid"], job["spec"]["parallelism"]
            if wanted <= left:
                left -= wanted
                if uid not in self._admitted:
                    self._admitted.add(uid)
                    self._store.change(KEY, job, spec={**job["spec"], "suspend": False})
            else:
                self._admitted.discard(uid)
                if not job["spec"].get("suspend"):
                    self._store.change(KEY, job, spec={**job["spec"], "suspend": True})
