"""The page's files, each under an address with the hash of them all: a browser keeps them for good.

Files are read, joined and compressed once, at the start.
"""

import hashlib
import zlib

from msgspec import Struct

from holdfast.views.page import assets

TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


class Asset(Struct, frozen=True, kw_only=True):
    """A static file of the page. `zipped`: its content, compressed with gzip."""

    name: str
    media: str
    content: bytes
    zipped: bytes


class Assets:
    """`version`: of all of them together, in their addresses."""

    def __init__(self) -> None:
        texts = {
            "app.js": assets.script(),
            "app.css": assets.style(),
            "terminal.js": assets.terminal_script(),
        }
        texts |= {name: assets.text(path) for name, path in assets.ON_DEMAND.items()}
        self._assets = {name: _asset(name, text.encode()) for name, text in texts.items()}
        digest = hashlib.sha256()
        for name, asset in sorted(self._assets.items()):
            digest.update(f"{name} {len(asset.content)} ".encode() + asset.content)
        self.version = digest.hexdigest()[:12]

    def asset(self, version: str, name: str) -> Asset | None:
        """None for what is not there; never looks at the disk."""
        return self._assets.get(name) if version == self.version else None

    def address(self, prefix: str) -> str:
        """Where the files of this version are: `/assets/0a1b2c3d4e5f`."""
        return f"{prefix}/assets/{self.version}"


def _asset(name: str, content: bytes) -> Asset:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    zipped = squeeze.compress(content) + squeeze.flush()
    return Asset(name=name, media=TYPES["." + name.rpartition(".")[2]], content=content, zipped=zipped)
