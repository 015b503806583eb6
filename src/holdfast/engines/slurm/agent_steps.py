"""Starts the agent of each node in a Slurm step of its own, so that a crashed node affects no other.

A step over all nodes would end as a whole if the connection to one of them breaks, even under --no-kill. The
step runs a shell that restarts the agent if something kills it, so that the step and its training continue.
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
# -P: Python must not import modules from the user's folder.
AGENT = (sys.executable, "-P", "-m", "holdfast", "agent")
# Slurm signals every process of the step: the shell stays, and its agent acts on the signal.
# Output is written on the node itself: through srun it would be lost with srun's node.
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
    """Returns the srun command of a step that keeps the command `words` running and writes its output to
    `log`.

    The step may use all memory, cores and devices that the job has on the node. `binds`: the cluster binds
    tasks to cores, which must be off for one task that spans the node.
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
    """One srun process.

    It outlives this process, and its step outlives it: srun only starts the step and reports its end.

    `log`: file for srun's own output.
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
        """Returns the exit code; None while it runs; -N if srun itself was killed by signal N, which says
        nothing about the step.
        """
        return self.process.poll()

    def end(self) -> None:
        """Sends SIGTERM to srun, which Slurm forwards to all processes of the step."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGTERM)


def environment(env: Mapping[str, str], node: str, place: JobPlace) -> dict[str, str]:
    """Returns the agent's environment. `env`: the environment without variables that srun reads as flags."""
    return {
        **env,
        "HOLDFAST_JOB_FOLDER": str(place.folder),
        "HOLDFAST_CONTROLLER": ",".join(place.addresses),
        "HOLDFAST_SECRET_FILE": str(place.secret_file),
        "HOLDFAST_LINK_FINGERPRINT": place.fingerprint,
        "HOLDFAST_NODE": node,
    }
