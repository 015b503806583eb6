"""Parses TOML files of rules, and lists their errors. Pure."""

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from holdfast.model.rules import Reading, Rules, Tag, Text, Weight, Wording
from holdfast.parsers.signature_files import ID, SignatureError

Rule = Tag | Wording | Reading | Text | Weight
KINDS: Mapping[str, type[Rule]] = {
    "tag": Tag,
    "wording": Wording,
    "reading": Reading,
    "text": Text,
    "weight": Weight,
}
PARTS = "parts"
PART = re.compile(r"\(\?&(?P<name>[a-z][a-z0-9-]*)\)")


def parse(text: str, name: str) -> Rules:
    """Parses one TOML file of rules.

    `name`: the file's, for messages. raises: SignatureError, with file, table and key
    """
    try:
        file = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SignatureError(f"{name}: not valid TOML: {error}") from error
    wrong = [f"{name}: {text}" for text in _use_parts(file)]
    wrong += [f"{name}: there is no table {key!r}{_near(key, KINDS)}" for key in file if key not in KINDS]
    found: dict[str, list[Rule]] = {kind: [] for kind in KINDS}
    for kind, struct in KINDS.items():
        tables = file.get(kind, [])
        if not isinstance(tables, list):
            wrong.append(f"{name}: a {kind} begins with [[{kind}]], in two pairs of brackets")
            continue
        for number, table in enumerate(tables, start=1):
            try:
                found[kind].append(msgspec.convert(table, struct))
            except msgspec.ValidationError as error:
                which = repr(table["id"]) if isinstance(table, dict) and "id" in table else f"number {number}"
                wrong.append(f"{name}: {kind} {which}: {_fault(table, error, struct)}")
    if wrong:
        raise SignatureError("\n".join(wrong))
    return msgspec.convert(found, Rules, from_attributes=True)


def _use_parts(file: dict[str, Any]) -> list[str]:
    """Removes the table of parts and replaces `(?&name)` in the patterns of the file; returns errors."""
    parts = file.pop(PARTS, {})
    if not isinstance(parts, dict) or not all(isinstance(one, str) for one in parts.values()):
        return ["[parts] must contain names, each with a pattern as a string"]
    rows = [row for kind in ("wording", "reading") for row in _rows(file.get(kind))]
    try:
        for name in parts:
            parts[name] = _with_parts(parts[name], parts)
        for row in rows:
            row["pattern"] = _with_parts(row["pattern"], parts)
    except KeyError as error:
        return [f"there is no part {error}{_near(error.args[0], parts)}"]
    return []


def _rows(table: object) -> list[dict[str, str]]:
    rows = table if isinstance(table, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("pattern"), str)]


def _with_parts(pattern: str, parts: Mapping[str, str]) -> str:
    """Returns the pattern with its parts filled in. raises: KeyError, for an unknown part"""
    return PART.sub(lambda found: f"(?:{parts[found['name']]})", pattern)


def joined(layers: Iterable[Rules]) -> Rules:
    """Returns all rules together.

    A later text replaces one with the same id; rows of a later layer have precedence.
    """
    files = list(layers)
    texts = {one.id: one for file in files for one in file.text}
    return Rules(
        tag=tuple(one for file in files for one in file.tag),
        wording=tuple(one for file in files for one in file.wording),
        reading=tuple(one for file in reversed(files) for one in file.reading),
        text=tuple(texts.values()),
        weight=tuple({one.id: one for file in files for one in file.weight}.values()),
    )


