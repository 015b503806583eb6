"""What words and codes mean that somebody pastes from a log or a handbook. No behaviour."""

from collections.abc import Mapping

from msgspec import Struct

from holdfast.model.signatures import Signature


class CodeForm(Struct, frozen=True, kw_only=True):
    """How codes of one kind are written. `pattern`: searched without regard to case; its group `code` is the code.

    `signature`, `capture`: the known line that the code belongs to, and the name under which that line captures it; empty
    where the code has an entry of its own.
    """

    kind: str
    pattern: str
    signature: str = ""
    capture: str = ""


class Concept(Struct, frozen=True, kw_only=True):
    """Words that together stand for a category, in whatever order: a thing, and what is wrong with it. Patterns."""

    signature: str
    thing: str
    trouble: str


class CodeEntry(Struct, frozen=True, kw_only=True):
    """One row of codes.csv. `names`: other spellings ("SIGBUS", "ncclSystemError")."""

    kind: str
    code: str
    names: tuple[str, ...]
    meaning: Signature


class Phrase(Struct, frozen=True):
    """Words that stand for a signature. `captures`: what the signature captures in them and its category needs."""

    text: str
    signature: str
    captures: Mapping[str, str] = {}


class PhraseIndex(Struct, frozen=True, kw_only=True):
    """All phrases, to be searched by their n-grams.

    `grams`: n-gram -> numbers of the phrases that have it, as unsigned 16-bit integers in the byte order of the machine.
    `masses`: of each phrase, the sum of the weights of its n-grams. `own`: signatures that exist for phrases and codes only.
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
    """A meaning that a text is near to. `score`: 0..1; 1: the text names its code. `phrase`: the words that it is near to."""

    signature: str
    captures: Mapping[str, str] = {}
    score: float
    phrase: str
