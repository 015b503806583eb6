"""Kernel lines in every dialect that was collected are matched, by both engines."""

import csv
from pathlib import Path

import pytest

from holdfast.observe.scan import search
from known import PACKAGE

PATTERNS = Path(__file__).parents[3] / "shared" / "facts" / "kernel_patterns.csv"
SIGNATURES = [one for one in PACKAGE if one.area != "worker"]
NO_FACTS = "the folder of facts (shared/facts/kernel_patterns.csv) is not beside this checkout"


def _rows():
    if not PATTERNS.is_file():
        return []
    with PATTERNS.open(newline="") as file:
        return list(csv.DictReader(file))


def _lines(row):
    texts = [row["example_line"], *row["variants"].split(" || ")]
    return [text.strip("\n") for text in texts if text.strip()]


@pytest.mark.skipif(not PATTERNS.is_file(), reason=NO_FACTS)
def test_there_are_as_many_kinds_as_were_collected():
    assert len(_rows()) == 66


@pytest.mark.skipif(not PATTERNS.is_file(), reason=NO_FACTS)
@pytest.mark.parametrize("padding", [0, 3 << 20], ids=["re", "automaton"])
def test_every_dialect_is_matched(tmp_path, padding):
    # each line in a file of its own; one file so large that all are searched by the automaton
    names = {}
    for row in _rows():
        for number, line in enumerate(_lines(row)):
            names[f"{row['id']}-{number}.log"] = line
    for name, line in names.items():
        (tmp_path / name).write_text(line.replace("\\n", "\n") + "\n")
    (tmp_path / "zz-padding.log").write_bytes(b"a quiet line of no meaning\n" * (padding // 27))
    found = search([tmp_path], SIGNATURES)
    seen = {found.sources[one.source].name.rpartition("/")[2] for one in found.sightings}
    missed = {name: line for name, line in names.items() if name not in seen}
    assert missed == {}
