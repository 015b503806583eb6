"""Line numbers of large logs, logs that grow, and both engines on any bytes."""

import io

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scan_kit import ALL, FAULT, MUCH, OOM_LINE, STEP, TRACE

from holdfast.observe.logs.blocks import BLOCK_BYTES
from holdfast.observe.logs.follow import Chunk
from holdfast.observe.logs.line_numbers import line_of, lines_of
from holdfast.observe.logs.tree import logs
from holdfast.observe.processes.watcher import Watcher
from holdfast.observe.search import scan

# One folder for all examples; and a machine that is slow to make them is no fault.
IN_A_FOLDER = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)


# Line numbers of large logs


def test_lines_of_large_logs_are_counted_when_asked(tmp_path, monkeypatch):
    text = (STEP % 7) * (4 * BLOCK_BYTES // 50) + OOM_LINE
    (tmp_path / "a.log").write_bytes(text)
    found = scan.search([tmp_path], ALL)
    (one,) = found.matches
    line = text.count(b"\n", 0, one.offset) + 1
    assert one.line == line
    assert line_of([tmp_path], "a.log", one.offset) == line
    assert line_of([tmp_path], "b.log", one.offset) is None
    assert line_of([tmp_path], "a.log", len(text) + 5) is None


@given(
    st.binary(max_size=60).map(lambda text: text.replace(b"\x01", b"\n")),
    st.lists(st.integers(0, 60), max_size=6),
)
@settings(suppress_health_check=IN_A_FOLDER)
def test_lines_of(tmp_path, text, offsets):
    path = tmp_path / "log"
    path.write_bytes(text)
    expected = [(one, text.count(b"\n", 0, one) + 1) for one in sorted(set(offsets)) if one <= len(text)]
    assert list(lines_of(path, offsets)) == expected


# Logs that grow


def chunk(*lines, source="stdout", offset=0):
    return Chunk(source, 1.0, offset, list(lines))


def test_a_watcher_sees_what_comes():
    watcher = Watcher(ALL)
    assert watcher.look([]) == ()
    assert watcher.look([chunk(b"step 1")]) == ()
    (one,) = watcher.look([chunk(b"x", b"\x1b[31m" + OOM_LINE.rstrip(), offset=100)])
    assert (one.signature, one.source, one.offset, one.line, one.count) == ("oom", 0, 102, 0, 1)
    assert one.text == OOM_LINE.decode().rstrip()
    (again,) = watcher.look([chunk(OOM_LINE.rstrip(), b"y", OOM_LINE.rstrip(), offset=300)])
    assert (again.offset, again.count) == (102, 3)
    (other,) = watcher.look([chunk(b"finished", source="rank-1.log")])
    assert (other.signature, other.source, other.writer.rank) == ("end", 1, 1)
    assert watcher.sources == ["stdout", "rank-1.log"]


def test_a_watcher_understands_a_traceback_in_one_poll():
    lines = (TRACE + OOM_LINE).splitlines()
    seen = Watcher(ALL).look([chunk(*lines)])
    assert {(one.signature, one.frame) for one in seen} == {
        ("python-traceback-start", ""),
        ("oom", "/data/train.py:88 step"),
    }


def test_a_loud_log_does_not_hide_a_fault_from_a_watcher():
    watcher = Watcher(ALL)
    for number in range(50):
        watcher.look([chunk(*[b"NCCL INFO word%d" % number] * 1000)])
    seen = watcher.look([chunk(*[b"NCCL INFO word"] * 1000, OOM_LINE.rstrip(), b"finished")])
    assert [one.signature for one in seen] == ["note", "oom", "end"]


# Both engines, whatever comes

PIECES = st.sampled_from(
    [
        OOM_LINE,
        TRACE,
        FAULT,
        STEP % 3,
        b"finished\n",
        b"NCCL INFO hi\n",
        b"\r",
        b"\n",
        b"\x1b[0m",
        b"[rank1]: ",
        b"\x00",
        b"caf\xc3\xa9 ",
        b"x" * 70,
    ]
)


@settings(max_examples=60, deadline=None, suppress_health_check=IN_A_FOLDER)
@given(pieces=st.lists(PIECES | st.binary(max_size=8), max_size=40))
def test_both_engines_give_the_same_search(tmp_path_factory, tmp_path, pieces):
    text = b"".join(pieces)
    (tmp_path / "log").write_bytes(text)
    cache = tmp_path_factory.getbasetemp() / "both"
    scan.search([], ALL, stdin=io.BytesIO(MUCH), cache=cache)
    assert scan.search([tmp_path], ALL, cache=cache) == scan.search([tmp_path], ALL)
    assert [log.name for log in logs([tmp_path], [])] in (["log"], [])
