"""Defines a signature: one known log line, its meaning, and its relations to others. No behaviour."""

import re
from typing import Literal, TypeAlias

from msgspec import Struct

Role: TypeAlias = Literal["cause", "symptom", "context", "harmless", "end-ok"]
Severity: TypeAlias = Literal["fatal", "error", "warning", "info"]
Area: TypeAlias = Literal["worker", "kernel", "scheduler", "npu", "fabric", "tool"]

FIELD = re.compile(r"\{(\w+)\}")  # in a category or a text: stands for the pattern's capture of that name
# The search itself makes matches of these: the start of a traceback, and its exception.
TRACEBACK_START, EXCEPTION = "python-traceback-start", "python-exception"
# A program's own error message that no other signature matches; the search examines such lines further.
SPOKEN = "program-error-complaint"


class Words(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text in English and Chinese. `{name}` stands for the capture of that name."""

    en: str
    zh: str


class Signature(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    r"""A log line with a known meaning: a pattern that recognises it, and what it says about a failure.

    `category`: of the taxonomy; `{name}` in it is replaced by a capture: "xid_{xid}".
    `pattern`: a Python regular expression, searched in one line without line end and colours. Only syntax
        that both engines support: `(?i)`, `(?:...)`, `(?P<name>...)`, `\b`, `^` and `$`; lookarounds too,
        but they make the fast engine report more lines than match. Captures with a meaning: rank, ranks,
        host, peer, device (PCI address or index), pid, seq, op, bytes, ms, code, file, module, port,
        name.
    `role`: "cause": may be the first error; "symptom": is the first error only if nothing else explains
        the failure; "context": never is, but serves to explain or exonerate; "harmless": never is, nor is
        anything else on its line except an exception that ended a traceback; "end-ok": the work was
        finished.
    `severity`: "fatal" and "error" end a job; "warning" counts only if nothing more severe was found and
        the job failed.
    `explained_by`, `explains`: edges to other signatures. "#id" of a signature, a category, a class of
        the taxonomy ("hardware"), or "*" (any cause). A match explained by an earlier one is not the
        first error.
    `rank_from`: which rank is the culprit: "line" (the line's writer, else the rank that the launcher
        names), "capture" (the rank in the pattern, another one than the writer), "none" (none, unless the
        line names its writer).
    `rank_end`: the line reports the end of a launcher's process. Which one: capture `rank`, `local_rank`
        (index among the processes on its machine), `task` (of Slurm) or `pid`. How it ended: `code` (-N
        or 128 + N: signal N), `signal` (number) or `name` ("SIGKILL", "Killed"). One of the next lines
        may have the rest.
    `weight`: 0..1, the confidence in the category if this is the only evidence.
    `action`: of the taxonomy; empty: the category's default action.
    `tags`: properties that rules of the diagnosis use; defined by the files in the folder `rules`.
    `matches`, `misses`: test lines that the pattern must match, and must not match.
    """

    id: str
    category: str
    pattern: str
    role: Role = "cause"
    severity: Severity = "error"
    area: Area = "worker"
    weight: float = 0.9
    explained_by: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    rank_from: Literal["line", "capture", "none"] = "line"
    rank_end: bool = False
    action: str = ""
    tags: tuple[str, ...] = ()
    title: Words
    explanation: Words
    advice: Words
    source: str
    matches: tuple[str, ...]
    misses: tuple[str, ...] = ()


class SignatureFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of one TOML file: [[signature]] tables."""

    signature: tuple[Signature, ...] = ()
