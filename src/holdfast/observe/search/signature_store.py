"""Loads the signatures of the package, and those of a site, which are added to them or replace them."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from msgspec import Struct

from holdfast.core.verdict.categories import KINDS
from holdfast.model.signatures import Signature
from holdfast.observe.search import signature_cache
from holdfast.parsers.signature_files import SignatureError, overridden, parse, read, why_unusable

PACKAGE = "holdfast.signatures"
CACHED = "signatures.msgpack"


def package_signatures(cache: Path | None = None, *, as_built: bool = True) -> tuple[Signature, ...]:
    """Returns the package's signatures, ordered by file name. `cache`: folder with parsed signatures.

    `as_built`: use the files parsed by the build if present.
    """
    texts = package_texts()
    place, key = cache and cache / CACHED, signature_cache.key_of(texts)
    for kept in (files(PACKAGE) / CACHED if as_built else None, place):
        if kept is not None and (known := signature_cache.load(kept, key)) is not None:
            return known
    found = tuple(one for name, text in texts for one in parse(text.decode("utf-8"), name))
    if place:
        signature_cache.save(place, key, found)
    return found


def package_texts() -> list[tuple[str, bytes]]:
    """Returns name and content of each signature file of the package, ordered by name."""
    return [
        (file.name, file.read_bytes())
        for file in sorted(files(PACKAGE).iterdir(), key=lambda file: file.name)
        if file.name.endswith(".toml")
    ]


class Own(Struct, frozen=True):
    """Signatures read from a site's folder, each with the name of its file.

    `complaints`: sentences about invalid signatures.
    """

    signatures: tuple[tuple[str, Signature], ...]
    complaints: tuple[str, ...]


def folder_read(folder: Path) -> Own:
    """Reads the signature files of a folder. Raises SignatureError if the folder cannot be read."""
    found: list[tuple[str, Signature]] = []
    wrong: list[str] = []
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except OSError as error:
        raise SignatureError(f"the signatures in {folder} cannot be read: {error}") from error
    for path in paths:
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            wrong.append(f"{path} cannot be read: not valid UTF-8 at byte {error.start}")
            continue
        except OSError as error:
            wrong.append(f"{path} cannot be read: {error.strerror}")
            continue
        known, complaints = read(text, str(path))
        found += [(str(path), one) for one in known]
        wrong += complaints
    return Own(tuple(found), tuple(wrong))


def folder_signatures(folder: Path) -> tuple[Signature, ...]:
    """Returns the signatures in the TOML files of a folder.

    Raises SignatureError if the folder or one file is invalid.
    """
    own = folder_read(folder)
    if own.complaints:
        raise SignatureError("\n".join(own.complaints))
    return tuple(one for _, one in own.signatures)


def all_signatures(
    site: Path | None = None, cache: Path | None = None, refused: Callable[[str], object] | None = None
) -> tuple[Signature, ...]:
    """Returns the signatures of Holdfast and of the site.

    `refused`: receives a sentence for each invalid one of the site, which is skipped. Raises SignatureError
    if the folder cannot be read, and without `refused` for anything invalid in it.
    """
    package = package_signatures(cache)
    if site is None:
        return package
    own = usable(site)
    if refused is None and own.complaints:
        raise SignatureError("\n".join(own.complaints))
    for complaint in own.complaints:
        if refused is not None:
            refused(complaint)
    return overridden(package, (one for _, one in own.signatures))


def usable(folder: Path) -> Own:
    """Reads a folder and returns its valid signatures; if several have the same id, the last one."""
    own = folder_read(folder)
    kept: dict[str, tuple[str, Signature]] = {}
    wrong = list(own.complaints)
    for name, one in own.signatures:
        if why := why_unusable(one, KINDS):
            wrong.append(f"{name}: signature {one.id!r}: {why}")
            continue
        if one.id in kept:
            before = kept[one.id][0]
            where = "twice" if before == name else f"also in {before}"
            wrong.append(f"{name}: signature {one.id!r} is defined {where}: the last definition is used")
        kept[one.id] = (name, one)
    return Own(tuple(kept.values()), tuple(wrong))
