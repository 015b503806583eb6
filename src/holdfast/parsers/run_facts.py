"""Parses what a training prints about itself before its first step: versions, seeds, arguments, variables. Pure.

    seed ............................................ 1234          Megatron-LM's table of arguments
    NCCL version 2.21.5+cuda12.4                                    a version in words
    PyTorch: 2.13.0                                                 a version behind a name
    lr=0.0003, batch_size = 32, "precision": "bf16"                 assignments
    Namespace(lr=0.0003, seed=1)                                    argparse

Only names that look like settings count; lines of steps and warnings are ignored.
"""

from collections.abc import Iterable

from holdfast.late_pattern import late
from holdfast.model.runs.comparison import Fact, FactKind
from holdfast.parsers.log_lines.secrets import masked

FACTS_MAX = 4_000
LINE_CHARACTERS_MAX = 16_000
VALUE_CHARACTERS_MAX = 300
DOTTED = late(r"^\s*(?:\[[^\]]*\]:?\s*)*([A-Za-z][\w-]{1,60}) \.{2,} (.+?)\s*$")
ASSIGNED = late(
    r"""["']?\b([A-Za-z][A-Za-z0-9_.-]{0,60})["']?\s?[=:]\s?("[^"]{0,200}"|'[^']{0,200}'|[^\s,;|(){}\[\]"']{1,200})"""
)
VERSION_WORDS = late(
    r"(?i)\b(pytorch|torch|cuda|cudnn|nccl|python|transformers|deepspeed|megatron(?:-lm)?|numpy|triton|flash[_-]attn"
    r"|driver|torchvision|datasets|accelerate|apex|transformer[_ ]engine|holdfast|jax|xla|rccl|hccl|cann)"
    r"(?:[_ ]?version)?\s{0,4}[:=]?\s{0,4}v?(\d+\.\d+[\w.+-]*)"
)
UPPER = late(r"^[A-Z][A-Z0-9_]{2,}$")
NUMBERED = late(
    r"(?i)(?:step|iter(?:ation)?|epoch|loss|elapsed|eta|grad[_ ]?norm|it/s|throughput|progress)s?$"
)
# From the first such line on, a log reports steps and no more settings.
STEP_LINE = late(
    r"(?i)\b(?:step|iter(?:ation)?|epoch|update)s?\b[\s:=\[\]#/]{0,6}\d|\d ?it/s|\d ?s/it|['\"]loss['\"]\s*:"
)
CLOCK = late(r"^\d{1,2}(?::\d{2}){1,2}")


def run_facts(lines: Iterable[str]) -> tuple[Fact, ...]:
    """Returns the settings, versions and variables in a log's lines before its first step; the last value of
    a name counts.
    """
    found: dict[tuple[FactKind, str], Fact] = {}
    for line in lines:
        if STEP_LINE.search(line[:LINE_CHARACTERS_MAX]):
            break
        for fact in _of_line(line[:LINE_CHARACTERS_MAX]):
            if len(found) < FACTS_MAX or (fact.kind, fact.name) in found:
                found[fact.kind, fact.name] = fact
    return tuple(found.values())


def _of_line(line: str) -> list[Fact]:
    if match := DOTTED.search(line):
        return [_fact("setting", match[1], match[2])]
    versions = [_fact("version", match[1].lower(), match[2]) for match in VERSION_WORDS.finditer(line)]
    if versions:
        return versions
    found = []
    for match in ASSIGNED.finditer(line):
        name, value = match[1], match[2].strip("\"'")
        if not value or NUMBERED.search(name) or CLOCK.match(value) or len(name) < 2:
            continue
        kind: FactKind = "environment" if UPPER.match(name) else "setting"
        found.append(_fact(kind, name, value))
    return found


def _fact(kind: FactKind, name: str, value: str) -> Fact:
    """Returns a start condition; its value is masked if its name or form is that of a secret."""
    text = masked(f"{name}={value}")
    return Fact(kind=kind, name=name, value=text.partition("=")[2][:VALUE_CHARACTERS_MAX])
