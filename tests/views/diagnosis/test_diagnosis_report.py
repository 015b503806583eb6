"""The report and the JSON document of a diagnosis, from diagnoses made by hand."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from holdfast.model.diagnoses import FirstError
from holdfast.model.verdicts import Culprit
from holdfast.views.diagnosis.document import document, iso
from holdfast.views.diagnosis.report import ERROR_LINES_MAX, report
from holdfast.views.wrapping import cut, shown, wrapped
from views.diagnosis.diagnoses import AT_S, FALLEN_OFF, HEALTHY, OUT_OF_MEMORY, READ, SKIPPED, UNKNOWN

CASES = {
    "oom": (OUT_OF_MEMORY, READ),
    "xid": (FALLEN_OFF, SKIPPED),
    "unknown": (UNKNOWN, READ),
    "none": (HEALTHY, READ),
}


def page(diagnosis, read=READ, language="en", width=120, **more):
    return "\n".join(line.text for line in report(diagnosis, read, language, width, **more)) + "\n"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", CASES)
def test_the_report(golden, name, width, language):
    text = page(*CASES[name], language, width)
    golden(f"diagnose/{name}-{language}-{width}.txt", text)
    assert max(map(cell_len, text.splitlines())) <= width


def test_the_first_line_says_what_who_and_how_sure():
    first = page(OUT_OF_MEMORY).splitlines()[0]
    assert "GPU memory exhausted" in first
    assert "rank 5, host gpu-03, GPU 5" in first
    assert first.endswith("very likely")


def test_with_all_nothing_is_left_out():
    short, whole = page(FALLEN_OFF, SKIPPED), page(FALLEN_OFF, SKIPPED, everything=True)
    assert "and 3 more: --all" in short
    assert "core.4" not in short
    assert "--all" not in whole
    assert "part-7.txt" in whole
    assert "core.4" in whole


def test_a_long_line_is_cut_unless_all_is_asked_for():
    first = FirstError(file="a.log", line=7, text="error " * 500)
    diagnosis = replace(OUT_OF_MEMORY, first_error=first, evidence=())
    assert sum("error error" in line for line in page(diagnosis).splitlines()) == ERROR_LINES_MAX
    assert (
        page(diagnosis, everything=True).count("error ") + page(diagnosis, everything=True).count("error\n")
        >= 500
    )


def test_many_ranks_are_given_as_spans():
    culprits = tuple(Culprit(rank=rank) for rank in (0, 1, 2, 3, 7, 9, 10))
    assert "ranks 0-3, 7, 9, 10 ·" in page(replace(OUT_OF_MEMORY, culprits=culprits))


def test_secrets_are_masked_and_controls_do_not_reach_the_terminal():
    first = FirstError(
        file="a\x1b[2J.log", line=1, text="\x1b]0;x\x07 password=hunter2\tx\u202e", before=("\x9b31m",)
    )
    text = page(replace(OUT_OF_MEMORY, first_error=first))
    assert "hunter2" not in text
    assert not any(
        ord(char) < 32 and char != "\n" or 0x7F <= ord(char) < 0xA0 or char == "\u202e" for char in text
    )
    assert "0a1b2c3d" not in page(OUT_OF_MEMORY)
    assert "0a1b2c3d" not in json.dumps(document(OUT_OF_MEMORY, READ, "en"))


def test_the_document_is_that_of_the_contract():
    found = document(OUT_OF_MEMORY, READ, "en")
    assert list(found)[:12] == [
        *("category", "class", "confidence", "title", "explanation", "advice", "action", "culprits"),
        *("first_error", "evidence", "also", "scanned"),
    ]
    assert found["culprits"] == [{"rank": 5, "worker": 0, "host": "gpu-03", "device": "GPU 5"}]
    first = found["first_error"]
    assert (first["file"], first["line"], first["time"]) == (
        "worker-0/rank-5.log",
        1812,
        "2026-01-01T00:00:00.250Z",
    )
    assert first["text"] == OUT_OF_MEMORY.first_error.text
    assert {"file", "line", "text", "says", "signature"} <= set(found["evidence"][0])
    assert found["also"] == [{"category": "gpu_oom_external_process", "confidence": 0.02}]
    assert found["scanned"] == {"files": 9, "bytes": 1_234_567, "seconds": 0.41, "skipped": []}
    assert document(OUT_OF_MEMORY, READ, "zh")["title"] == OUT_OF_MEMORY.title.zh
    assert document(HEALTHY, READ, "en")["first_error"] is None


def test_a_name_that_is_no_text_can_still_be_said():
    first = FirstError(file="\udcff.log", line=1, text="x\ud800")
    assert msgspec.json.encode(document(replace(UNKNOWN, first_error=first), READ, "en"))
    page(replace(UNKNOWN, first_error=first)).encode()


@pytest.mark.parametrize(
    ("at_s", "says"),
    [(None, None), (AT_S, "2026-01-01T00:00:00.250Z"), (0.0, "1970-01-01T00:00:00.000Z"), (1e300, None),
     (float("nan"), None), (-1e15, None), (1.9999, "1970-01-01T00:00:01.999Z")],
)  # fmt: skip
def test_times_are_utc_with_milliseconds_or_nothing(at_s, says):
    assert iso(at_s) == says


TEXT = st.text(
    st.sampled_from("ab c。,显存（）(\t\n\x1b😀e\u0301") | st.characters(codec="utf-8"), max_size=60
)


@given(TEXT, st.integers(4, 40))
def test_lines_fit_and_no_character_is_lost(text, width):
    plain = shown(text)
    lines = wrapped(plain, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(plain.split())


@given(TEXT, st.integers(2, 40))
def test_what_is_cut_fits(text, width):
    assert cell_len(cut(shown(text), width)) <= width


def test_marks_do_not_begin_a_line():
    assert wrapped("显存不足。请减小", 8) == ["显存不", "足。请减", "小"]
    assert wrapped("one two,three", 8) == ["one", "two,three"[:8], "e"]
