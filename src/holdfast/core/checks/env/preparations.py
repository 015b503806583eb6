"""Finds shell commands that prepare the environment: `conda activate`, `module load`, `source`, `export`.

Pure.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from holdfast.core.checks.env.shell_text import SimpleCommand
from holdfast.late_pattern import late

PREPARES = frozenset(
    (
        "source",
        ".",
        "conda",
        "mamba",
        "micromamba",
        "module",
        "ml",
        "spack",
        "eval",
        "pyenv",
        "workon",
        "unset",
    )
)
_HARMLESS_EVAL = late(
    r"eval\s+[\"']?(?:\$\(|`)\s*(?:[\w./~${}-]*/)?(?:conda|mamba|micromamba|pyenv)\s+(?:shell\.\w+\s+hook|shell\s+hook"
    r"|init)[^)`;|&]*(?:\)|`)[\"']?(?:\s+2>\S+)?"
)
_CONDA_BASE = late(r"\$\(\s*(?:[\w./~${}-]*/)?conda\s+info\s+--base\s*\)")
# Files that only set up an environment.
_KNOWN_SOURCE = late(
    r"(?:^|/)(?:activate(?:\.sh)?|conda\.sh|mamba\.sh|profile|bash\.bashrc|\.bashrc|\.bash_profile|\.profile|setup-env\.sh"
    r"|set_env\.sh|modules?\.sh|lmod\.sh|z00_lmod\.sh|init/(?:bash|sh|profile)|environment)$"
)


class Preparation(Struct, frozen=True, kw_only=True):
    """A shell command that prepares the environment. `must`: later commands run only if this one succeeds."""

    raw: str
    kind: str  # "conda", "module", "source", "eval", "set"; "unknown": unknown effects, so it is not run
    must: bool = False


def of_assignment(command: SimpleCommand) -> list[Preparation]:
    """Returns a variable assignment as a preparation, because later preparations may use it.

    Empty if a program must run to get the value, except for conda's.
    """
    runs = _CONDA_BASE.sub("", command.raw)
    if not command.is_sure:
        return []
    return [] if "$(" in runs or "`" in runs else [Preparation(raw=command.raw, kind="set")]


def of_command(command: SimpleCommand, strict: bool) -> list[Preparation]:
    """Returns the preparations in a command that a check may run too, because they only change the environment."""
    words, first = command.words, command.words[0]
    must = strict or command.then == "&&"
    found = _changing(command, words, first, must)
    if not command.is_sure:  # what it would change is only known at run time
        return [structs.replace(one, kind="unknown", must=False) for one in found if one.kind != "set"]
    if command.then == "||":  # it may fail
        return [structs.replace(one, kind="unknown" if one.kind == "unknown" else "set") for one in found]
    return found


def _changing(command: SimpleCommand, words: Sequence[str], first: str, must: bool) -> list[Preparation]:
    if (
        first in ("conda", "mamba", "micromamba")
        and len(words) > 1
        and words[1] in ("activate", "deactivate")
    ):
        return [Preparation(raw=command.raw, kind="conda", must=must)]
    if first == "source" and len(words) > 2 and words[1] == "activate":
        return [Preparation(raw=command.raw, kind="conda", must=must)]
    if first in ("source", ".") and len(words) > 1:
        known = _KNOWN_SOURCE.search(words[1]) and "`" not in command.raw
        known = known and "$(" not in _CONDA_BASE.sub("", command.raw)
        return [Preparation(raw=command.raw, kind="source" if known else "unknown", must=must)]
    if first in ("module", "ml", "spack"):
        return [Preparation(raw=command.raw, kind="module", must=must)]
    if first == "eval" and _HARMLESS_EVAL.fullmatch(command.raw):
        return [Preparation(raw=command.raw, kind="eval", must=must)]
    if first == "unset":
        return [Preparation(raw=command.raw, kind="set")]
    return []
