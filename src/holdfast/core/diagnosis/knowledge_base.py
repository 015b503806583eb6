"""Holds everything that a diagnosis needs to know: signatures, and the tags, wordings, tables and texts of rules.
Pure.

Code refers to an entry by its id: `known.has("shell-complaint", ...)`, `known.says("retries", text)`. Program names,
phrases and signature ids are in files of the folder `signatures`; an undefined id raises KeyError.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.late_pattern import late
from holdfast.model.matches import Match
from holdfast.model.rules import Reading, Rules, Tag
from holdfast.model.signatures import Signature, Words


class KnowledgeBase(Mapping[str, Signature]):
    """The signatures by id, and the rules. Immutable."""

    def __init__(self, signatures: Iterable[Signature], rules: Rules) -> None:
        self._signatures = {one.id: one for one in signatures}
        self.rules = rules
        self._tags = _members(rules.tag, self._signatures.values())
        self._wordings: dict[str, tuple[re.Pattern[str], ...]] = {}
        for one in rules.wording:
            self._wordings[one.id] = (*self._wordings.get(one.id, ()), late(one.pattern))
        self._readings: dict[str, list[tuple[re.Pattern[str] | None, Reading]]] = defaultdict(list)
        for row in rules.reading:
            self._readings[row.table].append((late(row.pattern) if row.pattern else None, row))
        self._texts = {one.id: Words(en=one.en, zh=one.zh) for one in rules.text}

    def __getitem__(self, id_: str) -> Signature:
        return self._signatures[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._signatures)

    def __len__(self) -> int:
        return len(self._signatures)

    def with_signatures(self, *signatures: Signature) -> "KnowledgeBase":
        """Returns a knowledge base with the same rules and only these signatures."""
        return KnowledgeBase(signatures, self.rules)

    def has(self, tag: str, match: Match) -> bool:
        """Returns whether the match's signature or category has a tag.

        Raises KeyError for an undefined tag.
        """
        members = self._tags[tag]
        return match.signature in members or match.category in members

    def is_of(self, tag: str, *names: str) -> bool:
        """Returns whether one of these signature ids or categories has a tag.

        Raises KeyError for an undefined tag.
        """
        return not self._tags[tag].isdisjoint(names)

    def tagged(self, tag: str) -> frozenset[str]:
        """Returns the signature ids and categories that have a tag. Raises KeyError for an undefined tag."""
        return self._tags[tag]

    def says(self, wording: str, text: str) -> bool:
        """Returns whether a text contains a wording (a named pattern). Raises KeyError for an undefined wording."""
        return any(pattern.search(text) for pattern in self._wordings[wording])

    def found(self, wording: str, text: str) -> re.Match[str] | None:
        """Returns the first occurrence of a wording (a named pattern) in a text, or None.

        Raises KeyError for an undefined wording.
        """
        return next((hit for one in self._wordings[wording] if (hit := one.search(text))), None)

    def is_whole(self, wording: str, text: str) -> bool:
        """Returns whether a wording (a named pattern) matches the whole text. Raises KeyError for an undefined
        wording.
        """
        return any(pattern.fullmatch(text) for pattern in self._wordings[wording])

    def read(self, table: str, text: str) -> Reading | None:
        """Returns the first row of a lookup table that matches a text, or None.

        Raises KeyError for an undefined table.
        """
        return next((row for pattern, row in self._rows(table) if _fits(pattern, row, text)), None)

    def text(self, id_: str, **fields: object) -> Words:
        """Returns a rule's text for users, with `{name}` fields filled in.

        Raises KeyError for an undefined text.
        """
        text = self._texts[id_]
        return Words(en=text.en.format(**fields), zh=text.zh.format(**fields)) if fields else text

    def _rows(self, table: str) -> Sequence[tuple[re.Pattern[str] | None, Reading]]:
        if table not in self._readings:
            raise KeyError(table)
        return self._readings[table]


def _fits(pattern: re.Pattern[str] | None, row: Reading, text: str) -> bool:
    return text in row.values or pattern is not None and pattern.search(text) is not None


def _members(tags: Iterable[Tag], signatures: Iterable[Signature]) -> dict[str, frozenset[str]]:
    """Returns by tag the signature ids and categories that have it, including those of nested tags.

    Cycles are allowed.
    """
    own: dict[str, set[str]] = defaultdict(set)
    within: dict[str, set[str]] = defaultdict(set)
    for tag in tags:
        own[tag.id].update(tag.signatures, tag.categories)
        within[tag.id].update(tag.tags)
    for signature in signatures:
        for name in signature.tags:
            own[name].add(signature.id)
    return {name: frozenset(_closure(name, own, within)) for name in own}


def _closure(name: str, own: Mapping[str, set[str]], within: Mapping[str, set[str]]) -> set[str]:
    seen, waiting = {name}, [name]
    found: set[str] = set()
    while waiting:
        one = waiting.pop()
        found |= own.get(one, set())
        new = within.get(one, set()) - seen
        seen |= new
        waiting += new
    return found
