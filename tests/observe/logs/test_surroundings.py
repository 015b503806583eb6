"""The lines around the first error, from wherever it stood."""

import gzip
import io
import tarfile

import pytest

from holdfast.model.diagnoses import FirstError
from holdfast.observe.logs.surroundings import AROUND_BYTES, with_surroundings

TEXT = "one\ntwo\nthree\nRuntimeError: bad batch\nfive\nsix\nseven\neight\n"
ERROR = "RuntimeError: bad batch"


def first(file, text=TEXT, error=ERROR):
    return FirstError(file=file, line=1, text=error, offset=text.encode().find(error.encode()))


def lines(found):
    return found.before, found.after


AROUND = (("one", "two", "three"), ("five", "six", "seven"))


def test_in_a_file_of_a_folder_and_in_one_that_was_named(tmp_path):
    (tmp_path / "worker-0").mkdir()
    file = tmp_path / "worker-0" / "rank-1.log"
    file.write_text(TEXT)
    assert lines(with_surroundings(first("worker-0/rank-1.log"), [tmp_path])) == AROUND
    assert lines(with_surroundings(first("rank-1.log"), [file])) == AROUND


def test_in_a_compressed_file_and_in_an_archive(tmp_path):
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(TEXT.encode()))
    with tarfile.open(tmp_path / "logs.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("w/rank-1.log")
        member.size = len(TEXT)
        archive.addfile(member, io.BytesIO(TEXT.encode()))
    assert lines(with_surroundings(first("a.log.gz"), [tmp_path])) == AROUND
    assert lines(with_surroundings(first("logs.tar.gz/w/rank-1.log"), [tmp_path])) == AROUND


@pytest.mark.parametrize("many", [1, 8_000])
def test_deep_in_a_long_log_and_at_its_ends(tmp_path, many):
    text = "quiet line\n" * many + TEXT
    (tmp_path / "a.log").write_text(text)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(text.encode()))
    assert many == 1 or text.find(ERROR) > AROUND_BYTES
    assert lines(with_surroundings(first("a.log", text), [tmp_path])) == AROUND
    assert lines(with_surroundings(first("b.log.gz", text), [tmp_path])) == AROUND
    end = "last words"
    (tmp_path / "a.log").write_text(text + end)
    assert lines(with_surroundings(first("a.log", text + end, end), [tmp_path])) == (
        ("six", "seven", "eight"),
        (),
    )
    (tmp_path / "a.log").write_text(f"{end}\n{text}")
    begin = with_surroundings(first("a.log", f"{end}\n{text}", end), [tmp_path])
    assert begin.before == ()
    assert len(begin.after) == 3


def test_the_nearest_of_equal_lines(tmp_path):
    text = "a\nx\nb\nx\nc\n"
    (tmp_path / "a.log").write_text(text)
    found = FirstError(file="a.log", line=4, text="x", offset=6)
    assert lines(with_surroundings(found, [tmp_path])) == (("a", "x", "b"), ("c",))


def test_colours_and_returns_are_no_part_of_lines(tmp_path):
    text = "10%\r20%\r\n\x1b[31mRuntimeError: bad batch\x1b[0m\nnext\n"
    (tmp_path / "a.log").write_bytes(text.encode())
    assert lines(with_surroundings(first("a.log", text), [tmp_path])) == (("10%", "20%"), ("next",))


def test_what_changed_since_or_is_gone_is_left_out(tmp_path):
    here = first("a.log")
    assert with_surroundings(here, [tmp_path]) == here
    (tmp_path / "a.log").write_text("something else\n")
    assert with_surroundings(here, [tmp_path]) == here
    (tmp_path / "a.log").write_bytes(b"")
    assert with_surroundings(here, [tmp_path]) == here
    assert with_surroundings(first("stdin"), []) == first("stdin")


def test_of_a_line_that_a_terminal_cut_its_first_part_is_looked_for(tmp_path):
    error = "RuntimeError: the batch of rank three has another shape than all the others have, which is said here at length"
    text = TEXT.replace(ERROR, f"{error[:80]}\n{error[80:]}")
    (tmp_path / "a.log").write_text(text)
    told = FirstError(file="a.log", line=4, text=error, offset=text.index(error[:80]))
    assert lines(with_surroundings(told, [tmp_path])) == (
        ("one", "two", "three"),
        (error[80:], "five", "six"),
    )
