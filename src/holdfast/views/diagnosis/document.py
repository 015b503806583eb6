"""Formats a diagnosis as the JSON document of `holdfast diagnose --json`. Masks secrets in quotations."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from holdfast.model.diagnoses import Diagnosis, Fact, FirstError
from holdfast.model.flight.scenes import FlightScene
from holdfast.model.matches import Search, Skipped
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit
from holdfast.parsers.log_lines.secrets import masked
from holdfast.views.languages import Language, said


class Scanned(Struct, frozen=True, kw_only=True):
    """Statistics of a search through logs: number of files, bytes, seconds, and skipped files."""

    files: int
    size_bytes: int
    seconds: float
    skipped: tuple[Skipped, ...] = ()


def scanned(search: Search, seconds: float, scene: FlightScene | None = None) -> Scanned:
    """Returns the statistics of a search.

    `scene`: flight records and stack dumps that were read beside the logs.
    """
    beside = scene or FlightScene()
    return Scanned(
        files=len(search.sources) + beside.files,
        size_bytes=search.bytes_read + beside.size_bytes,
        seconds=seconds,
        skipped=(*search.skipped, *beside.skipped),
    )


def document(diagnosis: Diagnosis, read: Scanned, language: Language) -> dict[str, Any]:
    """Returns the JSON document of a diagnosis: the guaranteed fields first (docs/diagnosis.md), then
    optional ones.
    """

    def text(words: Words) -> str:
        return _quoted(said(words, language))

    return {
        "category": diagnosis.category,
        "class": diagnosis.class_,
        "confidence": diagnosis.confidence,
        "title": text(diagnosis.title),
        "explanation": text(diagnosis.explanation),
        "advice": text(diagnosis.advice),
        "action": diagnosis.action,
        "culprits": [_culprit(one) for one in diagnosis.culprits],
        "first_error": _first_error(diagnosis.first_error) if diagnosis.first_error else None,
        "evidence": [_fact(one, text(one.says)) for one in diagnosis.evidence],
        "also": [{"category": one.category, "confidence": one.confidence} for one in diagnosis.also],
        "scanned": {
            "files": read.files,
            "bytes": read.size_bytes,
            "seconds": round(read.seconds, 3),
            "skipped": [{"name": _quoted(one.name), "why": _quoted(one.why)} for one in read.skipped],
        },
        "culprits_left_out": diagnosis.culprits_left_out,
        "decided_by": text(diagnosis.decided_by) if diagnosis.decided_by else None,
        "disagree": [text(one) for one in diagnosis.disagree],
        "notes": [text(one) for one in diagnosis.notes],
        "not_found": [text(one) for one in diagnosis.not_found],
    }


def iso(at_s: float | None) -> str | None:
    """Formats a time as 2026-01-01T00:00:00.000Z; None for a time outside the calendar."""
    moment = utc(at_s)
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def utc(at_s: float | None) -> datetime | None:
    try:
        return None if at_s is None else datetime.fromtimestamp(at_s, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def _culprit(one: Culprit) -> dict[str, Any]:
    return {"rank": one.rank, "worker": one.worker, "host": one.host, "device": one.device}


def _first_error(first: FirstError) -> dict[str, Any]:
    return {
        "file": _quoted(first.file),
        "line": first.line,
        "text": _quoted(first.verbatim or first.text),
        "time": iso(first.at_s),
        "before": _all_quoted(first.before),
        "after": _all_quoted(first.after),
        "frame": _quoted(first.frame) or None,
    }


def _fact(fact: Fact, says: str) -> dict[str, Any]:
    return {
        "file": _quoted(fact.file),
        "line": fact.line,
        "text": _quoted(fact.text),
        "says": says,
        "signature": fact.signature,
        "time": iso(fact.at_s),
        "count": fact.count,
        "ranks": list(fact.ranks),
    }


def _all_quoted(lines: Sequence[str]) -> list[str]:
    return [_quoted(line) for line in lines]


def _quoted(text: str) -> str:
    """Masks secrets, and replaces lone surrogates, which file names contain if they are not valid UTF-8."""
    return masked(text).encode("utf-8", "replace").decode()
