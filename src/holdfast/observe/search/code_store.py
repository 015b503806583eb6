"""Loads the tables of device error codes (Xid, SXid, NPU) that are part of Holdfast."""

import functools
from collections.abc import Collection
from importlib.resources import files

from holdfast.core.verdict.categories import ACTIONS
from holdfast.model.code_facts import CodeFact, CodeKind, CodeTables
from holdfast.parsers.code_tables import parse_table

ALL: tuple[CodeKind, ...] = ("xid", "sxid", "npu")


def package_tables(kinds: Collection[CodeKind] = ALL) -> CodeTables:
    """Returns the tables of these kinds of device codes; loading all kinds takes noticeable time."""
    tables = {kind: _table(kind) for kind in kinds}
    return CodeTables(xid=tables.get("xid", {}), sxid=tables.get("sxid", {}), npu=tables.get("npu", {}))


def tables_for(categories: Collection[str]) -> CodeTables:
    """Returns the tables of those kinds of device codes that occur in these categories of verdicts."""
    kinds: list[CodeKind] = ["xid"] if any(name.startswith("xid_") for name in categories) else []
    kinds += ["sxid"] if {"sxid", "fabric_manager"} & {*categories} else []
    kinds += ["npu"] if any(name.startswith("npu_") for name in categories) else []
    return package_tables(kinds)


@functools.cache  # 20 ms; a server diagnoses many texts
def _table(kind: CodeKind) -> dict[str, CodeFact]:
    text = (files("holdfast.signatures") / f"{kind}.csv").read_text(encoding="utf-8")
    return parse_table(text, kind, ACTIONS)
