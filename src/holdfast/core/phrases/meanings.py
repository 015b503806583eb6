"""Ranks the possible meanings of a few pasted log lines, by the codes in them and by similar phrases.

Pure.
"""

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

LINES_MAX = 12  # of a longer paste, only the lines that report an error are ranked
LINE_CHARS_MAX = 2000
JOINED_LINES, JOINED_CHARS = 4, 160  # short lines that may be one message, broken into several
JOINED_LESS = 0.04  # the joined lines win even if they are less similar by this than the best single line
BESIDE = 0.75  # score of a code in a line that has other words too
SAYS_LITTLE = 0.55  # score of a code with many possible causes: exit code 1
LETTERS_OF_CODE = 0.4  # share of the line's letters from which the question is about the code
# Words in any order are weaker evidence than a phrase. They are searched in short texts only.
CONCEPT, CONCEPT_NEXT, CONCEPT_CHARS = 0.62, 0.6, 120
# People ask about a cause more often than about its symptoms or about lines near it.
OF_ROLE = {"cause": 1.0, "symptom": 0.97, "context": 0.93, "harmless": 0.93, "end-ok": 0.93}


By: TypeAlias = Literal["code", "phrase", "concept"]


class Found(Struct, frozen=True, kw_only=True):
    """A possible meaning of a pasted line.

    `line`: its number, from 1. `text`: the part that matched; `by`: how it matched.
    """

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
    """Returns the possible meanings of pasted lines, most likely first, each meaning once.

    `signatures`: by id, those of the package and those that only the index has. `tables`: the known codes.
    """
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
