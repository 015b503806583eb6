"""Serves the page's static files, each under a URL with a hash of all files, so that browsers can cache them without
expiry.

Files are read, joined and compressed once, when the server starts.
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
    """The static files of the page. `version`: a hash of all of them, which is part of their URLs."""

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
        """Returns a file; None if it does not exist. Never reads the disk."""
        return self._assets.get(name) if version == self.version else None

    def address(self, prefix: str) -> str:
        """Returns the URL path of the files of this version: `/assets/0a1b2c3d4e5f`."""
        return f"{prefix}/assets/{self.version}"


def _asset(name: str, content: bytes) -> Asset:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    zipped = squeeze.compress(content) + squeeze.flush()
    return Asset(name=name, media=TYPES["." + name.rpartition(".")[2]], content=content, zipped=zipped)
