"""Starts PyTorch's own elastic launcher, and reads the failures that it logs."""

from bench.faults.systems.base import OWN_STORE, RESTARTS, System, said
from bench.job.trial import torchrun


def system(ranks: int) -> System:
    command = [*torchrun(ranks), *RESTARTS]
    return System(name="torchrun", command=lambda _: command, found=said, env=OWN_STORE)
