"""Reads the signatures: those of the package, and a site's own, which add to them or replace them."""

from importlib.resources import files
from pathlib import Path

from holdfast.model.signatures import Signature
from holdfast.observe import signature_cache
from holdfast.parsers.signature_files import SignatureError, overridden, parse

CACHED = "signatures.msgpack"


def package_signatures(cache: Path | None = None) -> tuple[Signature, ...]:
    """Those that come with Holdfast, by file name. cache: a folder that remembers them parsed."""
    texts = [
        (file.name, file.read_bytes())
        for file in sorted(files("holdfast.signatures").iterdir(), key=lambda file: file.name)
        if file.name.endswith(".toml")
    ]
    place, key = cache and cache / CACHED, signature_cache.key_of(texts)
    if place and (known := signature_cache.load(place, key)) is not None:
        return known
    found = tuple(one for name, text in texts for one in parse(text.decode("utf-8"), name))
    if place:
        signature_cache.save(place, key, found)
    return found


def folder_signatures(folder: Path) -> tuple[Signature, ...]:
    """Those in the TOML files of a folder. raises: SignatureError, also where the folder cannot be read"""
    found: list[Signature] = []
    try:
        paths = sorted(folder.iterdir())
        for path in paths:
            if path.suffix == ".toml":
                found += parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise SignatureError(f"the signatures in {folder} cannot be read: {error}") from error
    return tuple(found)


def all_signatures(site: Path | None = None, cache: Path | None = None) -> tuple[Signature, ...]:
    """raises: SignatureError"""
    own = package_signatures(cache)
    return overridden(own, folder_signatures(site)) if site else own
