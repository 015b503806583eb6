"""Little text is searched without compiling all signatures, whether it is in files or comes on stdin."""

import io

from holdfast.observe.logs.streams import ReadAhead
from holdfast.observe.search import scan
from observe.knowing import signature

OOM = signature("oom", r"out of memory")
OOM_LINE = b"CUDA out of memory\n"
MUCH = OOM_LINE + b"\n" * (3 << 20)


def searched(cache, *paths, stdin=None):
    """What was found, and whether all signatures were compiled for it."""
    found = scan.search(paths, [OOM], stdin=stdin, cache=cache)
    return [one.count for one in found.matches], any(path.suffix == ".hs" for path in cache.iterdir())


def test_signatures_are_compiled_for_much_text_only(tmp_path):
    assert searched(tmp_path / "a", stdin=io.BytesIO()) == ([], False)
    assert searched(tmp_path / "b", stdin=io.BytesIO(OOM_LINE)) == ([1], False)
    assert searched(tmp_path / "c", stdin=io.BytesIO(MUCH)) == ([1], True)


def test_many_small_files_are_much(tmp_path):
    (tmp_path / "logs").mkdir()
    for number in range(300):
        (tmp_path / "logs" / f"{number}.log").write_bytes(OOM_LINE)
    assert searched(tmp_path / "a", tmp_path / "logs" / "7.log") == ([1], False)
    assert searched(tmp_path / "b", tmp_path / "logs") == ([1] * 300, True)


def test_stdin_is_read_on_where_reading_ahead_ended():
    ahead = ReadAhead(io.BytesIO(b"abcdef"), 4)
    assert not ahead.is_all
    assert [ahead.read(3), ahead.read(3), ahead.read(3), ahead.read(3)] == [b"abc", b"d", b"ef", b""]
    whole = ReadAhead(io.BytesIO(b"abc"), 4)
    assert whole.is_all
    assert [whole.read(9), whole.read(9)] == [b"abc", b""]


def test_stdin_that_cannot_be_read_is_said_to_be(tmp_path):
    closed = io.BytesIO(OOM_LINE)
    closed.close()
    skipped = scan.search([], [OOM], stdin=closed, cache=tmp_path).skipped
    assert ["reading failed" in one.why for one in skipped] == [True]
