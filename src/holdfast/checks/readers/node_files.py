"""Reads small files of /proc, /sys and /etc below a root. Missing or unreadable files are empty, never an error."""

import os
from pathlib import Path

from holdfast.model.checks import Scene

FILE_BYTES_MAX = 4 << 20
DIGITS_MAX = 20


class NodeFiles:
    """`path`: "/sys/class/net/eth0/mtu", relative to the scene's root."""

    def __init__(self, scene: Scene) -> None:
        self.root = scene.root

    def place(self, path: str) -> Path:
        return Path(self.root) / path.lstrip("/")

    def text(self, path: str) -> str:
        return self.raw(path).decode("utf-8", "replace")

    def raw(self, path: str, bytes_max: int = FILE_BYTES_MAX) -> bytes:
        """The bytes of a file. Never waits: anything but a regular file is empty."""
        try:
            descriptor = os.open(self.place(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return b""
        whole = b""
        try:
            while len(whole) < bytes_max and (part := os.read(descriptor, bytes_max - len(whole))):
                whole += part
        except OSError:
            pass
        finally:
            os.close(descriptor)
        return whole

    def word(self, path: str) -> str:
        """The text without surrounding white space."""
        return self.text(path).strip()

    def number(self, path: str) -> int | None:
        """The number in the file, which may be negative (speed -1: unknown)."""
        word = self.word(path)
        digits = word.removeprefix("-")
        return int(word) if digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX else None

    def uptime_s(self) -> float:
        """Seconds since boot; 0 if unknown."""
        try:
            return max(0.0, float(self.text("/proc/uptime").split()[0]))
        except (ValueError, IndexError):
            return 0.0

    def entries(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self.place(path)))
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        try:
            return os.path.lexists(self.place(path))
        except OSError:
            return False

    def link(self, path: str) -> str:
        """The target of a symbolic link as written; empty if it is none."""
        try:
            return os.readlink(self.place(path))
        except OSError:
            return ""
