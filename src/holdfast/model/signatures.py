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
    r"""One known line.

    `category`: of the taxonomy; `{name}` in it is filled from a capture: "xid_{xid}".
    `pattern`: a Python regular expression, searched in one line without its line end and colours; the subset
        that both engines know, so `(?i)`, `(?:...)`, `(?P<name>...)`, `\b`, `^` and `$`; lookarounds too, but they
        make the fast engine report more lines than match. Names with a meaning: rank, ranks, host, peer, device
        (PCI address or index), pid, seq, op, bytes, ms, code, file, module, port, name.
    `role`: cause, can be the first error; symptom, is the first error only when nothing explains it; context, never
        is (it serves reasoning and exoneration); harmless, the same, and nor is anything else seen on its line, but an
        exception that ended a traceback; end-ok, the work was done.
    `severity`: fatal and error end a job; a warning does only where nothing worse is seen and the job died.
    `explained_by`, `explains`: edges. "#id" of a signature, a category, a class of the taxonomy ("hardware"), or
        "*" (any cause). A match that another, not later one explains is not the first error.
    `rank_from`: whose rank the culprit is: "line" (who wrote it, else whom the launcher names), "capture" (the
        pattern's rank: somebody else's), "none" (nobody's, unless the line itself says who wrote it).
    `rank_end`: the line says how a process of a launcher ended. Who: `rank`, `local_rank` (its index among those that the
        launcher started on its machine), `task` (of Slurm) or `pid`. How: `code` (-N or 128 + N: signal N), `signal`
        (its number) or `name` ("SIGKILL", "Killed"). What a line leaves out may stand in one of the next lines.
    `weight`: 0..1, how sure the category is when only this is seen.
    `action`: of the taxonomy; empty: the category's usual one.
    `tags`: properties that the rules of the diagnosis ask for; the files in the folder `rules` say which there are.
    `matches`, `misses`: whole lines that it must, and must not, match.
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
