"""Starts DLRover's launcher with its local master, and reads the failures that its agent logs."""

from pathlib import Path

from bench.faults.systems.base import OWN_STORE, RESTARTS, System, own_environment, said

PACKAGES = (
    "dlrover==0.6.1",
    "grpcio",
    "protobuf",
    "deprecated",
    "wrapt",
    "pynvml",
    "nvidia-ml-py",
    *("requests", "urllib3", "idna", "charset-normalizer", "certifi"),
    # Its master imports the client of Kubernetes, whatever it runs on.
    *(
        "kubernetes",
        "python-dateutil",
        "pyyaml",
        "six",
        "websocket-client",
        "oauthlib",
        "requests-oauthlib",
        "durationpy",
    ),
)
JOB = Path(__file__).parents[1] / "dlrover_job.py"


def system(ranks: int) -> System:
    """raises: NotHere"""
    program = own_environment("dlrover", PACKAGES, "dlrover-run")
    job = [str(program.with_name("python")), str(JOB)]
    command = [*job, str(program), "--standalone", "--nproc-per-node", str(ranks), *RESTARTS]
    return System(name="dlrover", command=lambda _: command, found=said, env=OWN_STORE)
