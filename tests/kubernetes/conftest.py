"""Jobs and servers of tests for Kubernetes."""

import pytest

from kubernetes.server import Server
from kubernetes.whole_job import KubernetesJob

HAS_FAILED = pytest.StashKey[bool]()


@pytest.fixture
def server(request, tmp_path):
    """An API server without nodes; a test may give further arguments of Server."""
    one = Server(tmp_path / "cluster", **getattr(request, "param", {}))
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        item.stash[HAS_FAILED] = True
    return report


class Lasting:
    """The job of a module's tests, until one of them has failed: what a failed test leaves is no beginning for another."""

    def __init__(self, path, cache, request):
        self.job = KubernetesJob(path, cache)
        try:
            self.job.submit_detached(**getattr(request.module, "LASTING", {}))
        except BaseException:
            self.end()
            raise

    def end(self):
        job, self.job = self.job, None
        if job is not None:
            job.end()


@pytest.fixture(scope="module")
def lasting(request, tmp_path_factory, cache_home):
    one = Lasting(tmp_path_factory.mktemp("lasting"), cache_home, request)
    yield one
    one.end()


@pytest.fixture
def running(request, lasting, tmp_path, cache_home):
    """A job that trains on all its workers and has its spare. It has no follower, and the test leaves it so.

    All tests of a module have the same one, submitted as its LASTING says, and each sees it as if it had begun with the test: the attempt that runs then
    is attempt 1. A test that lets it end should be the last. Each other one makes the job start another attempt last, or does nothing that a journal would show.
    """
    mine = lasting if lasting.job else Lasting(tmp_path, cache_home, request)
    has_begun = False
    try:
        mine.job.begins_anew()
        has_begun = True
        yield mine.job
    finally:
        failed = not has_begun or request.node.stash.get(HAS_FAILED, False)
        if mine is not lasting or failed or mine.job.may_end:
            mine.end()
