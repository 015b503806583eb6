"""A whole job at the mini cluster: `holdfast run` on the login node or in a batch script, and faults for it."""

import sys
from pathlib import Path

from many.whole_job import LONG_S, TRAINING, WholeJob, words_of
from run.place import HOLDFAST, wait_for


class SlurmJob(WholeJob):
    """A place whose commands run on the cluster's login node."""

    def __init__(self, cluster, path, cache):
        super().__init__(path, cache)
        self.cluster = cluster
        self.env |= {
            "SLURM_CONF": cluster.env["SLURM_CONF"],
            "PATH": cluster.env["PATH"],
            "LC_ALL": "C.UTF-8",
        }
        del self.env["HOLDFAST_HOSTS"]
        self.env["HOLDFAST_TROUBLESHOOT_WAIT"] = "0s"

    @property
    def login(self):
        return [
            word if word != f"--chdir={self.cluster.shared}" else f"--chdir={self.path}"
            for word in self.cluster.words("ctl")
        ]

    def submit(self, *flags, workers=4, spares=1, ranks=1, **more):
        """`holdfast run --engine slurm` of the small training, followed."""
        self.workers = workers
        words = (
            "--engine",
            "slurm",
            "--nnodes",
            workers,
            "--spares",
            spares,
            "--sbatch-arg=--mem=2000",
            *flags,
        )
        return self.run(*words, "--", sys.executable, "-S", TRAINING, ranks, prefix=self.login, **more)

    def script(self, nodes, *words, flags=()):
        """A user's own batch script, submitted; its Slurm id."""
        script = self.path / "own.sh"
        line = " ".join(map(str, words))
        script.write_text(f"#!/bin/sh\ncd {self.path}\n{HOLDFAST} {line}\n")
        self.slurm = self.cluster.ctl(
            "sbatch",
            "--parsable",
            f"--nodes={nodes}",
            "--exclusive",
            "--open-mode=append",
            f"--output={self.path}/own.out",
            *flags,
            script,
            **{key: value for key, value in self.env.items() if key not in ("PATH", "SLURM_CONF", "LC_ALL")},
        )
        return self.slurm

    def slurm_id(self):
        """Of the job that `holdfast run` has submitted."""
        path = self.state / "slurm" / "t" / "id"
        wait_for(lambda: f"a Slurm job:\n{self.said()}", path.exists, LONG_S)
        return path.read_text().strip()

    def field(self, name):
        text = self.cluster.ctl("scontrol", "--oneliner", "show", "job", self.slurm_id())
        return next((word.partition("=")[2] for word in text.split() if word.startswith(f"{name}=")), "")

    def number(self, worker, attempt=1):
        """The node of a worker, as the cluster counts them."""
        return int(self.placed(attempt)[worker][1:])

    def controller(self):
        """The process of the job's controller, by its number on this machine."""
        return wait_for(lambda: f"a controller:\n{self.said()}", self._controller, LONG_S)

    def _controller(self):
        for pid in self.left():
            inside = any(word.startswith(b"SLURM_JOB_ID=") for word in words_of(pid, "environ"))
            if inside and words_of(pid, "cmdline")[1:6] == [b"-P", b"-m", b"holdfast", b"run", b"--engine"]:
                return pid
        return None

    def inner(self, run):
        """The process of a `holdfast` that was started on the login node, by its number on this machine."""
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        return wait_for("the command inside", lambda: [int(pid) for pid in children.read_text().split()])[0]

    def ended(self, name):
        return not self.cluster.ctl("squeue", "-h", "-j", self.slurm, check=False)

    def said(self):
        logs = [
            *(self.state / "slurm").glob("*/err"),
            self.path / "own.out",
            *self.job().glob("nodes/*/deputy.log"),
        ]
        texts = [f"--- {log}\n{log.read_text()}" for log in logs if log.exists()]
        return "\n".join([super().said(), *texts, self.cluster.said()])

    def trains_again(self):
        """The first attempt after attempt 1 that trains.

        Where one of two nodes is seen to be lost after the other, an attempt may have begun to start there.
        """
        found = (2, 3, 4)
        return wait_for(
            self.said, lambda: next((number for number in found if self.steps(number) > 0), None), LONG_S
        )

    def agents_said(self, word):
        """How many nodes' agents have said it."""
        logs = (self.job() / "nodes").glob("*/agent.log")
        return sum(word in log.read_text() for log in logs)

    def deputy_said(self):
        return "".join(log.read_text() for log in self.job().glob("nodes/*/deputy.log"))

    def end(self):
        try:
            self.cluster.restore()
        finally:
            super(WholeJob, self).end()
