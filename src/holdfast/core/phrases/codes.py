"""Finds known error codes in a text: exit codes, signals, errno values, library status codes, device fault
codes. Pure.
"""

import re
from collections.abc import Iterator

from holdfast.core.phrases.grams import plain
from holdfast.late_pattern import late
from holdfast.model.code_facts import CodeTables
from holdfast.model.phrases import CodeForm, Near, PhraseIndex

WORD = late(r"[a-z][a-z0-9_]{2,}")
SIGNAL_BASE = 128  # a shell reports signal N as exit code 128 + N; Python as -N
KNOWN_CODE = 1.0


def codes_in(index: PhraseIndex, text: str, tables: CodeTables) -> list[Near]:
    """Returns one match for each known error code in the text, in the order of the code forms; symbolic names
    come last.

    `tables`: the rows of codes.csv and the forms in which codes are written.
    """
    clean = plain(text).strip()
    found = [one for form in index.forms for one in _of_form(index, form, clean, tables)]
    found += [
        _named(index.names[word], word)
        for word in (match[0].replace("_", "") for match in WORD.finditer(clean))
        if word in index.names
    ]
    return list({(one.signature, *one.captures.values()): one for one in found}.values())


def _of_form(index: PhraseIndex, form: CodeForm, text: str, tables: CodeTables) -> Iterator[Near]:
    for match in re.finditer(form.pattern, text):
        code = match["code"]
        if form.signature:
            known = getattr(tables, form.kind)
            device_code = code.upper() if code.upper() in known else code.lstrip("0")
            if device_code in known:
                yield _named(form.signature, match[0], {form.capture: device_code})
            continue
        entry = index.codes.get(_key(form.kind, int(code)))
        if entry is not None:
            yield _named(entry, match[0])


def _key(kind: str, number: int) -> str:
    """Returns the code's key in the table, e.g. "exit 255"; an exit code that encodes a signal has the
    signal's key.
    """
    if kind == "exit" and number == -1:
        return "exit 255"
    if kind == "exit" and number < 0:
        return f"signal {-number}"
    if kind == "exit" and SIGNAL_BASE < number < SIGNAL_BASE + 64:
        return f"signal {number - SIGNAL_BASE}"
    return f"{kind} {number}"


def _named(signature: str, phrase: str, captures: dict[str, str] | None = None) -> Near:
    return Near(signature=signature, captures=captures or {}, score=KNOWN_CODE, phrase=phrase)
