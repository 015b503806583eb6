"""Are the known lines still named when somebody pastes only their words?

    python -m bench.diagnosis.pasted_lines [--show]

Each line that proves a signature of the package is cut down to its words: what a logger puts before it, numbers, quotes and
paths are left out. Named: the signature itself, or one of its category, is the first or
second meaning, near enough to be the answer. Prints the share named
first, and first or second, by signature and by category; and how long `holdfast explain` takes from its start to its end,
as a ratio to `python -c pass`.
"""

import argparse
import re
import statistics
import subprocess
import sys
import time

from holdfast.core.diagnosis.pasted import NAMED, filled_category
from holdfast.core.phrases.meanings import meanings_of
from holdfast.observe.search.code_store import package_tables
from holdfast.observe.search.phrase_store import package_index
from holdfast.observe.search.signature_store import package_signatures

# What loggers, launchers and the kernel put before a message.
HEAD = re.compile(
    r"^(?:\s*(?:\[[^\]]{0,60}\]|\d{4}-\d\d-\d\d[T ][\d:,.]+\S*|[A-Z][a-z]{2} +\d+ [\d:]{8}|\d\d:\d\d:\d\d\S*|[\w.-]+:\d+:\d+|\(\w+ pid=\d+\)|<\d>|(?:INFO|WARNING|ERROR|FATAL|WARN|kernel):?)\s*)+"
)
LEFT_OUT = re.compile(r"0x[0-9a-fA-F]+|/[\w./-]+|[\d]+|['\"`]")
WORDS_LEAST = 2  # what has fewer is no message
RUNS = 11


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--show", action="store_true", help="print what is not named")
    show = parser.parse_args().show
    known = package_signatures()
    index, tables = package_index(known), package_tables()
    every = {**index.own, **{one.id: one for one in known}}
    counts = {"lines": 0, "first": 0, "second": 0, "category first": 0, "category second": 0}
    for signature in known:
        if signature.role not in ("cause", "symptom"):
            continue
        for text in signature.matches:
            words = " ".join(LEFT_OUT.sub(" ", HEAD.sub("", text)).split())
            if len(re.findall(r"[A-Za-z]{2,}|[\u4e00-\u9fff]{2}", words)) < WORDS_LEAST:
                continue
            found = [one for one in meanings_of([words], index, every, tables)[:2] if one.score >= NAMED]
            ids = [one.near.signature for one in found]
            kinds = [kind_of(filled_category(every[one.near.signature], one.near.captures)) for one in found]
            kind = kind_of(signature.category)
            counts["lines"] += 1
            counts["first"] += ids[:1] == [signature.id]
            counts["second"] += signature.id in ids
            counts["category first"] += kinds[:1] == [kind]
            counts["category second"] += kind in kinds
            if show and kind not in kinds:
                print(f"{signature.id} ({kind}): {words[:110]} -> {list(zip(ids, kinds, strict=True))}")
    lines = counts.pop("lines")
    print(f"{lines} lines; " + ", ".join(f"{name} {count / lines:.1%}" for name, count in counts.items()))
    took_s, bare_s = seconds("-m", "holdfast", "explain", "Xid 79"), seconds("-c", "pass")
    print(f"holdfast explain: {took_s:.3f} s, {took_s / bare_s:.1f} times python -c pass ({bare_s:.3f} s)")


def kind_of(category: str) -> str:
    """All Xids are one kind here: their numbers were left out of the words."""
    return "xid" if category.startswith("xid_") else category


def seconds(*words: str) -> float:
    times = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


if __name__ == "__main__":
    main()
