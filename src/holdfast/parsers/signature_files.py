"""Turns the TOML text of a signature file into signatures, and says what is wrong with it. Pure.

A signature proves itself: the lines it must match and those it must not stand beside its pattern.
"""

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping

import msgspec

from holdfast.late_pattern import late
from holdfast.model.signatures import FIELD, Signature, SignatureFile

ID = late(r"[a-z0-9]+(?:-[a-z0-9]+)*")
ANY_CAUSE = "*"


class SignatureError(ValueError):
    """A file of signatures that cannot be used; the message names file, place and cause."""


def parse(text: str, name: str) -> tuple[Signature, ...]:
    """The signatures in one TOML file. `name`: for messages. raises: SignatureError"""
    try:
        return msgspec.convert(tomllib.loads(text), SignatureFile).signature
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SignatureError(f"{name}: {error}") from error


def overridden(*layers: Iterable[Signature]) -> tuple[Signature, ...]:
    """All signatures; one of a later layer replaces that of the same id in an earlier one."""
    known: dict[str, Signature] = {}
    for layer in layers:
        known.update({signature.id: signature for signature in layer})
    return tuple(known.values())


def complaints(
    signatures: Collection[Signature], taxonomy: Mapping[str, tuple[str, str]], actions: Collection[str]
) -> list[str]:
    """What is wrong, each in one sentence that begins with the id; empty when all is well.

    taxonomy: category -> (class, usual action); `xid_N` stands for all of its kind.
    """
    ids = {signature.id for signature in signatures}
    words = {*taxonomy, *(class_ for class_, _ in taxonomy.values())}
    found = []
    for signature in signatures:
        problems = [*_form(signature, actions), *_edges(signature, ids, words), *_lines(signature)]
        if FIELD.sub("N", signature.category) not in taxonomy and signature.category not in taxonomy:
            problems.append(f"the category {signature.category!r} is not in the taxonomy")
        found += [f"{signature.id}: {problem}" for problem in problems]
    return found


def compiled(signature: Signature) -> re.Pattern[str]:
    """raises: re.error"""
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
            problems.append(f"the {what} is empty in one language")
    if not signature.matches:
        problems.append("there is no line that it must match")
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
    problems += [f"it does not match {line!r}" for line in signature.matches if not pattern.search(line)]
    problems += [f"it matches {line!r}, and must not" for line in signature.misses if pattern.search(line)]
    return problems


def _texts(signature: Signature) -> list[str]:
    both = (signature.title, signature.explanation, signature.advice)
    return [signature.category, *(text for words in both for text in (words.en, words.zh))]
