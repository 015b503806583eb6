"""Reads and writes YAML streams so that unchanged parts keep their text, with comments and line breaks.

ruamel.yaml keeps comments, anchors and quotes. If it would write an unchanged line differently, the original
line is used. source: https://yaml.dev/doc/ruamel.yaml/
"""

import difflib
import io
import re
from collections.abc import Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from holdfast.engines.kubernetes.wrap.asked import Refused
from holdfast.engines.kubernetes.wrap.trees import Document

WIDTH = 4096  # no line is folded
BYTES_MAX = 16 << 20
_BOUNDARY = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_SEQUENCE = re.compile(
    r"^( *)[^\s#-][^\n#]*:[ \t]*(?:#[^\n]*)?\n(?:[ \t]*(?:#[^\n]*)?\n)*( *)- ", re.MULTILINE
)
# Words that YAML 1.1, which Kubernetes reads, takes for something else than a string.
_NOT_PLAIN = re.compile(r"(?i)y|n|yes|no|on|off|true|false|null|~|[-+.0-9].*|.*: .*|.* #.*")


def split(text: str) -> list[str]:
    """Returns the documents of a stream, each with its directives and `---` line.

    Joined, they are the stream again.
    """
    starts = [found.start() for found in _BOUNDARY.finditer(text)]
    if text.startswith("%"):
        starts = starts[1:]
    cuts = [0, *(start for start in starts if start), len(text)]
    return [text[begin:end] for begin, end in zip(cuts, cuts[1:], strict=False) if text[begin:end]]


def parsed(text: str) -> Any:
    """Returns the document of a text; None for a blank text. Raises Refused."""
    try:
        return _yaml(text).load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise Refused(f"this is not YAML: {where}{problem}") from error


def written(document: Any, like: str) -> str:
    """Returns the text of a changed document.

    `like`: the text from which it was read, whose unchanged lines are kept.
    """
    yaml = _yaml(like)
    new = _dumped(yaml, document)
    old = _dumped(yaml, yaml.load(like))
    head, body = _head(like)
    kept = _merged(body, old, new)
    if kept != new:
        try:
            same = bool(yaml.load(kept) == yaml.load(new))
        except YAMLError:
            same = False
        kept = kept if same else new
    return head + kept


def fresh(document: Document) -> str:
    """Returns the text of a new document, with its `---` line."""
    return "---\n" + _dumped(_yaml(""), _quoted(document))


def diff(before: str, after: str, name: str) -> str:
    """Returns a unified diff."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), name, f"{name} (wrapped)"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def quoted(value: Any) -> Any:
    """Returns a value in which strings are quoted if YAML requires it, to be inserted into a document that
    was read.
    """
    return _quoted(value)


def _yaml(like: str) -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = WIDTH
    yaml.composer.warn_double_anchors = False  # YAML allows to define an anchor again
    offset = _offset(like)
    yaml.indent(mapping=2, sequence=2 + offset, offset=offset)
    return yaml


def _offset(text: str) -> int:
    """Returns by how many spaces lists are indented below their key: 0 or 2."""
    found = _SEQUENCE.search(text)
    return min(2, max(0, len(found[2]) - len(found[1]))) if found else 0


def _dumped(yaml: YAML, document: Any) -> str:
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _head(text: str) -> tuple[str, str]:
    """Directives and the `---` line of a document, and the rest."""
    found = _BOUNDARY.search(text) if text.startswith("%") else _BOUNDARY.match(text)
    if found is None:
        return "", text
    end = text.find("\n", found.start()) + 1 or len(text)
    return text[:end], text[end:]


def _merged(original: str, old: str, new: str) -> str:
    """Returns `new`, with the original text of every line that is equal in `old` and `new`."""
    lines = original.splitlines(keepends=True)
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    own = _line_of(lines, before)
    if own is None:
        return new
    merged: list[str] = []
    for tag, begin, end, first, last in _compared(before, after):
        if tag == "equal":
            merged += lines[own[begin] : own[end]]
        else:
            merged += after[first:last]
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in merged)
    return text


def _line_of(lines: Sequence[str], before: Sequence[str]) -> list[int] | None:
    """Returns, for each line of `before` and for its end, the index of that line in the original; None if
    they do not match.
    """
    own: list[int] = []
    for tag, begin, end, first, last in _compared(before, lines):
        if tag == "equal" or (tag == "replace" and end - begin == last - first):
            own += range(first, last)
        elif tag == "delete":
            own += [first] * (end - begin)
        elif tag == "replace":
            return None
    return [*own, len(lines)]


def _compared(before: Sequence[str], after: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()


def _quoted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _quoted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_quoted(each) for each in value]
    if type(value) is str and (not value or _NOT_PLAIN.fullmatch(value)):
        return DoubleQuotedScalarString(value)
    return value
