"""Ranks the possible meanings of a few pasted lines: codes they name, and similar phrases. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.phrases.codes import codes_in
from holdfast.core.phrases.grams import plain
from holdfast.core.phrases.index import near
from holdfast.model.code_facts import CodeTables
from holdfast.model.phrases import Near, PhraseIndex
from holdfast.model.signatures import Signature

LINES_MAX = 12  # of a longer paste, those that speak of trouble are to be given
LINE_CHARS_MAX = 2000
JOINED_LINES, JOINED_CHARS = 4, 160  # short lines that may be one message, cut in pieces
JOINED_LESS = 0.04  # by so much the whole may be less near than its nearest line
BESIDE = 0.75  # of a code that stands in a line that says more than the code
SAYS_LITTLE = 0.55  # of a code that can mean anything: exit code 1
LETTERS_OF_CODE = 0.4  # so much of a line, and the code is what is asked about
# Words in any order are a weaker sign than a phrase. They are looked for in what a person writes, not in long lines.
CONCEPT, CONCEPT_NEXT, CONCEPT_CHARS = 0.62, 0.6, 120
# What a line is asked about is rather a cause than what followed from it or stood beside it.
OF_ROLE = {"cause": 1.0, "symptom": 0.97, "context": 0.93, "harmless": 0.93, "end-ok": 0.93}


By: TypeAlias = Literal["code", "phrase", "concept"]


class Found(Struct, frozen=True, kw_only=True):
    """A meaning and its line. `line` counts from 1. `by`: the text that matched."""

    near: Near
    line: int
    text: str
    by: By = "phrase"

    @property
    def score(self) -> float:
        return self.near.score


def meanings_of(
    lines: Sequence[str],
    index: PhraseIndex,
    signatures: Mapping[str, Signature],
    tables: CodeTables,
) -> list[Found]:
    """Possible meanings of the lines, likeliest first; each once. `signatures`: the package's and the index's own."""
    given = [(number, text[:LINE_CHARS_MAX]) for number, text in enumerate(lines, 1) if text.strip()][
        :LINES_MAX
    ]
    found = [one for number, text in given for one in _of_line(number, text, index, signatures, tables)]
    if 1 < len(given) <= JOINED_LINES and all(len(text) <= JOINED_CHARS for _, text in given):
        number, text = given[0]
        best = max((one.score for one in found), default=0.0)
        joined = _near(number, text, " ".join(text for _, text in given), index, signatures)
        found += [
            replace(one, near=replace(one.near, score=one.score + JOINED_LESS))
            for one in joined
            if one.score + JOINED_LESS >= best
        ]
    best_of: dict[tuple[str, ...], Found] = {}
    for one in sorted(found, key=lambda one: (-one.score, one.line)):
        best_of.setdefault(_key(one.near), one)
    return list(best_of.values())


def _of_line(
    number: int,
    text: str,
    index: PhraseIndex,
    signatures: Mapping[str, Signature],
    tables: CodeTables,
) -> Iterable[Found]:
    size = _letters(text)
    for code in codes_in(index, text, tables):
        if code.signature in signatures:
            is_all = _letters(code.phrase) >= LETTERS_OF_CODE * size or bool(code.captures)
            beside = SAYS_LITTLE if signatures[code.signature].category == "unknown" else BESIDE
            score = 1.0 if is_all else beside
            yield Found(near=replace(code, score=score), line=number, text=text, by="code")
    yield from _near(number, text, text, index, signatures)
    if len(text) <= CONCEPT_CHARS:
        yield from _concepts(number, text, index)


def _concepts(number: int, text: str, index: PhraseIndex) -> Iterator[Found]:
    clean, score = plain(text), CONCEPT
    for one in index.concepts:
        thing, trouble = re.search(one.thing, clean), re.search(one.trouble, clean)
        if thing and trouble:
            near = Near(signature=one.signature, score=score, phrase=f"{thing[0]} … {trouble[0]}")
            yield Found(near=near, line=number, text=text, by="concept")
            score = CONCEPT_NEXT


def _near(
    number: int, text: str, words: str, index: PhraseIndex, signatures: Mapping[str, Signature]
) -> list[Found]:
    return [
        Found(
            near=replace(one, score=one.score * OF_ROLE[signatures[one.signature].role]),
            line=number,
            text=text,
        )
        for one in near(index, words, most=8)
        if one.signature in signatures
    ]


def _letters(text: str) -> int:
    return sum(character.isalnum() for character in plain(text))


def _key(one: Near) -> tuple[str, ...]:
    return (one.signature, *one.captures.values())
