"""A job on Kubernetes, seen from outside: what the benches start, strike and measure.

The API server, its controllers and its kubelets are those of tests/kubernetes; pods are processes of this machine, with
the lockstep training of bench/many_nodes (or PyTorch) in them.
"""

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.job.trial import Trial, holdfast_run, training
from bench.many_nodes.job import COMMANDS, RANKS, ManyJob
from holdfast.agent.launch import marked

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from kubernetes.server import Server

MARK = "BENCH_PODS"
NODES = 7
RESTARTS = ("--max-restarts", "128", "--unconditional-restart", "--replace-workers", "128")


class KubernetesJob(ManyJob):
    """A submitted job of `RANKS` workers and a spare, followed until it ends. `kind`: what owns the pods."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        steps: int,
        step_s: float = 0.02,
        kind: str = "job",
        training_kind: str = "lockstep",
        nodes: int = NODES,
        node_grace_s: float = 50.0,
    ) -> None:
        self.folder, self.state, self.kind = folder, folder / "state", kind
        self._read: dict[Path, int] = {}
        self._nodes: dict[str, str] = {}
        self._moments = []
        self.server = Server(folder / "cluster", nodes, node_grace_s)
        self._mark = {MARK: uuid.uuid4().hex}
        passed = {**self._mark, "HOLDFAST_BOOT_CHECK": "off", "XDG_CACHE_HOME": str(folder / "cache")}
        env = [word for key, value in passed.items() for word in ("--env", f"{key}={value}")]
        where = ("--engine", "kubernetes", "--kind", kind, "--image", "bench", *env, *RESTARTS)
        size = ("--job", "bench", "--nnodes", str(RANKS), "--spares", "1")
        words = training(folder, steps=steps, step_s=step_s)[1:]
        command = [*holdfast_run(self.state, *size, *where, *flags), *COMMANDS[training_kind], *words]
        self.trial = Trial(command, folder, {"KUBECONFIG": str(self.server.kubeconfig)})

    @property
    def path(self) -> Path:
        """The job's folder in the pod of its last controller."""
        found = sorted(
            (self.folder / "cluster" / "pods").glob("bench-controller-*/volumes/holdfast-state/jobs/bench"),
            key=lambda path: path.stat().st_mtime,
        )
        return found[-1] if found else self.folder / "nothing"

    def pods(self, role: str = "worker") -> dict[str, dict[str, Any]]:
        """Those that live, by name."""
        found = self.server.items("pods", f"holdfast.dev/job=bench,holdfast.dev/role={role}")
        return {
            pod["metadata"]["name"]: pod
            for pod in found
            if pod["status"]["phase"] in ("Pending", "Running") and "deletionTimestamp" not in pod["metadata"]
        }

    def see_nodes(self) -> None:
        """Keeps where the pods are, for when the API server is away."""
        self._nodes = {name: str(pod["spec"].get("nodeName", "")) for name, pod in self.pods().items()}

    def node_of(self, pod: str) -> str:
        """Returns the node of a pod as of the last see_nodes()."""
        return self._nodes[pod]

    def writes(self) -> list[list[str]]:
        """What was written to the cluster since the last call, without Leases."""
        return [one for one in self.server.control("writes") if one[1] != "leases"]

    def _environments(self) -> Iterator[tuple[int, dict[str, str]]]:
        for pid in marked(self._mark):
            try:
                pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            yield pid, dict(os.fsdecode(pair).split("=", 1) for pair in pairs if b"=" in pair)

    def left(self) -> list[str]:
        return [f"process {pid}" for pid in marked(self._mark)] + [f"pod {name}" for name in self.pods()]

    def clear(self) -> None:
        self.server.close()
        self.trial.clear()
