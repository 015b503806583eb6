"""Collects the phrases that Holdfast can explain: examples and titles of signatures, tables of codes, common
words.

Building the index takes a second; the build of the package stores it beside the tables (ready_made.py).
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec

from holdfast.core.diagnosis.words.meanings import MEANINGS
from holdfast.core.phrases import grams, index
from holdfast.core.verdict import categories
from holdfast.model.code_facts import CodeFact, CodeTables
from holdfast.model.phrases import CodeEntry, Concept, Phrase, PhraseIndex
from holdfast.model.signatures import FIELD, Signature, Words
from holdfast.observe.search import signature_cache
from holdfast.observe.search.code_store import package_tables
from holdfast.observe.search.signature_store import PACKAGE, package_texts
from holdfast.parsers.phrase_tables import (
    NEVER,
    advice_by_category,
    code_entries,
    code_forms,
    concept_rows,
    phrase_rows,
)

INDEX = "phrases.msgpack"
TABLES = (
    "codes.csv",
    "code_forms.csv",
    "phrases.csv",
    "advice.csv",
    "concepts.csv",
    "xid.csv",
    "sxid.csv",
    "npu.csv",
)
OF_DEVICES = {"xid": "nvidia-xid", "sxid": "nvidia-sxid-fatal", "npu": "npu-fault-code"}
TITLE_WORDS = 3  # an English title of fewer, without what is captured, is near to anything
UNUSED = frozenset({"Not in use", "Reserved"})
_DECODER = msgspec.msgpack.Decoder(PhraseIndex)


def package_index(signatures: Iterable[Signature], cache: Path | None = None) -> PhraseIndex:
    """Returns the index of phrases that people use for the failures of the package's signatures.

    `signatures`: those of the package; `cache`: folder that stores the index.
    """
    key = _key()
    place = cache and cache / INDEX
    for kept in (files(PACKAGE) / INDEX, place):
        if kept is not None and (known := _load(kept, key)) is not None:
            return known
    made = make_index(signatures)
    if place:
        signature_cache.keep(place, key, msgspec.msgpack.encode(made))
    return made


def write_index(folder: Path, signatures: Iterable[Signature]) -> None:
    """Writes the index of phrases into a folder.

    Skips a file that cannot be written; raises on an invalid table.
    """
    signature_cache.keep(folder / INDEX, _key(), msgspec.msgpack.encode(make_index(signatures)))


def make_index(signatures: Iterable[Signature]) -> PhraseIndex:
    """Builds the index of phrases from signatures and tables. Raises PhraseTableError."""
    known = {one.id: one for one in signatures}
    entries = code_entries(_text("codes.csv"), categories.KINDS, categories.ACTIONS)
    rows = phrase_rows(_text("phrases.csv"), known, categories.KINDS)
    own = {entry.meaning.id: entry.meaning for entry in entries}
    advice = advice_by_category(_text("advice.csv"), categories.KINDS)
    concepts = concept_rows(_text("concepts.csv"), categories.KINDS)
    meant = ({means for means, _ in rows} | {one[0] for one in concepts}) & set(categories.KINDS)
    own |= {one.id: one for one in (_of_category(name, *advice[name]) for name in meant)}
    phrases = [
        *(phrase for one in known.values() for phrase in _of_signature(one)),
        *(phrase for entry in entries for phrase in _of_code(entry)),
        *_of_tables(package_tables()),
        *(_of_words(means, text) for means, text in rows),
    ]
    return index.made(
        phrases,
        own,
        entries,
        code_forms(_text("code_forms.csv")),
        [Concept(signature=_id(name), thing=thing, trouble=trouble) for name, thing, trouble in concepts],
    )


def _of_signature(signature: Signature) -> Iterator[Phrase]:
    """Yields the phrases of a signature: its example lines with captures, and its titles.

    A signature whose category is itself a capture has none, because it records verdicts of other failures.
    """
    if FIELD.fullmatch(signature.category):
        return
    fields = FIELD.findall(signature.category)
    pattern = re.compile(signature.pattern, re.ASCII) if fields else None
    for text in signature.matches:
        found = pattern.search(text) if pattern else None
        captures = {name: found[name] for name in fields if found[name]} if found else {}
        yield Phrase(text, signature.id, captures)
    for title in (signature.title.en, signature.title.zh):
        text = FIELD.sub(" ", title)
        if not fields and (len(text.split()) >= TITLE_WORDS or not text.isascii()):
            yield Phrase(text, signature.id)


def _of_code(entry: CodeEntry) -> Iterator[Phrase]:
    for text in (*entry.names, entry.meaning.title.en, entry.meaning.title.zh):
        yield Phrase(text, entry.meaning.id)


def _of_tables(tables: CodeTables) -> Iterator[Phrase]:
    for kind, signature in OF_DEVICES.items():
        facts: Mapping[str, CodeFact] = getattr(tables, kind)
        capture = "code" if kind == "npu" else kind
        for fact in facts.values():
            for text in {fact.mnemonic, fact.meaning.en, fact.meaning.zh} - {""}:
                if fact.meaning.en not in UNUSED:
                    yield Phrase(text, signature, {capture: fact.code})


def _of_words(means: str, text: str) -> Phrase:
    """Returns the phrase for a row of the table.

    `means`: "#id" of a signature, a category, or a device code ("xid_79").
    """
    if means.startswith("#"):
        return Phrase(text, means[1:])
    kind, _, code = means.rpartition("_")
    return Phrase(text, OF_DEVICES[kind], {kind: code}) if code.isdigit() else Phrase(text, _id(means))


def _of_category(category: str, advice: Words, source: str) -> Signature:
    """Returns a signature that stands for a category, for words that are no message of a program."""
    return Signature(
        id=_id(category),
        category=category,
        pattern=NEVER,
        title=MEANINGS[category],
        explanation=Words(en="", zh=""),
        advice=advice,
        rank_from="none",
        source=source,
        matches=(),
    )


def _id(category: str) -> str:
    return f"words-{category}"


def _text(name: str) -> str:
    return (files(PACKAGE) / name).read_text(encoding="utf-8")


def _key() -> bytes:
    """Returns a cache key that changes with the tables, the signatures, and the code that splits words."""
    own: Sequence[tuple[str, bytes]] = [
        *package_texts(),
        *((name, (files(PACKAGE) / name).read_bytes()) for name in TABLES),
        *((module.__name__, Path(module.__file__ or "").read_bytes()) for module in (grams, index)),
        (__name__, Path(__file__).read_bytes()),
    ]
    return signature_cache.key_of(own)


def _load(path: Traversable, key: bytes) -> PhraseIndex | None:
    kept = signature_cache.content(path, key)
    try:
        return None if kept is None else _decoded(kept)
    except msgspec.MsgspecError:
        return None


@functools.lru_cache(maxsize=1)  # decoding takes longer than comparing: a process may diagnose many texts
def _decoded(kept: bytes) -> PhraseIndex:
    """Decodes a stored index. Raises MsgspecError."""
    return _DECODER.decode(kept)
