"""For all tests: golden files, what is compiled once for all, and a check that no child process is left behind."""

import fcntl
import gc
import importlib.util
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest

from holdfast.observe.search.automaton import engine
from holdfast.observe.search.signature_store import package_signatures
from holdfast.parsers.signature_files import SignatureError
from run.place import Place

GOLDEN = Path(__file__).parent / "golden"
CACHE_HOME = Path(__file__).parent.parent / ".pytest_cache" / "home"
CHILD_ENDS_S = 100.0  # a guard, for a busy machine
# Each of these takes more than 7 s of CPU or 14 s; the longest first, so that no worker of xdist is left with one at the end.
LONG_FILES = (
    "slurm/test_run.py",
    "kubernetes/test_run.py",
    "run/watch/test_hang.py",
    "kubernetes/wrap/test_wrapped_jobs.py",
    "many/test_whole_jobs.py",
    "many/agent/test_torch.py",
    "shim/test_join.py",
    "run/test_zygote.py",
    "web/page/test_views.py",
    "kubernetes/test_kinds.py",
    "kubernetes/test_whole_job.py",
    "kubernetes/test_renewal.py",
    "slurm/test_engine.py",
    "many/agent/test_agent.py",
    "web/page/test_hostile.py",
    "checks/bench/test_gpu_bench.py",
    "faults/test_round.py",
    "run/test_checks.py",
    "run/watch/test_steps.py",
    "run/checkpoints/test_ram_checkpoints.py",
    "web/page/test_actions.py",
    "metrics/test_server.py",
    "shim/test_deterministic.py",
    "shim/test_zygote.py",
    "metrics/test_rules.py",
    "kubernetes/test_kueue.py",
    "run/test_failures.py",
    "web/test_actions.py",
    "web/page/test_output.py",
    "run/test_holdfast_dies.py",
    "many/test_exec.py",
    "kubernetes/test_trainer_status.py",
    "kubernetes/test_remote.py",
    "web/test_bad_input.py",
    "web/page/test_state.py",
    "archive/index/test_following.py",
    "many/agent/test_evidence.py",
    "metrics/test_lint.py",
    "checks/host/test_node_matrix.py",
    "slurm/test_exec.py",
    "checks/bench/test_burn.py",
    "web/test_access.py",
    "checks/pairs/test_pair_run.py",
    "kubernetes/test_apiserver.py",
    "checks/gpu/test_matrix.py",
    "signatures/test_rules.py",
    "web/test_live.py",
    "web/page/test_real_server.py",
    "web/test_job_page.py",
    "run/test_signals.py",
    "many/agent/test_alone.py",
    "many/test_isolated_nodes.py",
    "many/test_stragglers.py",
    "checks/gpu/test_nvml_trouble.py",
    "archive/index/test_trouble.py",
)
# No example has a time limit, and each run tries the same ones: what a test says is to depend on the code alone, not
# on how busy the machine is, nor on dice. `pytest --hypothesis-profile=default` throws them anew.
hypothesis.settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("steady")
# Each is started once and kept until the end: two of Python's own, by multiprocessing, and the one that forks `holdfast`.
HOUSEKEEPERS = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver", b"tests/forked/server.py")


def pytest_configure() -> None:
    """Collects no garbage until all tests are imported: what is made until then stays to the end.

    A shell's background jobs begin with SIGINT and SIGQUIT ignored, under nohup SIGHUP too, and children
    inherit that: the tests' processes are to begin as they would at a prompt."""
    gc.disable()
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {Path(__file__).parent / name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: place.get(item.path, len(place)))
    if importlib.util.find_spec("torch") is None:  # to import it would cost each worker of xdist two seconds
        skipped = pytest.mark.skip(reason="torch is not installed (the demo extra)")
        for item in items:
            if item.get_closest_marker("torch"):
                item.add_marker(skipped)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="rewrite golden files; then read the diff")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str | Path, str], None]:
    """golden("name.txt", text): `text` is what the file in tests/golden says."""

    def check(name: str | Path, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; write it with pytest --golden"
        assert text == path.read_text(), (
            f"{path} differs; if you meant it: pytest --golden, and read the diff"
        )

    return check


@pytest.fixture(scope="session")
def cache_home() -> Path:
    """An XDG_CACHE_HOME that holds the package's signatures, compiled: once for all tests and workers of xdist.

    Without it each process compiles them beside its training for seconds, and is over before it has kept them.
    """
    return CACHE_HOME


@pytest.fixture
def runs(tmp_path: Path, cache_home: Path) -> Iterator[Place]:
    """A place to run jobs in; what still runs there is ended with the test."""
    one = Place(tmp_path, cache_home)
    yield one
    one.end()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compiles the signatures, before the clock of a test runs."""
    gc.freeze()
    gc.enable()
    if not any("cache_home" in getattr(item, "fixturenames", ()) for item in session.items):
        return
    with suppress(OSError, SignatureError):  # those who use it say better what is wrong
        CACHE_HOME.mkdir(parents=True, exist_ok=True)
        with (CACHE_HOME / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            engine(package_signatures(CACHE_HOME / "holdfast"), CACHE_HOME / "holdfast")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a failed test held open ends with it. Its traceback holds the test's variables until the next test
    begins: that one would be told of files that were not closed, and fail too."""
    report = yield
    if report.failed and not item.config.getoption("usepdb"):
        call.excinfo = None
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            sys.__dict__.pop(name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return report


@pytest.fixture(autouse=True)
def no_child_left() -> Iterator[None]:
    """Fails a test that leaves a process running which it started itself."""
    before = _children()
    yield
    until_s = time.monotonic() + CHILD_ENDS_S
    while (left := _children() - before) and time.monotonic() < until_s:
        time.sleep(0.02)
    assert not left, f"the test left processes behind: {[_command(pid) for pid in left]}"


def _children() -> set[int]:
    """The direct children of this process; a zombie does not count, and neither do Python's housekeepers."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):  # twice for each test: without the cost of paths
        try:
            with open(f"/proc/self/task/{thread}/children", "rb", buffering=0) as listing:
                found.update(map(int, listing.read().split()))
        except OSError:
            continue  # the thread has just ended
    return {pid for pid in found if _lives(pid) and not any(name in _command(pid) for name in HOUSEKEEPERS)}


def _lives(pid: int) -> bool:
    """Not by its command line: that is empty for a zombie, and for a moment while a program is being started."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


def _command(pid: int) -> bytes:
    """Its command line; empty for one that is being started, or is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
    except OSError:
        return b""
