"""Takes processor time away from one process: by a quota of a control group of its own, or by stopping it in turns."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

PERIOD_US = 100_000
TURN_S = 0.01
V1_ROOTS = ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct")
V2_ROOT = "/sys/fs/cgroup"


class NoQuota(Exception):
    """No control group with a quota can be made here; the text says what was refused."""


class CpuQuota:
    """A new group with `share` of one processor. Closing it lets all its processes go back.

    raises: NoQuota
    """

    def __init__(self, share: float) -> None:
        refused = []
        for parent, is_v2 in [*((Path(root), False) for root in V1_ROOTS), *_parents_v2()]:
            name = parent / f"holdfast-bench-{os.getpid()}-{time.monotonic_ns()}"
            try:
                _make(name, is_v2, share)
            except OSError as error:
                refused.append(f"{name}: {error.strerror or error}")
                with suppress(OSError):
                    name.rmdir()
                continue
            self.path, self._parent, self._is_v2 = name, parent, is_v2
            return
        raise NoQuota("; ".join(refused))

    def limit(self, share: float) -> None:
        """Another quota from now on. raises: OSError"""
        _limit(self.path, self._is_v2, share)

    def take(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """Processes that still live go to the group above."""
        until_s = time.monotonic() + 5.0
        while time.monotonic() < until_s:
            with suppress(OSError):
                for pid in (self.path / "cgroup.procs").read_text().split():
                    with suppress(OSError):
                        (self._parent / "cgroup.procs").write_text(pid)
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:  # busy: a process is still on its way out
                time.sleep(0.05)


class DutyCycle:
    """Stops a process again and again so that it gets `share` of a processor, as cpulimit does.

    It goes by the processor time that the process has had: where others want the processor too, it may have to wait
    for its turn, and would otherwise never move.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def limit(self, share: float) -> None:
        self._share = share

    def take(self, pid: int) -> None:
        self._thread = threading.Thread(target=self._turn, args=(pid,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _turn(self, pid: int) -> None:
        try:
            while not self._over.wait(0.002):
                had_s, begun_s = _ran_s(pid), time.monotonic()
                while _ran_s(pid) - had_s < TURN_S and not self._over.wait(0.001):
                    pass
                os.kill(pid, signal.SIGSTOP)
                self._over.wait(max(0.0, TURN_S / self._share - (time.monotonic() - begun_s)))
                os.kill(pid, signal.SIGCONT)
        except (OSError, ValueError, IndexError):  # it has ended
            return


def _ran_s(pid: int) -> float:
    """Processor time of its main thread. raises: OSError, IndexError, ValueError"""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def _make(path: Path, is_v2: bool, share: float) -> None:
    """raises: OSError"""
    path.mkdir()
    _limit(path, is_v2, share)


def _limit(path: Path, is_v2: bool, share: float) -> None:
    """raises: OSError. The kernel takes no quota below a millisecond."""
    quota_us = max(1000, round(share * PERIOD_US))
    if is_v2:
        (path / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    else:
        (path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (path / "cpu.cfs_quota_us").write_text(str(quota_us))


def _parents_v2() -> list[tuple[Path, bool]]:
    """Groups in which one with a quota may be made: the topmost, and those above this process."""
    root = Path(V2_ROOT)
    if not (root / "cgroup.controllers").exists():
        return []
    own = Path("/proc/self/cgroup").read_text().partition("0::/")[2].splitlines()[0]
    above = [root / own, *(root / own).parents]
    found = [one for one in above if one == root or root in one.parents]
    return [(one, True) for one in reversed(found) if "cpu" in _words(one / "cgroup.subtree_control")]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
