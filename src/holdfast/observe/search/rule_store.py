"""Loads the diagnosis rules of the package, and those of a site, which are added to them."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import msgspec

from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.verdict.categories import ACTIONS, KINDS
from holdfast.model.rules import Rules
from holdfast.observe.search import signature_cache
from holdfast.observe.search.signature_store import PACKAGE, all_signatures
from holdfast.parsers.rule_files import KINDS as RULES
from holdfast.parsers.rule_files import complaints, joined, parse
from holdfast.parsers.signature_files import SignatureError

FOLDER = "rules"
CACHED = "rules.msgpack"
_DECODER = msgspec.msgpack.Decoder(Rules)


def package_rules(*, as_built: bool = True) -> Rules:
    """Returns the diagnosis rules of the package.

    `as_built`: use the files parsed by the build if present.
    """
    texts = _package_texts()
    kept = signature_cache.content(files(PACKAGE) / CACHED, _key(texts)) if as_built else None
    if kept is not None:
        try:
            return _DECODER.decode(kept)
        except msgspec.MsgspecError:
            pass
    return joined(parse(text.decode("utf-8"), name) for name, text in texts)


def write_rules(folder: Path) -> None:
    """Writes the parsed rules of the package into the folder of a build."""
    made = msgspec.msgpack.encode(package_rules(as_built=False))
    signature_cache.keep(folder / CACHED, _key(_package_texts()), made)


def site_rules(site: Path) -> Rules:
    """Returns the diagnosis rules in SITE/rules. Raises SignatureError if a file cannot be read or used."""
    try:
        paths = sorted(path for path in (site / FOLDER).glob("*.toml"))
        texts = [(path, path.read_bytes().decode("utf-8")) for path in paths]
    except (OSError, UnicodeDecodeError) as error:
        raise SignatureError(f"the rules in {site / FOLDER} cannot be read: {error}") from error
    return joined(parse(text, str(path)) for path, text in texts)


def all_knowledge(
    site: Path | None = None, cache: Path | None = None, refused: Callable[[str], object] | None = None
) -> KnowledgeBase:
    """Returns the signatures and rules of Holdfast and of the site.

    `refused`: receives a sentence for each invalid one of the site, which is skipped. Raises SignatureError
    if the folder cannot be read, and without `refused` for anything invalid in it.
    """
    signatures = all_signatures(site, cache, refused)
    rules = package_rules()
    if site is not None:
        try:
            own = site_rules(site)
            ids, tags = {one.id for one in signatures}, {one.id for one in rules.tag}
            if wrong := complaints(own, ids, KINDS, ACTIONS, tags=tags):
                raise SignatureError("\n".join(f"{site / FOLDER}: {text}" for text in wrong))
            rules = joined((rules, own))
        except SignatureError as error:
            if refused is None:
                raise
            refused(str(error))
    return KnowledgeBase(signatures, rules)


def _package_texts() -> list[tuple[str, bytes]]:
    folder = files(PACKAGE) / FOLDER
    found = sorted(folder.iterdir(), key=lambda file: file.name)
    return [(file.name, file.read_bytes()) for file in found if file.name.endswith(".toml")]


def _key(texts: list[tuple[str, bytes]]) -> bytes:
    """Returns a cache key that changes with the content of the rules and with the fields of a rule."""
    fields = [str(field) for kind in (Rules, *RULES.values()) for field in msgspec.structs.fields(kind)]
    return signature_cache.key_of([("fields", repr(fields).encode()), *texts])
