"""Reads small files of /proc, /sys and /etc, below a root folder.

A missing or unreadable file is empty, never an error.
"""

import os
from pathlib import Path

from holdfast.model.checks import Scene

FILE_BYTES_MAX = 4 << 20
DIGITS_MAX = 20


class NodeFiles:
    """Reader of small kernel and configuration files.

    Paths such as "/sys/class/net/eth0/mtu" are relative to its root.
    """

    def __init__(self, scene: Scene) -> None:
        self.root = scene.root

    def place(self, path: str) -> Path:
        return Path(self.root) / path.lstrip("/")

    def text(self, path: str) -> str:
        return self.raw(path).decode("utf-8", "replace")

    def raw(self, path: str, bytes_max: int = FILE_BYTES_MAX) -> bytes:
        """Returns the bytes of a file, at most `bytes_max`.

        Never blocks: anything but a regular file is empty.
        """
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
        """Returns the text of a file without surrounding white space."""
        return self.text(path).strip()

    def number(self, path: str) -> int | None:
        """Returns the integer in a file, or None if there is none.

        It may be negative: link speed -1 means unknown.
        """
        word = self.word(path)
        digits = word.removeprefix("-")
        return int(word) if digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX else None

    def uptime_s(self) -> float:
        """Returns the seconds since boot; 0 if unknown."""
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
        """Returns the target of a symbolic link as written; empty if the path is no link."""
        try:
            return os.readlink(self.place(path))
        except OSError:
            return ""
