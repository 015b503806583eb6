"""Formats the results of the GPU day as JSON and Markdown."""

from pathlib import Path

import msgspec
from msgspec import Struct


class Part(Struct):
    """The result of one part. `facts`: measured values by name; `problems`: what Holdfast or the machine got wrong;
    `skipped`: the reason why it did not run, empty if it ran.
    """

    name: str = ""
    facts: dict[str, str] = msgspec.field(default_factory=dict)
    problems: list[str] = msgspec.field(default_factory=list)
    skipped: str = ""
    took_s: float = 0.0


def verdict(part: Part) -> str:
    if part.skipped:
        return f"skipped: {part.skipped}"
    return f"{len(part.problems)} problems" if part.problems else "as expected"


def line(part: Part) -> str:
    return f"{part.name}: {verdict(part)} ({part.took_s:.1f} s)"


def summary(parts: list[Part]) -> str:
    ran = [part for part in parts if not part.skipped]
    wrong = sum(bool(part.problems) for part in ran)
    return f"{len(ran)} parts ran, {wrong} with problems, {len(parts) - len(ran)} skipped"


def write(folder: Path, parts: list[Part]) -> None:
    """Writes gpu_day.json and gpu_day.md, whole each time."""
    (folder / "gpu_day.json").write_bytes(msgspec.json.format(msgspec.json.encode(parts)))
    rows = ["# GPU day", "", summary(parts), "", "| part | result | seconds |", "|---|---|---|"]
    rows += [f"| {part.name} | {verdict(part)} | {part.took_s:.1f} |" for part in parts]
    for part in parts:
        if part.facts or part.problems:
            rows += ["", f"## {part.name}", ""]
            rows += [f"- **problem**: {one}" for one in part.problems]
            rows += [f"- {name}: {value}" for name, value in part.facts.items()]
    (folder / "gpu_day.md").write_text("\n".join(rows) + "\n")
