"""Parses a table of device error codes (xid.csv, sxid.csv, npu.csv) into facts. Pure.

Columns: code, mnemonic, meaning, meaning_zh, cause, severity, action, program (yes or empty), repeats ("2 in
86400: isolate_node"), verdicts ("NVIDIA=reset_gpu gpud=reboot_node"). tools/code_tables.py writes them.
"""

import csv
from collections.abc import Collection, Mapping
from typing import get_args

from holdfast.late_pattern import late
from holdfast.model.code_facts import CodeFact, CodeKind, Repeats
from holdfast.model.signatures import Severity, Words

COLUMNS = (
    *("code", "mnemonic", "meaning", "meaning_zh", "cause", "severity", "action", "program", "repeats"),
    "verdicts",
)
CAUSES = frozenset({"app", "driver", "hardware", "bus", "fabric", "thermal", "unknown"})
REPEATS = late(r"(\d+) in (\d+): (\w+)")


class CodeTableError(ValueError):
    """Raised for an invalid table of codes; the message names table, line and error."""


def parse_table(text: str, kind: CodeKind, actions: Collection[str]) -> dict[str, CodeFact]:
    """Parses one table of codes; returns the facts by code.

    `actions`: of the taxonomy. raises: CodeTableError
    """
    reader = csv.DictReader(text.splitlines())
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise CodeTableError(f"the {kind} table has the columns {reader.fieldnames}, not {list(COLUMNS)}")
    facts: dict[str, CodeFact] = {}
    for row in reader:
        problem = _problem(row, facts, actions)
        if problem:
            raise CodeTableError(f"{kind} table, line {reader.line_num}: {problem}")
        facts[row["code"]] = _fact(row, kind)
    return facts


def _problem(row: Mapping[str, str | None], known: Collection[str], actions: Collection[str]) -> str:
    if any(row.get(column) is None for column in COLUMNS):
        return "a column is missing"
    code = row["code"]
    if not code or code in known:
        return f"the code {code!r} is empty or occurs twice"
    if not (row["meaning"] and row["meaning_zh"]):
        return f"the meaning of {code} is missing in English or Chinese"
    if row["cause"] not in CAUSES or row["severity"] not in get_args(Severity):
        return f"{code}: the cause {row['cause']!r} or the severity {row['severity']!r} is unknown"
    named = {row["action"], *_verdicts(row["verdicts"] or "").values()}
    if row["repeats"]:
        rule = REPEATS.fullmatch(row["repeats"])
        if rule is None:
            return f"{code}: {row['repeats']!r} is not a valid value of the column repeats"
        named.add(rule[3])
    unknown = named - set(actions)
    return f"{code}: unknown actions {sorted(map(str, unknown))}" if unknown else ""


def _fact(row: Mapping[str, str], kind: CodeKind) -> CodeFact:
    rule = REPEATS.fullmatch(row["repeats"])
    severity: Severity = row["severity"]  # type: ignore[assignment]  # looked at in _problem
    return CodeFact(
        kind=kind,
        code=row["code"],
        mnemonic=row["mnemonic"],
        meaning=Words(en=row["meaning"], zh=row["meaning_zh"]),
        cause=row["cause"],
        severity=severity,
        action=row["action"],
        program=row["program"] == "yes",
        repeats=Repeats(count=int(rule[1]), within_s=int(rule[2]), action=rule[3]) if rule else None,
        verdicts=_verdicts(row["verdicts"]),
    )


def _verdicts(text: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in text.split())
    return {source: action for source, _, action in pairs}
