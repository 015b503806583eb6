"""Starts the agent of each node as a Slurm step of its own, so that a crashed node affects no other.

A step over all nodes ends whole when the connection to one of them breaks, even under --no-kill. What runs in the
step is a shell that starts the agent again when something kills it: the step lives on, and with it the training.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.engines.nodes import JobPlace

STEP_NAME = "holdfast-agent"
# -P: a module of the user's folder is not taken for one of ours.
AGENT = (sys.executable, "-P", "-m", "holdfast", "agent")
# Signals of Slurm go to every process of the step: the shell stays for its agent, which acts on them.
# What is said there is written there: by way of srun it would be lost with srun's node.
KEEPER = """
stop=; kept=0; log=$1; shift
if { true >> "$log"; } 2>/dev/null; then exec >> "$log" 2>&1; fi
trap 'stop=1' TERM INT HUP
trap : USR1 USR2 CONT
while :; do
  "$@"; code=$?
  if [ -n "$stop" ] || [ "$code" -lt 128 ] || [ "$kept" -ge 20 ]; then exit "$code"; fi
  kept=$((kept + 1)); sleep 0.2
done
"""


def keeper_words(node: str, name: str, words: Sequence[str], log: Path, *, binds: bool = True) -> list[str]:
    """The command that starts a step of this name, in which `words` are kept running and `log` is written.

    All memory, cores and devices that the job has on the node are its. `binds`: the cluster binds tasks to cores, which
    one task for the whole node must not be.
    """
    flags = [
        "--overlap",
        "--mem=0",
        "--nodes=1",
        "--ntasks=1",
        "--ntasks-per-node=1",
        f"--nodelist={node}",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        *(["--cpu-bind=none"] if binds else []),
        "--mpi=none",
        "--input=none",
        "--quiet",
        f"--job-name={name}",
    ]
    return ["srun", *flags, "sh", "-c", KEEPER, "holdfast-keeper", str(log), *words]


class AgentStep:
    """One srun. It outlives this process, and the step outlives it: srun is needed to start one, and to hear its end.

    `log`: of what srun itself has to say.
    """

    def __init__(self, node: str, words: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.node = node
        with log.open("ab") as said:
            self.process = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=dict(env),
                start_new_session=True,
            )

    def code(self) -> int | None:
        """None while it runs; -N: srun itself was killed by signal N, which says nothing of the step."""
        return self.process.poll()

    def end(self) -> None:
        """Slurm passes it on to all that runs in the step."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGTERM)


def environment(env: Mapping[str, str], node: str, place: JobPlace) -> dict[str, str]:
    """What the agent finds; `env` is already plain."""
    return {
        **env,
        "HOLDFAST_JOB_FOLDER": str(place.folder),
        "HOLDFAST_CONTROLLER": ",".join(place.addresses),
        "HOLDFAST_SECRET_FILE": str(place.secret_file),
        "HOLDFAST_LINK_FINGERPRINT": place.fingerprint,
        "HOLDFAST_NODE": node,
    }
