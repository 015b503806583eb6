"""Whether a diagnosis stands when a log is written otherwise: other prefixes, stamps, surroundings, hosts, two ranks.

usage: python -m bench.diagnosis.rewritten_logs CORPUS... [--only NAME] [--show]

CORPUS: folders of labelled cases (case.json beside the logs). A case that is right as it is must be right in each
writing: its category, its first error, its action. Cases held out (see calibration.py) are left alone. Prints for each
writing how many stood; --show names those that did not.
"""

import argparse
import gzip
import html
import json
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from bench.diagnosis.calibration import is_held_out
from holdfast.core.diagnosis.diagnose import diagnose
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.code_facts import CodeTables
from holdfast.model.diagnoses import Diagnosis
from holdfast.model.signatures import Signature
from holdfast.observe.search.code_store import package_tables
from holdfast.observe.search.rule_store import package_rules
from holdfast.observe.search.scan import search
from holdfast.observe.search.signature_store import package_signatures

BEFORE = (
    "Collecting einops==0.8.0",
    "  Downloading einops-0.8.0-py3-none-any.whl (43 kB)",
    "Successfully installed einops-0.8.0",
    "+ export OMP_NUM_THREADS=8",
    "Loading checkpoint shards: 100%|##########| 4/4 [00:03<00:00,  1.21it/s]",
    "/opt/venv/lib/python3.11/site-packages/torch/cuda/__init__.py:61: FutureWarning: The pynvml package is deprecated.",
    "INFO:root:dataset cache found, 1204 files, 0 errors",
    "model parameters: 1,316,202,496",
    "error_if_nonfinite: false",
    "retry_on_failure: 3",
)
AFTER = (
    "wandb: Run summary:",
    "wandb: Synced 5 W&B file(s), 0 media file(s), 2 artifact file(s) and 0 other file(s)",
    "+ rm -rf /scratch/tmp.Xa31",
    "real\t12m41.220s",
)
CHATTER = (
    "INFO metrics exporter: scraped 14 targets",
    "gpu utilisation 97 %, memory 61.2 GiB, 54 C",
    "data cache: hit rate 0.98, errors=0",
)
OF_A_RANK = re.compile(
    r"^\s*(?:\x1b\[[\d;]*m)*(?:\[(?:rank|default)?\d+\]|\d+: |\(\w+.{0,40}pid=|\[\d+,\d+\]|[\w.-]+: \[|\[\w+/)"
)
RANK = re.compile(r"(?P<before>\[rank|\[default|\brank[=: ]\s?|\bRank )(?P<rank>\d+)\b")
ADDED_TO_RANKS = 16
KERNEL_STAMP = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\] ", re.MULTILINE)
STEPS_EVERY = 5
SMALL_BYTES = 4 << 20

Files = Mapping[str, str]
Writing = Callable[[Files, str], Files | None]


class Case(Struct, frozen=True):
    """A labelled case. `label`: its case.json."""

    name: str
    label: Mapping[str, object]
    files: Files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, nargs="+")
    parser.add_argument("--only")
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    signatures, tables = package_signatures(), package_tables()
    cases = [case for folder in given.corpus for case in cases_of(folder)]
    with tempfile.TemporaryDirectory() as cache:
        look = Look(signatures, tables, Path(cache))
        before = {case.name: judged(case, look(case.files)) for case in cases}
        for name, writing in WRITINGS.items():
            if given.only in (None, name):
                _tell(name, writing, cases, before, look, given.show)


class Look:
    """Diagnoses files that are written into a folder of their own."""

    def __init__(self, signatures: Sequence[Signature], tables: CodeTables, cache: Path) -> None:
        self._signatures, self._tables, self._cache = signatures, tables, cache
        self._known = KnowledgeBase(signatures, package_rules())

    def __call__(self, files: Files, *, zipped: bool = False) -> Diagnosis:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path, data = Path(folder) / "logs" / name, text.encode(errors="surrogateescape")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data) if not zipped else Path(f"{path}.gz").write_bytes(
                    gzip.compress(data, 1)
                )
            found = search([Path(folder) / "logs"], self._signatures, cache=self._cache)
            return diagnose(found, self._known, self._tables)


