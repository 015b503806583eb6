"""Reads the signatures: those of the package, and a site's own, which add to them or replace them."""

from importlib.resources import files
from pathlib import Path

from holdfast.model.signatures import Signature
from holdfast.parsers.signature_files import SignatureError, overridden, parse


def package_signatures() -> tuple[Signature, ...]:
    """Those that come with Holdfast, by file name."""
    found: list[Signature] = []
    for file in sorted(files("holdfast.signatures").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            found += parse(file.read_text(encoding="utf-8"), file.name)
    return tuple(found)


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


def all_signatures(site: Path | None = None) -> tuple[Signature, ...]:
    """raises: SignatureError"""
    own = package_signatures()
    return overridden(own, folder_signatures(site)) if site else own
