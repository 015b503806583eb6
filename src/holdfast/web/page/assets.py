"""The page's files, each under an address with the hash of its content: a browser keeps it for good.

Files are read once, at the start. Scripts and styles name each other relatively, so an address keeps the file's folder.
"""

import hashlib
import mimetypes
import zlib
from importlib.resources import files
from pathlib import PurePosixPath

from msgspec import Struct

FOLDER = "page_assets"
SHELL = "app/shell.html"
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
}
GZIP_BYTES_MIN = 500


class Asset(Struct, frozen=True, kw_only=True):
    """`zipped`: the same with gzip; empty: it is not worth it."""

    path: str
    media: str
    content: bytes
    zipped: bytes


class Assets:
    """`version`: of all of them together, in their addresses: a file that is imported by another changes that one's, too."""

    def __init__(self) -> None:
        found = {path: data for path, data in _package_files() if path != SHELL}
        digest = hashlib.sha256()
        for path in sorted(found):
            digest.update(f"{path} {len(found[path])} ".encode() + found[path])
        self.version = digest.hexdigest()[:12]
        self._assets = {path: _asset(path, data) for path, data in found.items()}
        self.shell = (files("holdfast") / FOLDER / SHELL).read_text(encoding="utf-8")

    def asset(self, version: str, path: str) -> Asset | None:
        """None for what is not there; never looks at the disk."""
        return self._assets.get(path) if version == self.version else None

    def address(self, prefix: str) -> str:
        """Where the files of this version are: `/assets/0a1b2c3d4e5f`."""
        return f"{prefix}/assets/{self.version}"


def _package_files() -> list[tuple[str, bytes]]:
    root = files("holdfast") / FOLDER
    found: list[tuple[str, bytes]] = []
    waiting = [(root, "")]
    while waiting:
        folder, path = waiting.pop()
        for one in folder.iterdir():
            if one.is_dir():
                waiting.append((one, f"{path}{one.name}/"))
            elif PurePosixPath(one.name).suffix in TYPES:
                found.append((f"{path}{one.name}", one.read_bytes()))
    return found


def _asset(path: str, data: bytes) -> Asset:
    suffix = PurePosixPath(path).suffix
    media = TYPES.get(suffix) or mimetypes.guess_type(path)[0] or "application/octet-stream"
    zipped = _zipped(data) if len(data) >= GZIP_BYTES_MIN and suffix not in (".woff2", ".png") else b""
    return Asset(path=path, media=media, content=data, zipped=zipped if len(zipped) < len(data) else b"")


def _zipped(data: bytes) -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    return squeeze.compress(data) + squeeze.flush()
