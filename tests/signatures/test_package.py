"""Every signature that comes with Holdfast proves itself."""

from collections import Counter

from holdfast.core.categories import ACTIONS, KINDS
from holdfast.parsers.signature_files import complaints
from known import PACKAGE

SIGNATURES = PACKAGE


def test_each_is_well_formed_and_matches_its_lines():
    assert complaints(SIGNATURES, KINDS, ACTIONS) == []


def test_ids_are_unique():
    assert [
        id_ for id_, count in Counter(signature.id for signature in SIGNATURES).items() if count > 1
    ] == []
