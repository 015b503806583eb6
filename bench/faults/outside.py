"""Makes the faults that need more than the training: a disk of its own, dropped packets, a killed supervisor.

Each has a place: it is prepared before the run, strikes when the training says so, and is taken away afterwards.
Disks and packets need root; `absent` lists the kinds that this machine does not allow.
"""

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import psutil

from bench.faults.kinds import KINDS
from bench.hang.places import Disk, NotHere, tried
from bench.job.trial import Trial

TROUBLE_S = 3.0
LEFT_BYTES = 64 << 10  # on a full disk: less than a checkpoint
TRIES, TRY_S = 100, 0.02


class Place:
    """Nothing around the run. `heal` ends what `strike` began."""

    heal_after_s: float | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Self:
        return self

    def checkpoint(self) -> Path | None:
        return None

    def strike(self, trial: Trial) -> None:
        pass

    def heal(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.heal()


class OnDisk(Place):
    """The checkpoints are on a disk of their own (ext4 on a loop device)."""

    heal_after_s = TROUBLE_S

    def __enter__(self) -> Self:
        self._disk = Disk(self.folder)
        self._disk.__enter__()
        self.path = self._disk.path
        return self

    def checkpoint(self) -> Path:
        return self.path / "checkpoint.pt"

    def __exit__(self, *given: object) -> None:
        self.heal()
        self._disk.__exit__(*given)


class FullDisk(OnDisk):
    def strike(self, trial: Trial) -> None:
        stat = os.statvfs(self.path)
        with (self.path / "other.bin").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, stat.f_bavail * stat.f_frsize - LEFT_BYTES)
        filled = self.path / "rest.bin"
        with filled.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass  # full: root's reserve included

    def heal(self) -> None:
        for name in ("other.bin", "rest.bin"):
            (self.path / name).unlink(missing_ok=True)


class ReadOnlyDisk(OnDisk):
    def strike(self, trial: Trial) -> None:
        _remount(self.path, "ro")

    def heal(self) -> None:
        _remount(self.path, "rw")


def _remount(path: Path, mode: str) -> None:
    for number in range(TRIES):
        try:
            return tried(["mount", "-o", f"remount,{mode}", str(path)])
        except NotHere:  # a file is open for writing: a checkpoint is being saved
            if number == TRIES - 1:
                raise
            time.sleep(TRY_S)


class SlowDisk(OnDisk):
    def strike(self, trial: Trial) -> None:
        tried(["fsfreeze", "--freeze", str(self.path)])

    def heal(self) -> None:
        self._disk.heal()


class DroppedPackets(Place):
    """Drops what travels on the TCP connections of the struck rank, by both their ports; they stay open."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._rules: list[list[str]] = []

    def strike(self, trial: Trial) -> None:
        struck = next(moment for moment in trial.moments() if moment.kind == "struck")
        for one in psutil.Process(struck.pid).net_connections(kind="tcp"):
            if one.status == psutil.CONN_ESTABLISHED and one.raddr:
                for program in ("iptables", "ip6tables"):
                    for here, there in ((one.laddr.port, one.raddr.port), (one.raddr.port, one.laddr.port)):
                        self._drop(program, here, there)

    def _drop(self, program: str, here: int, there: int) -> None:
        ports = ["-p", "tcp", "--sport", str(here), "--dport", str(there), "-j", "DROP"]
        tried([program, "-w", "-I", "INPUT", *ports])
        self._rules.append([program, "-w", "-D", "INPUT", *ports])

    def heal(self) -> None:
        while self._rules:
            subprocess.run(self._rules.pop(), check=False, capture_output=True)


class KilledSupervisor(Place):
    def strike(self, trial: Trial) -> None:
        trial.process.kill()


PLACES: dict[str, type[Place]] = {
    "disk-full": FullDisk,
    "disk-read-only": ReadOnlyDisk,
    "disk-slow": SlowDisk,
    "drop": DroppedPackets,
    "supervisor": KilledSupervisor,
}


def place(where: str, folder: Path) -> Place:
    return PLACES.get(where, Place)(folder)


def absent() -> dict[str, str]:
    """Returns the kinds that this machine does not allow, each with the reason."""
    disk, packets = _disk_missing(), _packets_missing()
    reasons = {kind.name: disk for kind in KINDS if kind.where.startswith("disk-")} | {"drop": packets}
    return {name: reason for name, reason in reasons.items() if reason}


def _disk_missing() -> str:
    folder = Path(tempfile.mkdtemp(prefix="faults-disk-"))
    try:
        with ExitStack() as stack:
            stack.enter_context(Disk(folder))
        return ""
    except NotHere as error:
        return str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _packets_missing() -> str:
    try:
        for program in ("iptables", "ip6tables"):
            tried([program, "-w", "-n", "-L", "INPUT"])
    except NotHere as error:
        return str(error)
    return "" if os.geteuid() == 0 else "iptables needs root"
