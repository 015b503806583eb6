"""Lines of one file, forwards and backwards: the same lines, whatever their ends and lengths."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.archive.output.log_files import LogFile
from holdfast.archive.output.timed_lines import SIZES, RawLine, Sizes, TimedLines
from holdfast.observe.logs.index import IndexWriter

TEXTS = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([b"\n", b"\r", b"\r\n"])), min_size=0, max_size=40
)


def log_of(path: Path, content: bytes) -> LogFile:
    path.write_bytes(content)
    return LogFile(path=path, name=path.name, attempt=1, worker=0, rank=None)


SMALL = Sizes(block_bytes=16, shown_bytes=12, piece_bytes=1 << 20)


@given(TEXTS, st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b"")))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_lines_are_the_same_in_both_directions(
    tmp_path: Path, lines: list[tuple[int, bytes]], rest: bytes
) -> None:
    content = b"".join(b"x" * size + end for size, end in lines) + rest
    with TimedLines(log_of(tmp_path / "stdout", content), SMALL) as file:
        forwards = list(file.forwards(0))
        assert [line.offset for line in forwards] == [0, *(line.end for line in forwards)][: len(forwards)]
        assert not forwards or forwards[-1].end == len(content)
        assert list(file.backwards(len(content)))[::-1] == forwards
        for line in forwards:
            assert content[line.offset : line.end].rstrip(b"\r\n")[:12] == line.text
            assert b"\n" not in content[line.offset : line.end - 1].rstrip(b"\r\n")
            middle = (line.offset + line.end) // 2
            assert file.line_start(middle) in (line.offset, line.end)


def test_a_long_line_is_cut_and_says_so(tmp_path: Path) -> None:
    content = b"first\n" + b"y" * (11 << 20) + b"\nlast\n"
    with TimedLines(log_of(tmp_path / "stdout", content)) as file:
        first, long, last = file.forwards(0)
    assert (first.text, last.text) == (b"first", b"last")
    assert len(long.text) == SIZES.shown_bytes
    assert long.cut_bytes == (11 << 20) + 1 - SIZES.shown_bytes


def test_times_come_from_the_index(tmp_path: Path) -> None:
    log = log_of(tmp_path / "stdout", b"one\ntwo\nthree\n")
    index = IndexWriter(log.path, print)
    index.append(100.0, 4)
    index.append(200.0, 8)
    index.close()
    with TimedLines(log) as file:
        lines = list(file.forwards(0))
        assert [(line.at_s, line.exact) for line in lines[:2]] == [(100.0, True), (200.0, True)]
        assert not lines[2].exact
        assert file.line_start(file.times.place(150.0)) == 4
        assert file.line_start(file.times.place(50.0)) == 0


def test_a_file_that_is_gone_has_no_lines(tmp_path: Path) -> None:
    log = log_of(tmp_path / "stdout", b"one\n")
    log.path.unlink()
    with TimedLines(log) as file:
        assert list(file.forwards(0)) == [] == list(file.backwards(10))


def test_lines_that_are_written_later_are_left_for_the_next_reading(tmp_path: Path) -> None:
    log = log_of(tmp_path / "stdout", b"one\n")
    with TimedLines(log) as file:
        log.path.write_bytes(b"one\ntwo\n")
        assert [line.text for line in file.forwards(0)] == [b"one"]
    with TimedLines(log) as file:
        assert file.line_at(4) == RawLine(4, 8, b"two", 0, file.times.of(8)[0], False)
