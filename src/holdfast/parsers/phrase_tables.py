"""Parses the tables of codes and phrases: codes.csv, code_forms.csv, phrases.csv, advice.csv, concepts.csv.

Pure.

codes.csv: kind, code, names (separated by spaces), category, action, meaning, meaning_zh, advice, advice_zh,
source. code_forms.csv: kind, signature, capture, pattern. phrases.csv: means ("#id" of a signature, a
category, or one of a device code: "xid_79"), phrase. advice.csv: category, advice, advice_zh, source.
concepts.csv: category, thing, trouble (two patterns that both match).
"""

import csv
import re
from collections.abc import Collection, Iterator, Mapping

from holdfast.model.phrases import CodeEntry, CodeForm
from holdfast.model.signatures import Signature, Words

CODE_COLUMNS = (
    "kind",
    "code",
    "names",
    "category",
    "action",
    "meaning",
    "meaning_zh",
    "advice",
    "advice_zh",
    "source",
)
FORM_COLUMNS = ("kind", "signature", "capture", "pattern")
ADVICE_COLUMNS = ("category", "advice", "advice_zh", "source")
CONCEPT_COLUMNS = ("category", "thing", "trouble")
PHRASE_COLUMNS = ("means", "phrase")
NEVER = r"(?!)"  # a pattern that no line matches


class PhraseTableError(ValueError):
    """Raised for an invalid table; the message names table, line and error."""


def code_entries(text: str, categories: Collection[str], actions: Collection[str]) -> tuple[CodeEntry, ...]:
    """Parses codes.csv. `categories`, `actions`: of the taxonomy. raises: PhraseTableError"""
    entries: list[CodeEntry] = []
    seen: set[tuple[str, str]] = set()
    for line, row in _rows(text, "codes", CODE_COLUMNS):
        key = (row["kind"], row["code"])
        if key in seen:
            raise PhraseTableError(f"codes table, line {line}: {' '.join(key)} occurs twice")
        if row["category"] not in categories or row["action"] not in actions:
            raise PhraseTableError(
                f"codes table, line {line}: unknown category {row['category']!r} or action {row['action']!r}: docs/words.md lists the known ones"
            )
        if not (row["meaning"] and row["meaning_zh"] and row["source"]):
            raise PhraseTableError(f"codes table, line {line}: a meaning or the source is missing")
        seen.add(key)
        entries.append(
            CodeEntry(kind=key[0], code=key[1], names=tuple(row["names"].split()), meaning=_meaning(row))
        )
    return tuple(entries)


def code_forms(text: str) -> tuple[CodeForm, ...]:
    """Parses the table code_forms.csv. raises: PhraseTableError"""
    forms = []
    for line, row in _rows(text, "code forms", FORM_COLUMNS):
        try:
            groups = re.compile(row["pattern"]).groupindex
        except re.error as error:
            raise PhraseTableError(
                f"code_forms.csv (how programs write error codes), line {line}: {error}"
            ) from error
        if "code" not in groups:
            raise PhraseTableError(
                f"code_forms.csv (how programs write error codes), line {line}: the pattern has no group `code`"
            )
        forms.append(
            CodeForm(
                kind=row["kind"], signature=row["signature"], capture=row["capture"], pattern=row["pattern"]
            )
        )
    return tuple(forms)


def concept_rows(text: str, categories: Collection[str]) -> list[tuple[str, str, str]]:
    """Parses concepts.csv, in order: the first match is the most likely. raises: PhraseTableError"""
    found = []
    for line, row in _rows(text, "concepts", CONCEPT_COLUMNS):
        if row["category"] not in categories:
            raise PhraseTableError(
                f"concepts table, line {line}: unknown category {row['category']!r}: docs/words.md lists the known ones"
            )
        try:
            re.compile(row["thing"]), re.compile(row["trouble"])
        except re.error as error:
            raise PhraseTableError(f"concepts table, line {line}: {error}") from error
        found.append((row["category"], row["thing"], row["trouble"]))
    return found


def phrase_rows(text: str, signatures: Collection[str], categories: Collection[str]) -> list[tuple[str, str]]:
    """Parses phrases.csv; returns (meaning, phrase) pairs. raises: PhraseTableError"""
    found = []
    for line, row in _rows(text, "phrases", PHRASE_COLUMNS):
        means, phrase = row["means"], row["phrase"]
        is_code = means.rpartition("_")[2].isdigit()
        known = means[1:] in signatures if means.startswith("#") else is_code or means in categories
        if not known or not phrase:
            raise PhraseTableError(
                f"phrases table, line {line}: the meaning {means!r} is unknown, or the phrase is empty"
            )
        found.append((means, phrase))
    return found


def advice_by_category(text: str, categories: Collection[str]) -> dict[str, tuple[Words, str]]:
    """Parses advice.csv: advice for categories without a signature, and its source.

    raises: PhraseTableError
    """
    found: dict[str, tuple[Words, str]] = {}
    for line, row in _rows(text, "advice", ADVICE_COLUMNS):
        if row["category"] not in categories or row["category"] in found or not all(row.values()):
            raise PhraseTableError(
                f"advice table, line {line}: category {row['category']!r} is unknown (docs/words.md lists them) or occurs twice, or a column is empty"
            )
        found[row["category"]] = (Words(en=row["advice"], zh=row["advice_zh"]), row["source"])
    return found


def _rows(text: str, name: str, columns: tuple[str, ...]) -> Iterator[tuple[int, Mapping[str, str]]]:
    reader = csv.DictReader(text.splitlines())
    if tuple(reader.fieldnames or ()) != columns:
        raise PhraseTableError(f"the {name} table has the columns {reader.fieldnames}, not {list(columns)}")
    for row in reader:
        if None in row.values() or None in row:
            raise PhraseTableError(
                f"{name} table, line {reader.line_num}: the line does not have {len(columns)} columns"
            )
        yield reader.line_num, row


def _meaning(row: Mapping[str, str]) -> Signature:
    return Signature(
        id=f"code-{row['kind']}-{row['code']}",
        category=row["category"],
        pattern=NEVER,
        action=row["action"],
        rank_from="none",
        title=Words(en=row["meaning"], zh=row["meaning_zh"]),
        explanation=Words(en="", zh=""),
        advice=Words(en=row["advice"], zh=row["advice_zh"]),
        source=row["source"],
        matches=(),
    )
