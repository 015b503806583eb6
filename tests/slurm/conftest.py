"""One Slurm cluster for all tests of a process; whole and idle again after each of them."""

import itertools
import os

import pytest

from slurm.cluster import Cluster
from slurm.kit import Batch
from slurm.machine import missing


@pytest.fixture(scope="session")
def mini_slurm():
    """The cluster itself; skips where Slurm is not installed."""
    if lacking := missing():
        pytest.skip(f"no Slurm here ({', '.join(lacking)} missing): make slurm, as root, installs it")
    cluster = Cluster()
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def cluster(mini_slurm):
    yield mini_slurm
    mini_slurm.restore()


@pytest.fixture
def hosts(cluster):
    """The cluster, where its nodes have namespaces of their own: they can crash and lose their link."""
    if not cluster.namespaces:
        pytest.skip("namespaces are forbidden here: no node can crash, be cut off or have another user's job")
    return cluster


_numbers = itertools.count(1)


@pytest.fixture
def batch(cluster):
    """batch(nodes, …): a job in whose batch step the engine runs (driver.py)."""
    begun = []

    def start(nodes=4, *flags, user="", no_kill=True):
        folder = cluster.shared / f"job-{os.getpid()}-{next(_numbers)}"
        folder.mkdir()
        folder.chmod(0o777)
        begun.append(Batch(cluster, folder, nodes, flags, user, no_kill))
        return begun[-1]

    yield start
    for one in begun:
        one.cancel()
