"""Searches logs for all signatures in one go. First version."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from holdfast.model.sightings import Search, Sighting, Skipped, Source
from holdfast.model.signatures import Signature
from holdfast.observe.automaton import Automaton
from holdfast.observe.log_tree import logs
from holdfast.parsers.line_heads import writer_of, writer_of_name
from holdfast.parsers.steps import sighting as step_of
from holdfast.parsers.tracebacks import tracebacks

COLOUR = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\n]{0,300}(?:\x07|\x1b\\)")
NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
TRACEBACK_START = "python-traceback-start"


def search(
    paths: Sequence[Path],
    signatures: Sequence[Signature],
    *,
    stdin: BinaryIO | None = None,
    cache: Path | None = None,
) -> Search:
    """Everything that is found under the paths and on stdin."""
    automaton = Automaton(signatures)
    skipped: list[Skipped] = []
    sources: list[Source] = []
    sightings: list[Sighting] = []
    size = 0
    for log in logs(paths, skipped):
        text = log.stream.read(1 << 30)
        size += len(text)
        sightings += _one(log.name, text, len(sources), signatures, automaton, sources)
    if stdin is not None:
        text = stdin.read(1 << 30)
        size += len(text)
        sightings += _one("-", text, len(sources), signatures, automaton, sources)
    return Search(sources=tuple(sources), sightings=tuple(sightings), skipped=tuple(skipped), bytes_read=size)


def _one(
    name: str,
    raw: bytes,
    source: int,
    signatures: Sequence[Signature],
    automaton: Automaton,
    sources: list[Source],
) -> list[Sighting]:
    writer = writer_of_name(name)
    text = COLOUR.sub(b"", raw).replace(b"\r\n", b" \n").replace(b"\r", b"\n")
    lines = text.split(b"\n")
    offsets, at = [], 0
    for line in lines:
        offsets.append(at)
        at += len(line) + 1
    last_step = None
    for number, line in enumerate(lines):
        if step_of(line[:4096]) is not None:
            last_step = offsets[number]
    sources.append(
        Source(
            name=name,
            size_bytes=len(raw),
            writer=writer,
            last_step_offset=last_step,
            tail=tuple(line[:400].decode("utf-8", "replace") for line in lines[-41:] if line)[-40:],
        )
    )
    seen: dict[tuple[int, str], int] = {}
    done: set[tuple[int, int]] = set()
    found: list[Sighting] = []
    for number, end in automaton.candidates(text):
        start = text.rfind(b"\n", 0, end) + 1
        if (number, start) in done:
            continue
        done.add((number, start))
        stop = text.find(b"\n", start)
        raw_line = text[start : stop if stop >= 0 else None][: 64 << 10]
        line = raw_line.decode("utf-8", "replace").rstrip()
        match = automaton.patterns[number].search(line)
        if match is None:
            continue
        key = (number, NUMBERS.sub("#", line))
        if key in seen:
            first = found[seen[key]]
            found[seen[key]] = replace(first, count=first.count + 1, last_offset=start)
            continue
        seen[key] = len(found)
        signature = signatures[number]
        found.append(
            Sighting(
                signature=signature.id,
                category=signature.category,
                source=source,
                offset=start,
                line=text.count(b"\n", 0, start) + 1,
                text=line,
                captures={k: v for k, v in match.groupdict().items() if v is not None},
                writer=writer_of(raw_line, writer),
                last_offset=start,
                record=tuple(
                    one.decode("utf-8", "replace")[:400]
                    for one in text[start : start + 8192].split(b"\n")[1:13]
                )
                if signature.role == "cause"
                else (),
            )
        )
    return sorted(_with_tracebacks(found, lines, offsets, source, writer), key=lambda one: one.offset)


def _with_tracebacks(
    found: list[Sighting], lines: list[bytes], offsets: list[int], source: int, writer: object
) -> list[Sighting]:
    if not any(one.signature == TRACEBACK_START for one in found):
        return found
    for traceback in tracebacks(lines[:200000]):
        at = traceback.last_line
        while at > traceback.first_line and traceback.type.encode() not in lines[at]:
            at -= 1
        offset = offsets[at]
        hits = [n for n, one in enumerate(found) if one.offset == offset]
        frame = traceback.user_frame or traceback.frame
        for n in hits:
            found[n] = replace(found[n], frame=frame, error_type=traceback.type)
        if not hits:
            found.append(
                Sighting(
                    signature="python-exception",
                    category="python_exception",
                    source=source,
                    offset=offset,
                    line=at + 1,
                    text=lines[at].decode("utf-8", "replace"),
                    captures={"type": traceback.type, "message": traceback.message},
                    writer=writer_of(lines[at], writer),  # type: ignore[arg-type]
                    last_offset=offset,
                    frame=frame,
                    error_type=traceback.type,
                )
            )
    return found