def cases_of(folder: Path) -> Iterator[Case]:
    """The cases under a folder that are neither held out nor too long to be written so often."""
    for path in sorted(folder.glob("**/case.json")):
        label = json.loads(path.read_text())
        logs = [one for one in sorted(path.parent.rglob("*")) if one.is_file() and one != path]
        if (
            "category" in label
            and not is_held_out(label)
            and sum(one.stat().st_size for one in logs) < SMALL_BYTES
        ):
            texts = {
                str(one.relative_to(path.parent)): one.read_bytes().decode(errors="surrogateescape")
                for one in logs
            }
            yield Case(str(label["id"]), label, texts)


def judged(case: Case, told: Diagnosis) -> tuple[bool, bool, bool]:
    """Whether category, first error and action are those of the label."""
    label, also = case.label, case.label.get("also")
    allowed = {label["category"], *(also if isinstance(also, list) else [])}
    wanted = folded(str(label.get("first_error_line") or ""))
    said = folded(told.first_error.text if told.first_error else "")
    is_first = not wanted or label["category"] == "none" or bool(said) and (wanted in said or said in wanted)
    is_action = label.get("action") in (None, "unknown") or told.action == label["action"]
    return told.category in allowed, is_first, is_action


def folded(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _tell(
    name: str,
    writing: Writing,
    cases: Sequence[Case],
    before: Mapping[str, tuple[bool, bool, bool]],
    look: Look,
    show: bool,
) -> None:
    tried, stood, lost = 0, [0, 0, 0], [0, 0, 0]
    for case in cases:
        files = writing(case.files, folded(str(case.label.get("first_error_line") or "")))
        if files is None:
            continue
        tried += 1
        told = look(files, zipped=name == "zipped")
        now = judged(case, told)
        for index, (was, is_) in enumerate(zip(before[case.name], now, strict=True)):
            stood[index] += was and is_
            lost[index] += was and not is_
        if show and any(was and not is_ for was, is_ in zip(before[case.name], now, strict=True)):
            what = ", ".join(
                word
                for word, was, is_ in zip(
                    ("category", "first", "action"), before[case.name], now, strict=True
                )
                if was and not is_
            )
            said = told.first_error.text[:110] if told.first_error else ""
            print(f"    {case.name}: {what}; {told.category} {told.action} {said!r}")
    shares = " ".join(
        f"{word} {one}/{one + gone}"
        for word, one, gone in zip(("category", "first", "action"), stood, lost, strict=True)
    )
    print(f"{name:16} {tried:4} cases  {shares}", flush=True)


def _each_line(files: Files, change: Callable[[int, str], str]) -> Files:
    return {
        name: "".join(change(number, line) for number, line in enumerate(text.splitlines(keepends=True)))
        for name, text in files.items()
    }


def _has_ranks(files: Files) -> bool:
    return any(OF_A_RANK.match(line) for text in files.values() for line in text.splitlines())


def _prefixed(prefix: str) -> Writing:
    def write(files: Files, first: str) -> Files | None:
        return None if _has_ranks(files) else _each_line(files, lambda _, line: prefix + line)

    return write


def _stamped(form: str) -> Writing:
    """`form` takes h, m and s: seconds go by with the lines."""

    def stamp(number: int, line: str) -> str:
        second = number // 4
        return form.format(h=8 + second // 3600 % 12, m=second // 60 % 60, s=second % 60) + line

    return lambda files, first: _each_line(files, stamp)


def _between(every: int, lines: Sequence[str]) -> Writing:
    def put(number: int, line: str) -> str:
        more = lines[number // every % len(lines)] + "\n"
        return line if number % every or line[:1].isspace() else more + line

    return lambda files, first: _each_line(files, put)


def _around(files: Files, first: str) -> Files:
    return {name: "\n".join([*BEFORE * 4, text.rstrip("\n"), *AFTER, ""]) for name, text in files.items()}


def _renamed(pairs: Sequence[str]) -> Writing:
    def write(files: Files, first: str) -> Files:
        return {pairs[number % len(pairs)].format(number): text for number, text in enumerate(files.values())}

    return write


def _from_first_error(files: Files, first: str) -> Files | None:
    """Without what stands more than two lines above the first error."""
    for name, text in files.items():
        lines = text.splitlines(keepends=True)
        at = next((index for index, line in enumerate(lines) if first and first in folded(line)), None)
        if at is not None and at > 20:
            return {**files, name: "".join(lines[at - 2 :])}
    return None


def _ranks_renumbered(files: Files, first: str) -> Files | None:
    def more(found: re.Match[str]) -> str:
        return f"{found['before']}{int(found['rank']) + ADDED_TO_RANKS}"

    changed = {name: RANK.sub(more, text) for name, text in files.items()}
    return None if changed == dict(files) or RANK.search(first) else changed


def _two_ranks(files: Files, first: str) -> Files | None:
    """Each line twice, by two ranks, the second a few lines behind the first."""
    if _has_ranks(files):
        return None
    dice, found = random.Random(7), {}
    for name, text in files.items():
        lines, written, other = text.splitlines(), [], 0
        for number, line in enumerate(lines):
            written.append(f"[rank0]: {line}")
            while other < number and dice.random() < 0.7:
                written.append(f"[rank1]: {lines[other]}")
                other += 1
        written += [f"[rank1]: {line}" for line in lines[other:]]
        found[name] = "\n".join([*written, ""])
    return found


def _in_a_node_log(files: Files, first: str) -> Files | None:
    """A bare kernel's log as syslog writes it."""
    if not any(KERNEL_STAMP.search(text) for text in files.values()):
        return None
    return {
        name: KERNEL_STAMP.sub("Feb  3 04:05:06 nid004312 kernel: ", text) for name, text in files.items()
    }


def _docker_json(number: int, line: str) -> str:
    told = {
        "log": line,
        "stream": "stderr",
        "time": f"2031-05-06T08:{number // 60 % 60:02}:{number % 60:02}Z",
    }
    return json.dumps(told) + "\n"


def _journal_json(files: Files, first: str) -> Files | None:
    """A bare kernel's log as `journalctl -k -o json` writes it."""
    if not any(KERNEL_STAMP.search(text) for text in files.values()):
        return None

    def told(number: int, line: str) -> str:
        message = KERNEL_STAMP.sub("", line.rstrip("\n"))
        at = 1_900_000_000_000_000 + number * 1000
        fields = {"MESSAGE": message, "_HOSTNAME": "nid004312", "_TRANSPORT": "kernel", "PRIORITY": "3"}
        return json.dumps({"__REALTIME_TIMESTAMP": str(at), **fields, "SYSLOG_IDENTIFIER": "kernel"}) + "\n"

    return _each_line(files, told)


def _ends_early(files: Files, first: str) -> Files | None:
    """Without what stands more than three lines below the first error."""
    for name, text in files.items():
        lines = text.splitlines(keepends=True)
        at = next((index for index, line in enumerate(lines) if first and first in folded(line)), None)
        if at is not None and at + 4 < len(lines):
            return {**files, name: "".join(lines[: at + 4])}
    return None


def _cut(width: int) -> Writing:
    """As a viewer shows lines that are too long for it."""

    def cut(_: int, line: str) -> str:
        bare = line.rstrip("\n")
        return line if len(bare) <= width else bare[:width] + "…\n"

    return lambda files, first: _each_line(files, cut)


def _after_a_bar(files: Files, first: str) -> Files | None:
    """The first error stands on the line of a progress bar, as both are written to stderr."""
    for name, text in files.items():
        lines = text.splitlines(keepends=True)
        at = next((index for index, line in enumerate(lines) if first and first in folded(line)), None)
        if at is not None:
            bar = "".join(
                f"\r {done}%|#####     | {done}/100 [00:{done}<00:59,  1.01it/s]" for done in range(40, 44)
            )
            return {**files, name: "".join([*lines[:at], bar + lines[at], *lines[at + 1 :]])}
    return None


def _wrapped(width: int) -> Writing:
    """As a terminal of that many columns shows them."""

    def wrap(_: int, line: str) -> str:
        bare = line.rstrip("\n")
        parts = [bare[at : at + width] for at in range(0, len(bare), width)] or [""]
        return "\n".join(parts) + line[len(bare) :]

    return lambda files, first: _each_line(files, wrap)


WRITINGS: dict[str, Writing] = {
    "zipped": lambda files, first: files,
    "crlf": lambda files, first: {name: text.replace("\n", "\r\n") for name, text in files.items()},
    "indented": lambda files, first: _each_line(files, lambda _, line: "    " + line),
    "unindented": lambda files, first: _each_line(files, lambda _, line: line.lstrip(" \t")),
    "quoted": lambda files, first: _each_line(files, lambda _, line: "> " + line),
    "spaced": lambda files, first: _each_line(files, lambda _, line: line + "\n"),
    "coloured": lambda files, first: _each_line(
        files, lambda number, line: "\x1b[31m" + line.rstrip("\n") + "\x1b[0m\n"
    ),
    "html": lambda files, first: {name: html.escape(text) for name, text in files.items()},
    "numbered": lambda files, first: _each_line(files, lambda number, line: f"{number + 1:6}\t{line}"),
    "grep-names": lambda files, first: _each_line(files, lambda _, line: "logs/node-7/worker.err:" + line),
    "docker-json": lambda files, first: _each_line(files, _docker_json),
    "rank-torch": _prefixed("[rank3]:"),
    "rank-default": _prefixed("[default3]:"),
    "rank-srun": _prefixed("3: "),
    "rank-mpirun": _prefixed("[1,3]<stderr>:"),
    "rank-ray": _prefixed("(Worker pid=90211, ip=10.4.0.7) "),
    "host-pdsh": _prefixed("nid004312: "),
    "pod-kubectl": _prefixed("[pod/train-worker-3/pytorch] "),
    "stamp-docker": _stamped("2031-05-06T{h:02}:{m:02}:{s:02}.123456789Z "),
    "stamp-cri": _stamped("2031-05-06T{h:02}:{m:02}:{s:02}.123456789+08:00 stderr F "),
    "stamp-plain": _stamped("2031-05-06 {h:02}:{m:02}:{s:02} "),
    "stamp-brackets": _stamped("[2031-05-06 {h:02}:{m:02}:{s:02}] "),
    "stamp-logger": _stamped("2031-05-06 {h:02}:{m:02}:{s:02},123 - stderr - "),
    "node-log": _in_a_node_log,
    "journal-json": _journal_json,
    "around": _around,
    "chatter": _between(STEPS_EVERY, CHATTER),
    "wrapped-80": _wrapped(80),
    "wrapped-132": _wrapped(132),
    "cut-200": _cut(200),
    "from-first-error": _from_first_error,
    "ends-early": _ends_early,
    "after-a-bar": _after_a_bar,
    "ranks-renumbered": _ranks_renumbered,
    "two-ranks": _two_ranks,
    "names-slurm": _renamed(["slurm-48213{}.out"]),
    "names-ranks": _renamed(["attempt_0/{}/stderr.log"]),
    "names-nodes": _renamed(["node-7/job{}.err"]),
}


if __name__ == "__main__":
    main()
