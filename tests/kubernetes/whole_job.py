"""A whole job on Kubernetes, seen from outside: the real command line against the API server of tests, with pods as processes."""

import json
import os
import signal
from contextlib import suppress

from holdfast.engines.kubernetes.kinds import OWNERS
from holdfast.parsers.kubernetes.objects import owner_of
from kubernetes.server import Server
from many.whole_job import LONG_S, WORKERS, WholeJob
from run.place import wait_for

SPARES = 1
PODS = WORKERS + SPARES  # without the controller
NODES = PODS + 2  # one for the controller, and one more
BACKOFF_S = 0.5  # of a real cluster: 10 s
OWNER_ENDS_S = 60.0  # the job has ended before: only controllers of the cluster act
SAME_NAME = ("volcano", "pytorchjob")  # owners whose next pod has the name of the one before
RESTARTS = ("--max-restarts", 100, "--unconditional-restart", "--replace-workers", 100)


class KubernetesJob(WholeJob):
    """`server`: its own API server, with `NODES` nodes."""

    def __init__(self, path, cache, nodes=NODES, node_grace_s=50.0, kind="job", more=()):
        super().__init__(path, cache)
        self.kind = kind
        self.server = Server(path / "cluster", nodes, node_grace_s, ("--backoff", str(BACKOFF_S), *more))
        # The launcher of the small training ends with its ranks: it needs no time to end by itself.
        self.env |= {"KUBECONFIG": str(self.server.kubeconfig), "HOLDFAST_FINISH": "0s"}
        self.image = "test-image"
        self._attempts_before = self._events_before = 0

    def submit(self, *flags, workers=WORKERS, spares=SPARES, restarts=RESTARTS, **more):
        """`holdfast run` of the small training, under way."""
        passed = {**self.marks, "NOTES": self.path, "XDG_CACHE_HOME": self.env["XDG_CACHE_HOME"]}
        env = [word for key, value in passed.items() for word in ("--env", f"{key}={value}")]
        words = (
            "--engine",
            "kubernetes",
            "--image",
            self.image,
            "--kind",
            self.kind,
            *env,
            *restarts,
            *flags,
        )
        return self.train(*words, workers=workers, spares=spares, **more)

    def submit_and_train(self, *flags, **more):
        """The same, and its first attempt has taken some steps."""
        run = self.submit(*flags, **more)
        self.given_to()
        self.trains()
        return run

    def submit_detached(self, flags=(), workers=WORKERS):
        """The same, followed by nobody, for several tests: ranks may be killed in each of them."""
        run = self.submit("--detach", *flags, workers=workers, HOLDFAST_SAME_PROBLEM_IN_A_ROW_MAX=100)
        assert run.code(LONG_S) == 0, self.said()

    def begins_anew(self):
        """From now on the attempt that runs is attempt 1, and the journal begins with its start.

        Waits until it trains and each pod, the spare's too, has its place in the job.
        """
        self._attempts_before = self._events_before = 0
        self.given_to()
        wait_for(lambda: f"the start in the journal: {self.said()}", self._is_start_known, LONG_S)
        wait_for(lambda: f"all agents: {self.said()}", self._all_connected, LONG_S)
        events = self.events()
        kinds = [event["kind"] for event in events]
        self._events_before = len(kinds) - 1 - kinds[::-1].index("attempt-started")
        self._attempts_before = events[self._events_before]["attempt"] - 1
        self.given_to()
        self.trains()

    def _is_start_known(self):
        """Its event follows the ranks, by way of an agent and the link."""
        started = [event["attempt"] for event in self.events("attempt-started")]
        last = json.loads(self.notes("given-0")[-1])
        return started and str(started[-1]) == last["HOLDFAST_ATTEMPT"]

    @property
    def may_end(self):
        return (self.path / "go").exists()

    def _all_connected(self):
        logs = self.path / "cluster" / "pods"
        texts = [next(logs.glob(f"{name}.*/log"), None) for name in self.pods()]
        return len(texts) == self.workers + SPARES and all(
            text is not None and "connected to the controller" in text.read_text(errors="replace")
            for text in texts
        )

    def events(self, kind=None, name="t"):
        events = super().events(name=name)[self._events_before :]
        return [event for event in events if kind is None or event["kind"] == kind]

    def _rank(self, rank, attempt):
        return super()._rank(rank, attempt + self._attempts_before)

    def _given(self, rank, attempt):
        return super()._given(rank, attempt + self._attempts_before)

    def steps(self, attempt):
        return super().steps(attempt + self._attempts_before)

    def loses_a_rank_and_a_pod(self):
        """A killed rank of attempt 1 costs no write to the cluster; the spare replaces a killed pod of attempt 2."""
        spare = self.spare()
        self.writes()
        self.kill(self.rank(1))
        self.trains(attempt=2)
        assert self.writes() == []
        pod = self.placed(2)[-1]
        uid = self.pods()[pod]["metadata"]["uid"]
        self.server.control("kill-pod", pod=pod)
        self.trains(attempt=3)
        placed = self.placed(3)
        if self.kind in SAME_NAME:  # the next pod, which may have its place before the spare has
            assert spare in placed or pod in placed
        else:
            assert spare in placed and pod not in placed
        wait_for(
            lambda: f"the end of pod {pod}:\n{self.said()}",
            lambda: uid not in {one["metadata"]["uid"] for one in self.pods().values()},
            LONG_S,
        )

    def ends_with_success(self, run):
        """Ends the training; `holdfast run` reports that."""
        self.go()
        assert run.code(LONG_S) == 0, self.said()

    # The cluster ------------------------------------------------------------------------------------------

    def pods(self, role="worker"):
        """The pods of the job that have not ended, by name."""
        found = self.server.items("pods", f"holdfast.dev/job=t,holdfast.dev/role={role}")
        alive = [pod for pod in found if pod["status"]["phase"] in ("Pending", "Running")]
        return {pod["metadata"]["name"]: pod for pod in alive if "deletionTimestamp" not in pod["metadata"]}

    def node_of(self, pod):
        return self.pods()[pod]["spec"]["nodeName"]

    def controller(self):
        (name,) = self.pods("controller")
        return name

    def owner(self):
        return self.server.get(OWNERS[self.kind].path("default", "t"))

    def has_ended_as(self, condition):
        """Waits for this condition of the Job."""

        def found():
            conditions = self.owner()["status"].get("conditions", ())
            return any(one["type"] == condition and one["status"] == "True" for one in conditions)

        wait_for(lambda: f"{condition} of {self.owner()['status']}", found, LONG_S)

    def owner_says(self):
        """How the owner has ended, by the parser of the engine."""
        return owner_of(json.dumps(self.owner()).encode()).over

    def owner_ends(self, outcome):
        """Waits until the owner has ended so and no pod of the job is left."""

        def state():
            pods = self.server.items("pods", "holdfast.dev/job=t")
            troubles = self.server.control("failed")
            errors = (self.server.folder / "server.err").read_text()
            return f"{self.owner()}\n{pods}\n{troubles}\n{errors}\n{self.said()}"

        wait_for(
            lambda: f"the owner {outcome}:\n{state()}", lambda: self.owner_says() == outcome, OWNER_ENDS_S
        )
        wait_for(lambda: f"no pod:\n{state()}", lambda: not self.pods(), OWNER_ENDS_S)

    def job(self, name="t"):
        """Its folder: in the pod of the last controller that has a record, or on a claim."""
        pods = (self.path / "cluster" / "pods").glob(
            f"{name}-controller-*/volumes/holdfast-state/jobs/{name}/journal.db"
        )
        claims = (self.path / "cluster" / "claims").glob(f"*/jobs/{name}/journal.db")
        found = sorted([*pods, *claims], key=lambda path: path.stat().st_ctime)
        return found[-1].parent if found else self.path / "nothing"

    def watches(self):
        return self.server.control("counts")["watch pods"]

    def writes(self):
        """What was written to the cluster since the last call, without Leases."""
        return [one for one in self.server.control("writes") if one[1] != "leases"]

    def spare(self):
        placed = self.placed()
        (one,) = set(self.pods()) - set(placed)
        return one

    def has_said(self, words):
        """Whether a pod wrote these words, however much was written since."""
        return any(words in text for text in self._logs().values())

    def _logs(self):
        logs = sorted((self.path / "cluster" / "pods").glob("*/log"))
        return {log.parent.name: log.read_text(errors="replace") for log in logs}

    def said(self):
        parts = [f"--- {name}\n{text[-4000:]}" for name, text in self._logs().items()]
        return "\n".join([*(f"--- {run._err.name}\n{run.err}" for run in self.runs), *parts])

    def end(self):
        try:
            self.server.close()
            for pid in self.left():
                with suppress(ProcessLookupError):  # it has ended meanwhile
                    os.kill(pid, signal.SIGCONT)
        finally:
            super(WholeJob, self).end()
