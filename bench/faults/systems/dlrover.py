"""Starts DLRover's launcher with its local master, and reads the failures that its agent logs."""

from bench.faults.systems.base import OWN_STORE, RESTARTS, System, own_environment, said

PACKAGES = (
    "dlrover==0.6.1",
    "grpcio",
    "protobuf",
    "deprecated",
    "wrapt",
    "pynvml",
    "nvidia-ml-py",
    "requests",
)


def system(ranks: int) -> System:
    """raises: NotHere"""
    program = own_environment("dlrover", PACKAGES, "dlrover-run")
    command = [str(program), "--standalone", "--nproc-per-node", str(ranks), *RESTARTS]
    return System(name="dlrover", command=lambda _: command, found=said, env=OWN_STORE)
