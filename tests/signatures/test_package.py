"""Every signature that comes with Holdfast proves itself."""

import re
from collections import Counter

from holdfast.core.diagnosis.candidates import filled
from holdfast.core.verdict.categories import ACTIONS, KINDS
from holdfast.parsers.signature_files import complaints
from known import PACKAGE

SIGNATURES = PACKAGE


def test_each_is_well_formed_and_matches_its_lines():
    assert complaints(SIGNATURES, KINDS, ACTIONS) == []


def test_ids_are_unique():
    assert [
        id_ for id_, count in Counter(signature.id for signature in SIGNATURES).items() if count > 1
    ] == []


WRONG = re.compile(r"\b(?:on|from|of|at|for|by|with|because|than)\s*(?:[,:;)]|$)|\(\s*\)|[?{}]")


def test_titles_read_well_whatever_was_captured():
    """With what each of its own lines gives, in both languages: nothing is missing, no word hangs in the air."""
    found = []
    for signature in SIGNATURES:
        pattern = re.compile(signature.pattern, re.ASCII)
        for line in signature.matches:
            match = pattern.search(line)
            assert match is not None
            known = {name: "x" for name, value in match.groupdict().items() if value}
            every = dict.fromkeys(pattern.groupindex, "x")
            for text in (signature.title.en, signature.title.zh):
                is_bad = WRONG.search(filled(text, known)) and not WRONG.search(filled(text, every))
                found += [filled(text, known)] if is_bad else []
    assert found == []
