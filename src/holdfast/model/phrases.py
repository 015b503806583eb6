"""Defines the data types for the meaning of pasted log lines and error codes. No behaviour."""

from collections.abc import Mapping

from msgspec import Struct

from holdfast.model.signatures import Signature


class CodeForm(Struct, frozen=True, kw_only=True):
    """How error codes of one kind are written in texts.

    `pattern`: searched case-insensitively; its group `code` is the code. `signature`, `capture`: the
    signature for the code, and its capture for it; empty if the code has its own entry.
    """

    kind: str
    pattern: str
    signature: str = ""
    capture: str = ""


class Concept(Struct, frozen=True, kw_only=True):
    """Two patterns that together, in any order, mean a category: one for a thing, one for what is wrong with it."""

    signature: str
    thing: str
    trouble: str


class CodeEntry(Struct, frozen=True, kw_only=True):
    """A known error code: one row of codes.csv. `names`: other spellings ("SIGBUS", "ncclSystemError")."""

    kind: str
    code: str
    names: tuple[str, ...]
    meaning: Signature


class Phrase(Struct, frozen=True):
    """A text that people use for what a signature describes. `captures`: fields that the signature's category
    needs.
    """

    text: str
    signature: str
    captures: Mapping[str, str] = {}


class PhraseIndex(Struct, frozen=True, kw_only=True):
    """All phrases, indexed by n-grams.

    `grams`: by n-gram, the numbers of the phrases that have it, as unsigned 16-bit integers in the byte order
    of the machine. `masses`: for each phrase, the sum of the weights of its n-grams. `own`: signatures that
    exist for phrases and codes only.
    """

    phrases: tuple[Phrase, ...]
    grams: Mapping[str, bytes]
    masses: tuple[float, ...]
    own: Mapping[str, Signature]
    codes: Mapping[str, str]
    names: Mapping[str, str]
    forms: tuple[CodeForm, ...]
    concepts: tuple[Concept, ...]


class Near(Struct, frozen=True, kw_only=True):
    """A possible meaning of a pasted text: a known phrase that is similar to it.

    `score`: 0..1; 1 means that the text contains an error code. `phrase`: the similar phrase.
    """

    signature: str
    captures: Mapping[str, str] = {}
    score: float
    phrase: str
