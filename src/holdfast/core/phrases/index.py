"""Builds the n-gram index of the known phrases, and finds the phrases most similar to a text. Pure.

N-grams are weighted by inverse document frequency (K. Spärck Jones, 1972). A pasted fragment of a phrase is
recognised because the phrase contains most of the fragment's weight; a line with a prefix, because it
contains most of the phrase's.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import log

from holdfast.core.phrases.grams import grams
from holdfast.model.phrases import CodeEntry, CodeForm, Concept, Near, Phrase, PhraseIndex
from holdfast.model.signatures import Signature

UNSEEN = 0.3  # weight of an n-gram of no phrase, as a share of the rarest one's: names of hosts and files
TELLING = 45.0  # common weight from which a match is no coincidence; about ten rare n-grams
FRAGMENT = 16.0  # common weight from which a fragment is more than a word of any log
SHARE_OF_OTHER = 0.25  # share of the score that depends on how much of the longer text is covered
NEAR_LEAST = 0.3
SAME = 0.99


def made(
    phrases: Sequence[Phrase],
    own: Mapping[str, Signature],
    entries: Iterable[CodeEntry],
    forms: Sequence[CodeForm],
    concepts: Sequence[Concept],
) -> PhraseIndex:
    """Builds the n-gram index of known phrases, from the phrases of signatures, the entries of codes, and the
    concepts.

    `own`: signatures that exist only for the index, by id. `forms`: how codes are written.
    """
    having: dict[str, array[int]] = defaultdict(lambda: array("H"))
    cut = [grams(phrase.text) for phrase in phrases]
    for number, found in enumerate(cut):
        for gram in found:
            having[gram].append(number)
    weights = {gram: _weight(len(numbers), len(phrases)) for gram, numbers in having.items()}
    codes, names = {}, {}
    for entry in entries:
        codes[f"{entry.kind} {entry.code}"] = entry.meaning.id
        names.update({name.lower().replace("_", ""): entry.meaning.id for name in entry.names})
    return PhraseIndex(
        phrases=tuple(phrases),
        grams={gram: numbers.tobytes() for gram, numbers in having.items()},
        masses=tuple(sum(weights[gram] for gram in found) for found in cut),
        own=own,
        codes=codes,
        names=names,
        forms=tuple(forms),
        concepts=tuple(concepts),
    )


def near(index: PhraseIndex, text: str, most: int = 5) -> list[Near]:
    """Returns the meanings whose phrases are most similar to a text, best first, at most `most`; one phrase
    per meaning.
    """
    asked = grams(text)
    common: dict[int, float] = defaultdict(float)
    mass = 0.0
    for gram in asked:
        numbers = array("H")
        numbers.frombytes(index.grams.get(gram, b""))
        weight = _weight(len(numbers), len(index.phrases))
        mass += weight if numbers else weight * UNSEEN
        for number in numbers:
            common[number] += weight
    scored = ((_score(shared, mass, index.masses[number]), number) for number, shared in common.items())
    best: dict[tuple[str, tuple[tuple[str, str], ...]], Near] = {}
    for score, number in sorted((one for one in scored if one[0] >= NEAR_LEAST), reverse=True):
        phrase = index.phrases[number]
        key = (phrase.signature, tuple(sorted(phrase.captures.items())))
        if key not in best:
            best[key] = Near(
                signature=phrase.signature,
                captures=phrase.captures,
                score=round(score, 3),
                phrase=phrase.text,
            )
        if len(best) == most:
            break
    return list(best.values())


def _weight(having: int, all_: int) -> float:
    return log(1.0 + all_ / max(1, having))


def _score(shared: float, mass: float, phrase_mass: float) -> float:
    """Returns the similarity of a text and a phrase, 0 to 1: the share of the shorter one that the longer one
    contains.

    The similarity of a short text is limited by the information in it.
    """
    of_text, of_phrase = shared / mass, shared / phrase_mass
    as_fragment = of_text * (1.0 - SHARE_OF_OTHER + SHARE_OF_OTHER * of_phrase) * min(1.0, shared / FRAGMENT)
    as_part = of_phrase * (1.0 - SHARE_OF_OTHER + SHARE_OF_OTHER * of_text) * min(1.0, shared / TELLING)
    is_same = min(of_text, of_phrase) > SAME
    return 1.0 if is_same else min(1.0, max(as_fragment, as_part))
