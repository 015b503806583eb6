"""Caches parsed signatures in a file, because parsing hundreds of TOML entries takes longer than searching a
small log.

A missing, damaged, outdated or unwritable cache is ignored silently, and the TOML is read.
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
    """Returns a cache key that changes with any file name, any content, and the fields of a signature."""
    fields = [
        (field.name, str(field.type), repr(field.default)) for field in msgspec.structs.fields(Signature)
    ]
    whole = hashlib.sha256(repr(fields).encode())
    for name, content in files:
        whole.update(repr((name, len(content))).encode())
        whole.update(content)
    return whole.digest()


def load(path: Traversable, key: bytes) -> tuple[Signature, ...] | None:
    """Returns the signatures cached under a key; None if there is no intact file."""
    kept = content(path, key)
    try:
        return None if kept is None else _DECODER.decode(kept)
    except msgspec.MsgspecError:
        return None


def save(path: Path, key: bytes, signatures: tuple[Signature, ...]) -> None:
    """Writes signatures to the cache. A failure is ignored and only costs time at the next start."""
    keep(path, key, msgspec.msgpack.encode(signatures))


def content(path: Traversable, key: bytes) -> bytes | None:
    """Returns the bytes cached under a key; None if the file is missing or incomplete."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    head, digest, body = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES : 2 * _DIGEST_BYTES], raw[2 * _DIGEST_BYTES :]
    return body if head == key and digest == hashlib.sha256(body).digest() else None


def keep(path: Path, key: bytes, body: bytes) -> None:
    """Writes bytes to the cache under a temporary name and renames the file, so that readers find a
    complete file or none.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.write_bytes(key + hashlib.sha256(body).digest() + body)
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)
