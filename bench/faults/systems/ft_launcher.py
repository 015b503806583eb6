"""Starts NVIDIA's launcher of nvidia-resiliency-ext, without its client in the training, and reads its log."""

from bench.faults.systems.base import OWN_STORE, RESTARTS, System, own_environment, said

PACKAGES = ("nvidia-resiliency-ext==0.4.1", "defusedxml")


def system(ranks: int) -> System:
    """raises: NotHere"""
    program = own_environment("ft_launcher", PACKAGES, "ft_launcher")
    flags = ("--standalone", "--ignore-missing-fault-tol-cfg", "--nproc-per-node", str(ranks))
    command = [str(program), *flags, *RESTARTS]
    return System(name="ft_launcher", command=lambda _: command, found=said, env=OWN_STORE)
