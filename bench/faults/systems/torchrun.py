"""Starts PyTorch's own elastic launcher, and reads the failures that it logs."""

from bench.faults.systems.base import OWN_STORE, RESTARTS, System, said
from bench.job.trial import torchrun

ONCE = ("--max-restarts", "0")


def system(ranks: int) -> System:
    command = [*torchrun(ranks), *RESTARTS]
    return System(name="torchrun", command=lambda _: command, found=said, env=OWN_STORE)


def once(ranks: int) -> System:
    """It restarts nothing: its logs are those of jobs that failed."""
    command = [*torchrun(ranks), *ONCE]
    return System(name="torchrun-once", command=lambda _: command, found=said, env=OWN_STORE)