def complaints(
    rules: Rules,
    signatures: Collection[str],
    categories: Collection[str],
    actions: Collection[str],
    *,
    tags: Collection[str] = (),
) -> list[str]:
    """Returns the errors in rules, each in one sentence that begins with kind and id.

    `signatures`: known ids; `categories`, `actions`: of the taxonomy; `xid_N` stands for all of its kind.
    `tags`: those defined elsewhere.
    """
    tags = {*tags, *(one.id for one in rules.tag)}
    found: list[str] = []
    for tag in rules.tag:
        found += [f"tag {tag.id}: {text}" for text in _of_tag(tag, tags, signatures, categories)]
    for wording in rules.wording:
        found += [f"wording {wording.id}: {text}" for text in _of_wording(wording)]
    for row in rules.reading:
        found += [
            f"reading {row.table} {row.pattern or row.values}: {text}"
            for text in _of_reading(row, categories, actions)
        ]
    found += [
        f"weight {one.id}: there is no tag {tag!r}{_near(tag, tags)}"
        for one in rules.weight
        for tag in one.tags
        if tag not in tags
    ]
    found += [
        f"text {one.id}: the English or the Chinese text is empty"
        for one in rules.text
        if not (one.en.strip() and one.zh.strip())
    ]
    return found


def unknown_tags(signatures: Iterable[tuple[str, Collection[str]]], tags: Collection[str]) -> list[str]:
    """Returns errors for signatures, each given as id and tags, with undefined tags."""
    return [
        f"{id_}: there is no tag {tag!r}{_near(tag, tags)}"
        for id_, own in signatures
        for tag in own
        if tag not in tags
    ]


def _of_tag(
    tag: Tag, tags: Collection[str], signatures: Collection[str], categories: Collection[str]
) -> list[str]:
    wrong = [] if ID.fullmatch(tag.id) else ["the id is not made of small letters, digits and single hyphens"]
    wrong += [] if tag.means.strip() else ["the text `means` is missing"]
    wrong += [
        f"there is no signature {one!r}{_near(one, signatures)}"
        for one in tag.signatures
        if one not in signatures
    ]
    wrong += [
        f"there is no category {one!r}{_near(one, categories)}"
        for one in tag.categories
        if not _is_category(one, categories)
    ]
    return wrong + [f"there is no tag {one!r}{_near(one, tags)}" for one in tag.tags if one not in tags]


def _is_category(name: str, categories: Collection[str]) -> bool:
    return name in categories or re.sub(r"_\d+$", "_N", name) in categories


def _of_wording(wording: Wording) -> list[str]:
    wrong = (
        [] if ID.fullmatch(wording.id) else ["the id is not made of small letters, digits and single hyphens"]
    )
    wrong += [] if wording.matches else ["there is no example text that the pattern must match (`matches`)"]
    return wrong + _proven(wording.pattern, wording.matches, wording.misses)


def _of_reading(row: Reading, categories: Collection[str], actions: Collection[str]) -> list[str]:
    wrong = [] if row.pattern or row.values else ["there is neither `pattern` nor `values`"]
    if row.category and not _is_category(row.category, categories):
        wrong.append(f"there is no category {row.category!r}{_near(row.category, categories)}")
    if row.action and row.action not in actions:
        wrong.append(f"the action {row.action!r} is not one of {', '.join(sorted(actions))}")
    if row.pattern and not row.matches:
        wrong.append("there is no example text that the pattern must match (`matches`)")
    return wrong + (_proven(row.pattern, row.matches, ()) if row.pattern else [])


def _proven(pattern: str, matches: Iterable[str], misses: Iterable[str]) -> list[str]:
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return [f"the pattern cannot be compiled: {error}"]
    wrong = [f"the pattern does not match {text!r}" for text in matches if not compiled.search(text)]
    return wrong + [
        f"the pattern matches {text!r}, which it must not match" for text in misses if compiled.search(text)
    ]


def _fault(table: object, error: msgspec.ValidationError, struct: type[Rule]) -> str:
    keys = struct.__struct_fields__
    unknown = [key for key in table if key not in keys] if isinstance(table, dict) else []
    if unknown:
        return "; ".join(f"there is no key {key!r}{_near(key, keys)}" for key in unknown)
    return str(error).replace("`$.", "`").replace(" - at ", " at ").replace("Object missing", "it lacks the")


def _near(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
