"""Where the hang bench puts a training that needs more than a folder: a disk to freeze, two hosts and a link.

Both need root. Each is a context manager, and takes away what it made, thawed and connected first.
"""

import itertools
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

BIN = Path(sys.executable).parent
DISK_MIB = 64
TRIES, TRY_S = 50, 0.1
_numbers = itertools.count()


class NotHere(Exception):
    """This machine cannot give it; the text says why."""


class Disk:
    """An ext4 file system of its own, in a file of `folder`. `path`: where it is mounted."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "disk"
        self._image = folder / "disk.img"

    def __enter__(self) -> Self:
        """raises: NotHere"""
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(DISK_MIB << 20)
        tried(["mkfs.ext4", "-q", str(self._image)])
        tried(["mount", "-o", "loop", str(self._image), str(self.path)])
        return self

    def heal(self) -> None:
        """Thaws it, so that who waits for it in state D can end. A disk that is not frozen stays as it is."""
        subprocess.run(["fsfreeze", "--unfreeze", str(self.path)], check=False, capture_output=True)

    def __exit__(self, *_: object) -> None:
        self.heal()
        for _try in range(TRIES):
            if not subprocess.run(["umount", str(self.path)], check=False, capture_output=True).returncode:
                return
            time.sleep(TRY_S)


class Hosts:
    """Two network namespaces with one link between them; a torchrun in each, half of the ranks each."""

    def __init__(self) -> None:
        number = next(_numbers)  # a device's name has 15 letters at most
        self.names = tuple(f"hang-{os.getpid()}-{number}{end}" for end in "ab")
        self._devices = tuple(f"hg{os.getpid()}-{number}{end}" for end in "ab")

    def __enter__(self) -> Self:
        """raises: NotHere"""
        try:
            for name in self.names:
                tried(["ip", "netns", "add", name])
            (one, other), (here, there) = self.names, self._devices
            ends = [here, "netns", one, "type", "veth", "peer", "name", there, "netns", other]
            tried(["ip", "link", "add", *ends])
            for number, (name, device) in enumerate(zip(self.names, self._devices, strict=True), 1):
                tried(["ip", "-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", device])
                for link in (device, "lo"):
                    tried(["ip", "-n", name, "link", "set", link, "up"])
        except NotHere:
            self.__exit__()
            raise
        return self

    def command(self, ranks: int, training: Sequence[str]) -> list[str]:
        """Both launchers under one shell, which ends as soon as one of them does."""
        words = []
        for number, (name, device) in enumerate(zip(self.names, self._devices, strict=True)):
            torchrun = [str(BIN / "torchrun"), "--nnodes", "2", "--node-rank", str(number)]
            torchrun += ["--nproc-per-node", str(ranks // 2)]
            torchrun += ["--master-addr", "10.77.0.1", "--master-port", "29511", *training]
            enter = ["nsenter", f"--net=/run/netns/{name}", "env", f"GLOO_SOCKET_IFNAME={device}"]
            words.append(f"{shlex.join([*enter, *torchrun])} &")
        return ["bash", "-c", "\n".join([*words, "wait -n"])]

    def cut(self) -> None:
        """Nothing gets through any more, and no end is told: packets are dropped, the carrier stays."""
        for name, device in zip(self.names, self._devices, strict=True):
            drop = ["root", "netem", "loss", "100%"]
            try:
                tried(["tc", "-n", name, "qdisc", "add", "dev", device, *drop])
            except NotHere:  # a kernel without netem
                tried(["ip", "-n", name, "link", "set", device, "down"])

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


DEBUGGERS = {
    "gdb": lambda pid, seconds: [
        *("gdb", "-p", str(pid), "-batch", "-nx", "-iex", "set auto-solib-add off"),
        *("-ex", f"shell sleep {seconds}", "-ex", "detach"),
    ],
    "strace": lambda pid, seconds: [
        "timeout",
        str(seconds),
        "strace",
        "-f",
        "-o",
        "/dev/null",
        "-p",
        str(pid),
    ],
    "py-spy": lambda pid, seconds: [
        *(
            str(BIN / "py-spy"),
            "record",
            "-p",
            str(pid),
            "-d",
            str(int(seconds)),
            "-f",
            "raw",
            "-o",
            "/dev/null",
        )
    ],
}


def attach(debugger: str, pid: int, seconds: float) -> subprocess.Popen[bytes]:
    """A debugger on a rank, for so long. raises: NotHere"""
    try:
        return subprocess.Popen(
            DEBUGGERS[debugger](pid, seconds),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise NotHere(f"{debugger}: {error}") from error


def tried(command: list[str]) -> None:
    """raises: NotHere"""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHere(f"{command[0]}: {error}") from error
    if done.returncode:
        raise NotHere(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
