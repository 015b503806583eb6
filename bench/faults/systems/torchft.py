"""Starts the training with torchft's manager in each step: a replica group for each rank, and a lighthouse.

torchft is a library of the training, not a launcher: bench/faults/torchft_training.py is the training of the other systems
with its manager, and bench/faults/torchft_job.py starts torchrun for each replica group, as a scheduler would. A replica
group that is lost is left out until it is back (`min_replica_size` 1), so that the result differs from the undisturbed run.
"""

import re
from pathlib import Path

from bench.faults.systems.base import Found, System, failure_in, own_environment
from bench.job.trial import Trial

TELEMETRY, BETA = "1.45.2", "0.66b2"  # torchft imports it, whether it reports or not
PACKAGES = (
    "torchft==0.2.0",
    *(f"opentelemetry-{name}=={TELEMETRY}" for name in ("api", "sdk", "proto")),
    *(f"opentelemetry-exporter-otlp-proto-{name}=={TELEMETRY}" for name in ("http", "common")),
    *(f"opentelemetry-{name}=={BETA}" for name in ("semantic-conventions", "exporter-otlp-common")),
    f"opentelemetry-exporter-http-transport=={BETA}",
    *("googleapis-common-protos", "protobuf", "requests", "urllib3", "idna", "charset-normalizer", "certifi"),
)
JOB = Path(__file__).parents[1] / "torchft_job.py"
GROUP = re.compile(r"\[replica (\d+)\] ")


def system(ranks: int) -> System:
    """raises: NotHere"""
    program = own_environment("torchft", PACKAGES, "torchft_lighthouse")
    command = [str(program.with_name("python")), str(JOB), str(ranks)]
    return System(name="torchft", command=lambda _: command, found=said)


def said(trial: Trial) -> list[Found]:
    """Returns the failures that the launchers of the replica groups log; each group has one rank, of its number."""
    found = []
    for at_s, line in trial.lines:
        group, one = GROUP.match(line), failure_in(at_s, line)
        if group and one:
            found.append(Found(one.at_s, (int(group[1]),), one.category))
    return found
