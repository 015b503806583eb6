"""A job of the mini cluster whose batch step is the engine under test."""

import json
import re
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
WAIT_S = 120.0


def wait_for(what, is_true, wait_s=WAIT_S):
    """The first truthy answer of `is_true`."""
    until_s = time.monotonic() + wait_s
    while not (answer := is_true()):
        assert time.monotonic() < until_s, f"waited {wait_s:g} s for {what() if callable(what) else what}"
        time.sleep(0.02)
    return answer


class Batch:
    """Submitted at once. `news`: what the engine said, as (seconds since 1970, kind, fields)."""

    def __init__(self, cluster, folder, nodes, flags, user, no_kill):
        self.cluster, self.folder, self.user = cluster, folder, user
        script = folder / "batch.sh"
        driver = f"{sys.executable} -B {HERE / 'driver.py'} {folder} {'--no-kill' if no_kill else ''}"
        script.write_text(f"#!/bin/sh\necho $SLURM_RESTART_COUNT >> {folder}/starts\nexec {driver}\n")
        words = ["sbatch", "--parsable", f"--nodes={nodes}", "--exclusive", "--requeue", "--open-mode=append"]
        if nodes < cluster.count:  # always the same ones
            words += [f"--nodelist=n[1-{nodes}]"]
        words += [f"--output={folder}/out", *(["--no-kill"] if no_kill else []), *flags, script]
        self.id = cluster.ctl(*words, user=user).strip()

    @property
    def news(self):
        path = self.folder / "news"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [line.split(" ", 2) for line in lines if line.count(" ") >= 2]
        return [(float(at), kind, json.loads(fields)) for at, kind, fields in rows]

    def heard(self, kind, wait_s=WAIT_S, *, ask="", **fields):
        """The first news of this kind that has these fields; waits for it. A text may be a part of the field's.

        `ask`: a node that is asked about until then, each second as the controller does: one answer may be of the moment before.
        """
        asked_s = 0.0

        def found():
            nonlocal asked_s
            if ask and time.monotonic() > asked_s + 1.0:
                asked_s = time.monotonic()
                self.tell("ask", ask)
            for at_s, what, said in self.news:
                if what == kind and all(value in said[key] for key, value in fields.items()):
                    return at_s, said
            return None

        return wait_for(lambda: f"{kind} {fields} in:\n{self.said()}", found, wait_s)

    def said(self):
        out = self.folder / "out"
        return "\n".join([*map(str, self.news), out.read_text() if out.exists() else ""])

    def tell(self, *words):
        with (self.folder / "commands").open("a") as commands:
            commands.write(" ".join(map(str, words)) + "\n")

    def agents(self, node):
        """The pids, in their node, of all agents that were started there."""
        path = self.folder / f"agents-{node}"
        return path.read_text().split() if path.exists() else []

    def up(self, nodes):
        """Waits until agents run on these nodes."""
        wait_for(
            lambda: f"agents on {nodes}:\n{self.said()}", lambda: all(self.agents(node) for node in nodes)
        )
        return self

    def field(self, name):
        """Of `scontrol show job`."""
        text = self.cluster.ctl("scontrol", "--oneliner", "show", "job", self.id)
        found = re.search(rf"\b{name}=(\S*)", text)
        return found[1] if found else ""

    def starts(self):
        """How often the batch script has begun."""
        path = self.folder / "starts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def cancel(self):
        self.cluster.ctl("scancel", self.id, check=False)
