"""Jobs and servers of tests for Kubernetes."""

import pytest

from kubernetes.server import Server
from kubernetes.whole_job import KubernetesJob


@pytest.fixture
def server(tmp_path):
    """An API server without nodes."""
    one = Server(tmp_path / "cluster")
    yield one
    troubles = one.control("failed")
    one.close()
    assert not troubles


@pytest.fixture
def job(request, tmp_path, cache_home):
    """A job on a cluster of its own; a test may give further arguments of KubernetesJob."""
    one = KubernetesJob(tmp_path, cache_home, **getattr(request, "param", {}))
    yield one
    one.end()
