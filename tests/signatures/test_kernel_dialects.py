"""Kernel lines in every dialect that was collected are matched, by both engines."""

import csv
from pathlib import Path

import pytest

from holdfast.observe.search.scan import search
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
    seen = {found.sources[one.source].name.rpartition("/")[2] for one in found.matches}
    missed = {name: line for name, line in names.items() if name not in seen}
    assert missed == {}


SXID = "[6781753.4] nvidia-nvswitch2: SXid (PCI:0000:07:00.0): "


@pytest.mark.parametrize(
    ("lines", "category", "action"),
    [
        (
            ("20034, Severity 1 Engine instance 60 Sub-engine instance 00", "20034, Data {0x1000, 0x0}"),
            "sxid",
            "reset_gpu",
        ),
        (("20034, Link 48 LTSSM Fault Up",), "sxid", "reset_gpu"),
        (("20034",), "sxid", "reset_gpu"),
        (("12028, Severity 0 Engine instance 44 Sub-engine instance 00",), "sxid", "none"),
        (("22013, Severity 0 Engine instance 44 Sub-engine instance 00",), "none", "none"),
    ],
)
def test_an_sxid_whose_first_line_is_missing_is_what_its_table_says(diagnosis, lines, category, action):
    found = diagnosis("".join(f"{SXID}{line}\n" for line in lines))
    assert (found.category, found.action) == (category, action)
    if category == "sxid":
        assert found.culprits[0].device == "0000:07:00.0"
        assert lines[0][:5] in found.title.en


def test_further_words_of_an_sxid_are_no_second_one(diagnosis):
    found = diagnosis(
        f"{SXID}20034, Fatal, Link 48 LTSSM Fault Up\n{SXID}20034, Severity 1 Engine instance 60\n"
    )
    assert "Fatal" in found.first_error.text
    assert len(found.evidence) == 1
