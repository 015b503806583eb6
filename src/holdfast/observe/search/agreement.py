"""Verifies that both search engines, Hyperscan and Python's `re`, find each signature on its example
lines.
"""

from collections.abc import Sequence
from pathlib import Path

from holdfast.model.signatures import Signature
from holdfast.observe.search.automaton import Engine, FastEngine, engine
from holdfast.parsers.signature_files import SignatureError


def disagreements(signatures: Sequence[Signature], cache: Path | None = None) -> list[str]:
    """Returns a sentence for each signature that a search engine does not find on its own example lines; else
    nothing.

    Each sentence begins with the signature's id. `cache`: folder for compiled signatures. Without Hyperscan,
    only `re` is tested.
    """
    try:
        engines = [engine(signatures, None, is_small=True), engine(signatures, cache)]
    except SignatureError as error:
        return [str(error)]
    found = []
    for one in engines:
        name = "the automaton" if isinstance(one, FastEngine) else "the engine of re"
        found += [f"{id_}: {name} does not find {line!r}" for id_, line in _missed(signatures, one)]
    return list(dict.fromkeys(found))


def _missed(signatures: Sequence[Signature], one: Engine) -> list[tuple[str, str]]:
    """Returns (signature id, line) of example lines that an engine does not find in a text of all example
    lines.
    """
    expected: list[tuple[int, int, int, str]] = []  # signature, begin and end of the line, the line
    text = b"\n"
    for number, signature in enumerate(signatures):
        for line in signature.matches:
            if "\n" in line or "\r" in line:
                continue  # several lines, which are not searched as one
            raw = line.encode()
            expected.append((number, len(text), len(text) + len(raw), line))
            text += raw + b"\n\n"
    hits: dict[int, list[int]] = {}
    for number, end in one.candidates(text, len(text)):
        hits.setdefault(number, []).append(end)
    return [
        (signatures[number].id, line)
        for number, begin, end, line in expected
        if not any(begin <= hit <= end for hit in hits.get(number, ()))
    ]
