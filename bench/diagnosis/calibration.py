"""Whether a diagnosis's confidence means what it says: of those said with 0.9, are nine in ten right?

usage: python -m bench.diagnosis.calibration CORPUS... [--svg docs/calibration.svg]

CORPUS: folders of labelled cases (case.json beside the logs). A case counts as right where the category is the label's
or one of its `also`. The fifth of the repositories that was held out while rules were written is told apart: a case
belongs to it by a hash of its repository's name. Prints a table as Markdown; --svg draws it.
"""

import argparse
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from holdfast.core.diagnosis.diagnose import diagnose
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.signatures import Signature
from holdfast.observe.search.rule_store import package_rules
from holdfast.observe.search.scan import search
from holdfast.observe.search.signature_store import package_signatures

EDGES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.01)
FIFTHS = 5
REPOSITORY = re.compile(r"github\.com/([^/]+/[^/]+)")


class Case(Struct, frozen=True):
    confidence: float
    is_right: bool
    is_held_out: bool


class Bin(Struct, frozen=True):
    low: float
    high: float
    cases: int
    said: float  # the mean confidence
    right: float  # the share that was right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, nargs="+")
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    signatures = package_signatures()
    with tempfile.TemporaryDirectory() as cache:
        cases = list(_cases(given.corpus, signatures, Path(cache)))
    for name, some in (
        ("all", cases),
        ("developed on", [case for case in cases if not case.is_held_out]),
        ("held out", [case for case in cases if case.is_held_out]),
    ):
        right = sum(case.is_right for case in some)
        print(f"{name}: {right} of {len(some)} right, {right / max(1, len(some)):.1%}")
    found = bins(cases)
    print("\n| confidence | cases | mean said | right |\n|---|---|---|---|")
    for one in found:
        print(f"| {one.low:.2f}–{min(1.0, one.high):.2f} | {one.cases} | {one.said:.2f} | {one.right:.2f} |")
    if given.svg:
        given.svg.write_text(svg(found))


def is_held_out(label: dict[str, object]) -> bool:
    """By repository, so that cases of one author are on one side."""
    repository = label.get("repo")
    salt = "holdfast"
    if not repository:
        found = REPOSITORY.search(str(label.get("source_url") or ""))
        repository, salt = (found[1] if found else f"?{label.get('provenance')}"), "holdfast-host"
    digest = hashlib.sha256(f"{salt}{repository}".encode()).hexdigest()
    return int(digest, 16) % FIFTHS == 0


def _cases(folders: Iterable[Path], signatures: Sequence[Signature], cache: Path) -> Iterator[Case]:
    known = KnowledgeBase(signatures, package_rules())
    for folder in folders:
        for path in sorted(folder.glob("**/case.json")):
            label = json.loads(path.read_text())
            if "category" not in label:
                continue
            with tempfile.TemporaryDirectory() as copy:
                logs = Path(copy) / "logs"
                shutil.copytree(path.parent, logs, ignore=shutil.ignore_patterns("case.json"))
                told = diagnose(search([logs], signatures, cache=cache), known)
            right = told.category in {label["category"], *(label.get("also") or [])}
            yield Case(told.confidence, right, is_held_out(label))


def bins(cases: Sequence[Case]) -> list[Bin]:
    found = []
    for low, high in zip(EDGES, EDGES[1:], strict=False):
        some = [case for case in cases if low <= case.confidence < high]
        if some:
            said = sum(case.confidence for case in some) / len(some)
            found.append(Bin(low, high, len(some), said, sum(case.is_right for case in some) / len(some)))
    return found


def svg(found: Sequence[Bin], size: int = 360, margin: int = 48) -> str:
    """A reliability diagram: what was said against what was right; the dots' area is the number of cases."""

    def x(value: float) -> float:
        return margin + value * size

    def y(value: float) -> float:
        return margin + (1 - value) * size

    whole = size + 2 * margin
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {whole}" font-family="sans-serif" font-size="12">',
        f'<rect width="{whole}" height="{whole}" fill="#ffffff"/>',
    ]
    for tick in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        parts.append(
            f'<path d="M{x(tick)} {y(0)}V{y(1)}M{x(0)} {y(tick)}H{x(1)}" stroke="#e4e4e4" fill="none"/>'
        )
        parts.append(f'<text x="{x(tick)}" y="{y(0) + 18}" text-anchor="middle">{tick:.1f}</text>')
        parts.append(f'<text x="{x(0) - 8}" y="{y(tick) + 4}" text-anchor="end">{tick:.1f}</text>')
    parts.append(f'<path d="M{x(0)} {y(0)}L{x(1)} {y(1)}" stroke="#888888" stroke-dasharray="4 4"/>')
    for one in found:
        radius = 3 + one.cases**0.5
        parts.append(
            f'<circle cx="{x(one.said):.1f}" cy="{y(one.right):.1f}" r="{radius:.1f}" fill="#2b6cb0" fill-opacity="0.7"/>'
        )
        parts.append(
            f'<text x="{x(one.said) - radius - 4:.1f}" y="{y(one.right) + 4:.1f}" text-anchor="end">{one.cases}</text>'
        )
    parts.append(f'<text x="{x(0.5)}" y="{whole - 8}" text-anchor="middle">confidence said</text>')
    parts.append(
        f'<text transform="translate(14 {y(0.5)}) rotate(-90)" text-anchor="middle">share that was right</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    main()
