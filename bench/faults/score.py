"""Scores a tool on a folder of labelled cases, also on abstaining: `python -m bench.faults.score CORPUS --cmd "TOOL {folder}"`.

The tool sees a copy of each case without its label, as `{folder}`, and prints JSON:
{"category": "...", "culprits": [{"rank": 2}], "first_error": {"text": "..."}, "action": "..."}.

cause      the label's `category` or one of `also`
culprit    the label's rank, and no other; of a case without a culprit: none is named (abstained)
first      the label's `first_error_line`, white space folded; either may hold the other
action     the label's `action` or one of `action_also`; cases labelled `unknown` are left out
healthy    cases labelled `none` that the tool calls `none`
"""

import argparse
import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Answer = Mapping[str, Any]


def main() -> int:
    options = read_options()
    totals: dict[str, list[bool]] = {}
    for path in sorted(options.corpus.glob("*/case.json")):
        label = json.loads(path.read_text())
        answer = asked(options.cmd, path.parent, options.timeout)
        marks = scored(label, answer)
        for name, right in marks.items():
            totals.setdefault(name, []).append(right)
        if options.show and not all(marks.values()):
            wrong = ", ".join(name for name, right in marks.items() if not right)
            print(f"{label['id']}: {wrong}; said {answer.get('category')}, expected {label['category']}")
    print("| what | right | of |\n|---|---|---|")
    for name, rights in totals.items():
        print(f"| {name} | {sum(rights)} | {len(rights)} |")
    return 0


def scored(label: Answer, answer: Answer) -> dict[str, bool]:
    """Returns what applies to the case, and whether the answer is right. Pure."""
    category, culprit = answer.get("category"), label.get("culprit") or {}
    named = {one["rank"] for one in answer.get("culprits") or () if one.get("rank") is not None}
    marks = {"cause": category in (label["category"], *label.get("also", ()))}
    if label["category"] == "none":
        marks["healthy"] = category == "none"
    if culprit:
        marks["culprit"] = named == {culprit["rank"]}
    else:
        marks["abstained"] = not named
    if wanted := folded(label.get("first_error_line")):
        got = folded((answer.get("first_error") or {}).get("text"))
        marks["first"] = bool(got) and (wanted in got or got in wanted)
    if label.get("action") not in (None, "unknown"):
        marks["action"] = answer.get("action") in (label["action"], *label.get("action_also", ()))
    return marks


def folded(text: str | None) -> str:
    return " ".join((text or "").split())


def asked(command: str, case: Path, timeout_s: float) -> Answer:
    """Returns the tool's answer; empty where it gave none."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "logs"
        shutil.copytree(case, folder, ignore=shutil.ignore_patterns("case.json"))
        words: Sequence[str] = [word.replace("{folder}", str(folder)) for word in shlex.split(command)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False)
            answer = json.loads(done.stdout)
        except (subprocess.TimeoutExpired, ValueError):
            return {}
        return answer if isinstance(answer, dict) else {}


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--cmd", default="holdfast diagnose {folder} --json")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one case")
    parser.add_argument("--show", action="store_true", help="print the cases that are wrong")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
