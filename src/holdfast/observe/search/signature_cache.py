"""Caches parsed signatures in a file: parsing hundreds from TOML takes longer than searching a small folder of logs.

Only a shortcut. A missing, damaged, outdated or unwritable cache is ignored silently, and the TOML is read.
"""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec

from holdfast.model.signatures import Signature

_DIGEST_BYTES = hashlib.sha256().digest_size
_DECODER = msgspec.msgpack.Decoder(tuple[Signature, ...])


def key_of(files: Iterable[tuple[str, bytes]]) -> bytes:
    """A key that changes with any name, any content, and the fields of a signature."""
    fields = [
        (field.name, str(field.type), repr(field.default)) for field in msgspec.structs.fields(Signature)
    ]
    whole = hashlib.sha256(repr(fields).encode())
    for name, content in files:
        whole.update(repr((name, len(content))).encode())
        whole.update(content)
    return whole.digest()


def load(path: Traversable, key: bytes) -> tuple[Signature, ...] | None:
    """The cached signatures of this key; None if there are none intact."""
    kept = content(path, key)
    try:
        return None if kept is None else _DECODER.decode(kept)
    except msgspec.MsgspecError:
        return None


def save(path: Path, key: bytes, signatures: tuple[Signature, ...]) -> None:
    """Stores signatures. A failure only costs time at the next start."""
    keep(path, key, msgspec.msgpack.encode(signatures))


def content(path: Traversable, key: bytes) -> bytes | None:
    """The cached bytes of this key; None if missing or incomplete."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    head, digest, body = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES : 2 * _DIGEST_BYTES], raw[2 * _DIGEST_BYTES :]
    return body if head == key and digest == hashlib.sha256(body).digest() else None


def keep(path: Path, key: bytes, body: bytes) -> None:
    """Writes under a temporary name and renames: readers find a complete file or none."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.write_bytes(key + hashlib.sha256(body).digest() + body)
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)
