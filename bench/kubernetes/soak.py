"""Many random faults in one job on Kubernetes: does it end well, with the right result, and leave nothing behind?

Faults of ranks, pods, nodes, of the controller, and of the API server: away, slow to answer, refusing, forgetting its history,
dropping, doubling and shuffling watches. After each the job must step again. At the end: exit code 0, the result of an
undisturbed run, no pod, no process, no healthy node isolated, and each recovery within its writes.

    python -m bench.kubernetes.soak --faults 30 --seed 1 --kind jobset
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable

from bench.kubernetes.job import KubernetesJob
from bench.kubernetes.one_job import many_faults
from bench.many_nodes.job import RANKS
from bench.many_nodes.lockstep import CHECKPOINT_EVERY, next_total
from holdfast.engines.kubernetes.engine import ISOLATED
from holdfast.engines.kubernetes.names import TAINT

START_S, AGAIN_S, END_S, PODS_S = 180.0, 180.0, 120.0, 180.0
STEPS_BETWEEN = 40
WRITES_MAX = 5
AWAY_S = 20.0


class Soak:
    def __init__(self, job: KubernetesJob, chance: random.Random) -> None:
        self.job, self.chance = job, chance
        self.frozen = ""

    def victim(self) -> tuple[int, str]:
        """The process of a rank, and its pod."""
        rank = self.chance.randrange(RANKS)
        self.job.wait_for(f"rank {rank}", lambda: self._runs(rank), AGAIN_S)
        return self.job.rank(rank)

    def _runs(self, rank: int) -> bool:
        """Between two attempts it does not, and that may be just now."""
        try:
            return bool(self.job.rank(rank))
        except LookupError:
            return False

    def kill_rank(self) -> None:
        os.kill(self.victim()[0], signal.SIGKILL)

    def stop_rank(self) -> None:
        os.kill(self.victim()[0], signal.SIGSTOP)

    def kill_pod(self) -> None:
        self.job.server.control("kill-pod", pod=self.victim()[1])

    def kill_spare(self) -> None:
        used = {self.job.rank(rank)[1] for rank in range(RANKS)}
        spares = sorted(set(self.job.pods()) - used)
        if spares:
            self.job.server.control("kill-pod", pod=self.chance.choice(spares))

    def evict_pod(self) -> None:
        name = self.victim()[1]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self.job.server.client.post(f"/api/v1/namespaces/default/pods/{name}/eviction", json=body)

    def freeze_node(self) -> None:
        pod = self.victim()[1]
        self.job.see_nodes()
        self.frozen = self.job.node_of(pod)
        self.job.server.control("freeze", node=self.frozen)

    def kill_controller(self) -> None:
        for name in self.job.pods("controller"):
            self.job.server.control("kill-pod", pod=name)

    def lose_controller(self) -> None:
        """Its pod is removed by force, and its record with it: the next one has the copy of an agent."""
        for name in self.job.pods("controller"):
            path = f"/api/v1/namespaces/default/pods/{name}"
            self.job.server.delete(path, gracePeriodSeconds=0)

    def lose_server(self) -> None:
        """And a rank meanwhile."""
        self.job.server.control("faults", away=True)
        self.kill_rank()
        time.sleep(self.chance.uniform(1.0, AWAY_S))  # bench: the server is away for so long
        self.job.server.control("faults", away=False)

    def refuse(self) -> None:
        """Each next write and watch, some times, while a pod dies."""
        code = self.chance.choice((409, 429, 500, 504))
        self.job.server.control(
            "faults", rules=[{"code": code, "count": 4}, {"code": 500, "count": 2, "after": True}]
        )
        self.kill_pod()

    def forget_history(self) -> None:
        self.job.server.control("compact")
        self.job.server.control("drop")
        time.sleep(0.3)  # bench: our own requests are not to be cut
        self.kill_pod()

    def disturb_watches(self) -> None:
        self.job.server.control("faults", watch_s=0.5, doubled=True, shuffled=True)
        self.kill_pod()

    def calm(self) -> None:
        """What the next fault is to find as ever."""
        self.job.server.control("faults", watch_s=0.0, doubled=False, shuffled=False, away=False, rules=[])
        if self.frozen:
            self.job.server.control("thaw", node=self.frozen)
            self.frozen = ""


OWN_WRITES = {"evict_pod": 1, "lose_controller": 1}  # requests of the bench itself
NEW_ATTEMPT = ("kill_spare", "kill_controller", "lose_controller")  # all others cost the attempt


def main() -> int:
    return many_faults(__doc__, 30, run)


def run(job: KubernetesJob, options: argparse.Namespace) -> list[str]:
    soak = Soak(job, random.Random(options.seed))
    doing: list[Callable[[], None]] = [
        soak.kill_rank,
        soak.stop_rank,
        soak.kill_pod,
        soak.kill_spare,
        soak.evict_pod,
        soak.freeze_node,
        soak.kill_controller,
        soak.lose_controller,
        soak.lose_server,
        soak.refuse,
        soak.forget_history,
        soak.disturb_watches,
    ]
    wrong: list[str] = []
    try:
        job.wait_for("steps", lambda: job.last_step() >= STEPS_BETWEEN, START_S)
        for number in range(options.faults):
            fault = soak.chance.choice(doing)
            wrong += _one(job, soak, fault, number)
        wrong += _ended(job)
    except (TimeoutError, ChildProcessError, LookupError) as error:
        wrong.append(str(error))
        print("\n".join(line for _, line in job.trial.lines[-40:]), file=sys.stderr)
    return wrong


def _one(job: KubernetesJob, soak: Soak, fault: Callable[[], None], number: int) -> list[str]:
    job.writes()
    struck_s = time.time()
    fault()
    name = fault.__name__
    if name not in NEW_ATTEMPT:
        job.wait_for(f"steps after {name}", lambda: len(job.first_steps(struck_s)) == RANKS, AGAIN_S)
    took_s = time.time() - struck_s
    at = job.last_step()
    job.wait_for(f"more steps after {name}", lambda: job.last_step() >= at + STEPS_BETWEEN, AGAIN_S)
    soak.calm()
    job.wait_for(f"five pods after {name}", lambda: len(job.pods()) == RANKS + 1, PODS_S)
    writes = len(job.writes()) - OWN_WRITES.get(name, 0)
    print(f"{number + 1:>3} {name:<16} {took_s:6.2f} s, {writes} writes", file=sys.stderr, flush=True)
    return [f"{name}: {writes} writes"] if writes > WRITES_MAX and name != "refuse" else []


def _ended(job: KubernetesJob) -> list[str]:
    wrong = []
    last = (job.last_step() // CHECKPOINT_EVERY + 20) * CHECKPOINT_EVERY
    (job.folder / "last-step").write_text(str(last))
    if not job.trial.wait(END_S):
        return [f"the job did not end within {END_S:.0f} s"]
    if job.trial.process.returncode != 0:
        wrong.append(f"it ended with {job.trial.process.returncode}")
    total = 1
    for step in range(1, last + 1):
        total = next_total(total, step)
    result = json.loads((job.folder / "result.json").read_text())
    if (result["step"], result["loss"]) != (last, float(total)):
        wrong.append(f"the result is {result}, not step {last} and {total}")
    nodes = job.server.get("/api/v1/nodes")["items"]
    taints = [one["key"] for node in nodes for one in (node.get("spec") or {}).get("taints", ())]
    if TAINT in taints or (job.path / ISOLATED).exists():  # a lost pod is set aside, its node is not
        wrong.append("a healthy node was isolated")
    until_s = time.time() + END_S
    while job.left() and time.time() < until_s:
        time.sleep(0.2)
    return [*wrong, *job.left(), *job.server.control("failed")]


if __name__ == "__main__":
    sys.exit(main())
