"""Parses TOML files of signatures, and lists their errors. Pure.

A signature includes its tests: lines it must match and lines it must not match.
"""

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

import msgspec

from holdfast.late_pattern import late
from holdfast.model.signatures import FIELD, Signature, SignatureFile, Words

ID = late(r"[a-z0-9]+(?:-[a-z0-9]+)*")
ANY_CAUSE = "*"


class SignatureError(ValueError):
    """Raised for an invalid file of signatures; the message names file, position and error."""


def parse(text: str, name: str) -> tuple[Signature, ...]:
    """Parses one TOML file of signatures. `name`: the file's, for messages. raises: SignatureError"""
    found, wrong = read(text, name)
    if wrong:
        raise SignatureError("\n".join(wrong))
    return found


def read(text: str, name: str) -> tuple[tuple[Signature, ...], list[str]]:
    """Parses the valid signatures in one TOML file; returns them, and a line for each invalid one."""
    try:
        file = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return (), [f"{name}: not valid TOML: {error}"]
    wrong = [f"{name}: {_no_key(key, SignatureFile)}" for key in file if key not in _keys(SignatureFile)]
    tables = file.get("signature", [])
    if not isinstance(tables, list):
        return (), [*wrong, f"{name}: a signature begins with [[signature]], in two pairs of brackets"]
    found = []
    for number, table in enumerate(tables, start=1):
        try:
            found.append(msgspec.convert(table, Signature))
        except msgspec.ValidationError as error:
            named = table.get("id") if isinstance(table, dict) else None
            which = f"signature {named!r}" if isinstance(named, str) else f"signature number {number}"
            wrong += [f"{name}: {which}: {one}" for one in _faults(table, error)]
    return tuple(found), wrong


def _faults(table: object, error: msgspec.ValidationError) -> list[str]:
    """Returns each unknown or missing key, with the nearest known one; other errors in msgspec's words."""
    if not isinstance(table, dict):
        return [str(error)]
    unknown = [_no_key(key, Signature) for key in table if key not in _keys(Signature)]
    for what in ("title", "explanation", "advice"):
        words = table.get(what)
        unknown += [
            f"in {what}: {_no_key(key, Words)}"
            for key in (words if isinstance(words, dict) else ())
            if key not in _keys(Words)
        ]
    text = str(error).replace("`$.", "`").replace(" - at ", " at ").replace("Object missing", "it lacks the")
    return unknown or [text]


def _no_key(key: str, kind: type[msgspec.Struct]) -> str:
    near = get_close_matches(key, _keys(kind), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(_keys(kind))}"
    return f"there is no key {key!r}{hint}"


def _keys(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return kind.__struct_fields__


def why_unusable(signature: Signature, taxonomy: Collection[str]) -> str:
    """Returns why a signature is unusable; empty if it works, even with failing tests."""
    try:
        pattern = compiled(signature)
    except (re.error, RecursionError, OverflowError) as error:
        return f"the pattern cannot be compiled: {error}"
    if pattern.search(""):
        return "the pattern matches the empty line, and so every line"
    return "" if _is_category(signature.category, taxonomy) else _no_category(signature.category, taxonomy)


def _is_category(category: str, taxonomy: Collection[str]) -> bool:
    """Returns whether this is a category: of the taxonomy, "xid_{xid}", or "{verdict}", which a log line
    supplies itself.
    """
    return (
        category in taxonomy or FIELD.sub("N", category) in taxonomy or FIELD.fullmatch(category) is not None
    )


def _no_category(category: str, taxonomy: Collection[str]) -> str:
    near = get_close_matches(category, taxonomy, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"the category {category!r} is not in the taxonomy{hint}"


def overridden(*layers: Iterable[Signature]) -> tuple[Signature, ...]:
    """Returns all signatures; one of a later layer replaces the one with its id in an earlier layer."""
    known: dict[str, Signature] = {}
    for layer in layers:
        known.update({signature.id: signature for signature in layer})
    return tuple(known.values())


def complaints(
    signatures: Collection[Signature], taxonomy: Mapping[str, tuple[str, str]], actions: Collection[str]
) -> list[str]:
    """Returns the errors in signatures, each in one sentence that begins with the id.

    `taxonomy`: by category, class and default action; `xid_N` stands for all of its kind.
    """
    ids = {signature.id for signature in signatures}
    words = {*taxonomy, *(class_ for class_, _ in taxonomy.values())}
    found = []
    for signature in signatures:
        problems = [*_form(signature, actions), *_edges(signature, ids, words), *_lines(signature)]
        if not _is_category(signature.category, taxonomy):
            problems.append(_no_category(signature.category, taxonomy))
        found += [f"{signature.id}: {problem}" for problem in problems]
    return found


def compiled(signature: Signature) -> re.Pattern[str]:
    """Returns the compiled pattern of a signature. raises: re.error"""
    return re.compile(signature.pattern, re.ASCII)


def _form(signature: Signature, actions: Collection[str]) -> list[str]:
    problems = []
    if not ID.fullmatch(signature.id):
        problems.append("the id is not made of small letters, digits and single hyphens")
    if signature.action and signature.action not in actions:
        problems.append(f"the action {signature.action!r} is not one of {', '.join(sorted(actions))}")
    if not 0.0 < signature.weight <= 1.0:
        problems.append(f"the weight {signature.weight} is not in (0, 1]")
    for what in ("title", "explanation", "advice"):
        if not all((getattr(signature, what).en.strip(), getattr(signature, what).zh.strip())):
            problems.append(f"the English or the Chinese {what} is empty")
    if not signature.matches:
        problems.append("there is no example line that the pattern must match (`matches`)")
    return problems


def _edges(signature: Signature, ids: Collection[str], words: Collection[str]) -> list[str]:
    problems = []
    for edge in (*signature.explained_by, *signature.explains):
        known = edge[1:] in ids if edge.startswith("#") else edge in words or edge == ANY_CAUSE
        if not known:
            problems.append(f"the edge {edge!r} names no signature, category or class")
    return problems


def _lines(signature: Signature) -> list[str]:
    try:
        pattern = compiled(signature)
    except re.error as error:
        return [f"the pattern cannot be compiled: {error}"]
    named = {field for text in _texts(signature) for field in FIELD.findall(text)}
    problems = [
        f"{{{field}}} is not captured by the pattern" for field in sorted(named - {*pattern.groupindex})
    ]
    problems += [
        f"the pattern does not match {line!r}" for line in signature.matches if not pattern.search(line)
    ]
    problems += [
        f"the pattern matches {line!r}, which it must not match"
        for line in signature.misses
        if pattern.search(line)
    ]
    return problems


def _texts(signature: Signature) -> list[str]:
    both = (signature.title, signature.explanation, signature.advice)
    return [signature.category, *(text for words in both for text in (words.en, words.zh))]
