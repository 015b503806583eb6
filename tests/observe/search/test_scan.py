"""The search: what is seen where, how often, by whom; and that nothing makes it slow, large or wrong."""

import gzip
import io
import tracemalloc

import pytest
from scan_kit import ALL, FAULT, MUCH, NOTE, OOM, OOM_LINE, STEP, TRACE

from holdfast.model.matches import Search
from holdfast.observe.logs.blocks import AHEAD_BYTES, BLOCK_BYTES, blocks, new_buffer
from holdfast.observe.logs.tree import logs
from holdfast.observe.search import scan
from holdfast.observe.search.automaton import engine
from holdfast.observe.search.sweep import START_BYTES_MAX, Allowance, Caps, Knowledge, Sweep
from observe.knowing import signature


@pytest.fixture(params=["plain", "fast"])
def search(request, tmp_path_factory, monkeypatch):
    """The search with each of the two engines."""
    cache = tmp_path_factory.mktemp("cache")
    if request.param == "fast":
        scan.search([], ALL, stdin=io.BytesIO(MUCH), cache=cache)  # compiles

    def searched(*paths, known=ALL, stdin=None) -> Search:
        return scan.search(paths, known, stdin=stdin, cache=cache if request.param == "fast" else None)

    return searched


def told(found):
    return [(one.signature, one.line, one.offset, one.count, one.last_offset) for one in found.matches]


def test_a_match_says_what_where_and_who(search, tmp_path):
    path = tmp_path / "rank-3.log"
    path.write_bytes(STEP % 1 + OOM_LINE + b"more\n\nand more\n" + STEP % 2)
    found = search(tmp_path)
    (source,) = found.sources
    assert (source.name, source.size_bytes, source.writer.rank) == ("rank-3.log", path.stat().st_size, 3)
    assert source.last_step_offset == path.read_bytes().rindex(b"2026")
    assert source.tail[-1] == (STEP % 2).decode().rstrip()
    assert len(source.tail) == 5
    (one,) = found.matches
    assert (one.signature, one.category, one.source, one.line) == ("oom", "gpu_oom", 0, 2)
    assert one.offset == one.last_offset == len(STEP % 1)
    assert one.text == OOM_LINE.decode().rstrip()
    assert one.captures == {"bytes": "2.00 GiB"}
    assert one.writer.rank == 3
    assert one.record == ("more", "and more", (STEP % 2).decode().rstrip())
    assert found.bytes_read == path.stat().st_size
    assert not found.skipped


def test_a_category_takes_its_code_from_the_line(search, tmp_path):
    (tmp_path / "dmesg").write_bytes(b"[  12.5] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus\n")
    (one,) = search(tmp_path).matches
    assert (one.category, one.writer.uptime_s) == ("xid_79", 12.5)


def test_repeats_are_counted_and_other_devices_are_not_repeats(search, tmp_path):
    lines = [
        b"[ %d.5] NVRM: Xid (PCI:0000:%02x:00): %d, pid=%d\n" % (n, n % 2, 79 if n < 4 else 31, n)
        for n in range(6)
    ]
    (tmp_path / "dmesg").write_bytes(b"".join(lines))
    found = search(tmp_path)
    assert [(one.captures["device"], one.captures["xid"], one.count, one.line) for one in found.matches] == [
        ("0000:00:00", "79", 2, 1),
        ("0000:01:00", "79", 2, 2),
        ("0000:00:00", "31", 1, 5),
        ("0000:01:00", "31", 1, 6),
    ]
    assert found.matches[0].last_offset == len(lines[0] + lines[1])


def test_ranks_in_one_file_are_apart(search, tmp_path):
    lines = b"".join(
        b"[rank%d]: CUDA out of memory. Tried to allocate 1 GiB\n" % rank for rank in (0, 1, 0, 1, 1)
    )
    (tmp_path / "stdout").write_bytes(lines)
    assert [(one.writer.rank, one.count) for one in search(tmp_path).matches] == [(0, 2), (1, 3)]


def test_labels_of_srun_that_are_nodes(search, tmp_path):
    oom = b"%d: [rank%d]: CUDA out of memory. Tried to allocate 1 GiB\n"
    (tmp_path / "slurm.out").write_bytes(b"1: NCCL INFO hello\n" + oom % (1, 9) + oom % (0, 1))
    found = search(tmp_path)
    assert [(one.signature, one.writer.rank, one.writer.worker) for one in found.matches] == [
        ("note", None, 1),
        ("oom", 9, 1),
        ("oom", 1, 0),
    ]


def test_several_signatures_on_one_line(search, tmp_path):
    (tmp_path / "log").write_bytes(b"NCCL INFO oops: CUDA out of memory. Tried to allocate 1 GiB\n" * 2)
    assert told(search(tmp_path)) == [("oom", 1, 0, 2, 60), ("note", 1, 0, 2, 60)]


def test_anchors_are_of_lines(search, tmp_path):
    (tmp_path / "log").write_bytes(b"finished not\nnot finished\nfinished\r\nx\rfinished\rfinished")
    found = search(tmp_path)
    assert [(one.count, one.line, one.offset) for one in found.matches] == [(3, 3, 26)]


def test_lines_end_at_carriage_returns_and_colours_go(search, tmp_path):
    bar = b"\r\x1b[32m 50%\x1b[0m | 5/10 [00:01<00:01, 5it/s]"
    text = (
        STEP % 1
        + bar * 3
        + b"\r\x1b[31mCUDA \x1b[1mout of\x1b[0m memory. Tried to allocate 3 GiB\x1b[0m\r\n"
        + b"\x1b[1mfinished\x1b[0m\n"
    )
    (tmp_path / "log").write_bytes(text)
    found = search(tmp_path)
    oom, end = found.matches
    assert oom.text == "CUDA out of memory. Tried to allocate 3 GiB"
    assert (oom.line, oom.offset) == (2, text.index(b"\x1b[31m"))
    assert (end.text, end.line, end.offset) == ("finished", 3, text.index(b"\x1b[1mfin"))
    assert found.sources[0].tail[-1] == "finished"


def test_nul_bytes_and_broken_characters(search, tmp_path):
    (tmp_path / "log").write_bytes(bytes(9000) + b"\xff\xfe\n" + OOM_LINE + b"NCCL INFO caf\xe9\n")
    oom, note = search(tmp_path).matches
    assert (oom.line, note.text) == (2, "NCCL INFO caf�")


def test_a_log_that_was_emptied_while_its_writer_went_on(search, tmp_path):
    (tmp_path / "log").write_bytes(bytes(100_000) + OOM_LINE)
    (one,) = search(tmp_path).matches
    assert (one.text, one.offset) == (OOM_LINE.decode().rstrip(), 100_000)


# Blocks


@pytest.mark.parametrize("packed", [False, True])
def test_what_stands_across_blocks_is_found_once_and_at_its_place(search, tmp_path, packed):
    marks = {}
    parts = []
    size = 0
    # A fault near each end of a block, and the lines around it longer and longer.
    for number in range(6):
        while size < (number + 1) * BLOCK_BYTES - 300 + number * 100:
            parts.append(b"x" * (37 + number) + b"\n")
            size += len(parts[-1])
        marks[size] = len(parts)
        parts.append(b"[rank%d]: " % number + OOM_LINE)
        size += len(parts[-1])
    text = b"".join(parts)
    (tmp_path / "log").write_bytes(gzip.compress(text, 1) if packed else text)
    found = search(tmp_path)
    assert {one.offset: one.line - 1 for one in found.matches} == marks
    assert all(one.count == 1 for one in found.matches)
    assert all(len(one.record) == 12 for one in found.matches[:-1])
    assert found.bytes_read == len(text)


@pytest.mark.parametrize("size", [BLOCK_BYTES + AHEAD_BYTES, BLOCK_BYTES, AHEAD_BYTES, 1])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_logs_as_long_as_a_block(search, tmp_path, size, more):
    text = (b"y" * 63 + b"\n") * (1 + (size + more) // 64)
    text = text[: max(0, size + more - len(OOM_LINE))] + b"\n"[: size > 99] + OOM_LINE
    (tmp_path / "log").write_bytes(text)
    (one,) = search(tmp_path).matches
    assert one.offset == len(text) - len(OOM_LINE)


def test_colours_across_blocks(search, tmp_path):
    line = b"\x1b[32mINFO\x1b[0m fine\r\n"
    text = line * (2 * BLOCK_BYTES // len(line)) + b"\x1b[31m" + OOM_LINE + line * 9
    (tmp_path / "log").write_bytes(text)
    (one,) = search(tmp_path).matches
    assert (one.offset, one.line) == (text.index(b"\x1b[31m"), text.count(b"\n", 0, one.offset) + 1)
    assert one.record == ("INFO fine",) * 9


@pytest.mark.parametrize("before", [40, 30_000])
def test_lines_that_a_terminal_cut_are_whole_and_stand_where_they_stood(search, tmp_path, before):
    """In the first block and in later ones, which are cut by the width that the first was seen to have."""
    written = [
        b"it has loaded shard %09d of the corpus from /scratch/team/data/tokens/part.bin in the night" % n
        for n in range(before)
    ]
    written += [
        b"[worker 3 of the second stage]: CUDA out of memory. Tried to allocate 3.25 GiB on top of it",
        b"finished",
    ]
    cut = b"".join(line[at : at + 80] + b"\n" for line in written for at in range(0, len(line), 80))
    (tmp_path / "log").write_bytes(cut)
    oom, end = search(tmp_path).matches
    at = cut.index(b"[worker 3")
    assert (oom.text.encode(), oom.offset) == (written[-2], at)
    assert oom.captures == {"bytes": "3.25 GiB"}
    assert (end.text, end.offset) == ("finished", cut.index(b"finished"))
    assert oom.line in (0, cut.count(b"\n", 0, at) + 1)


def test_a_very_long_line(search, tmp_path):
    """Of a line without end, what is around a match is kept."""
    noise = b"z" * (3 * BLOCK_BYTES)
    (tmp_path / "log").write_bytes(noise + OOM_LINE.rstrip() + noise + b"\nfinished\n")
    oom, end = search(tmp_path).matches
    assert "CUDA out of memory" in oom.text
    assert len(oom.text) <= 4000
    assert abs(oom.offset - len(noise)) <= START_BYTES_MAX
    assert end.line == 2


def test_what_a_long_line_begins_with(search, tmp_path):
    """Who wrote it counts; `^` means the true start, and a word is not seen where only a part of it is."""
    rest = b" " + b"x" * 5000
    (tmp_path / "log").write_bytes(
        b"[rank5]: " + rest + b" " + OOM_LINE + b"y" * 9000 + b"finished\n" + b"finished\n"
    )
    oom, end = search(tmp_path).matches
    assert (oom.writer.rank, oom.offset, oom.line) == (5, 0, 1)
    assert end.line == 3


def test_a_line_on_which_a_pattern_takes_long_holds_nothing_up(search, tmp_path):
    slow = signature("slow", r"(?:\w+ ?)+ killed \d+ times in a row, never")
    nasty = b"w" * 28 + b" " + b"w" * 600 + b" killed 12 times in a row\n"
    (tmp_path / "log").write_bytes(nasty * 3 + OOM_LINE)
    assert [one.signature for one in search(tmp_path, known=(*ALL, slow)).matches] == ["oom"]


def test_holes_part_lines(search, tmp_path):
    with (tmp_path / "log").open("wb") as file:
        file.write(OOM_LINE)
        file.seek(1 << 40)
        file.write(b"\n[rank7]: " + OOM_LINE)
        file.truncate(1 << 41)
    found = search(tmp_path)
    assert [one.offset for one in found.matches] == [0, (1 << 40) + 1]
    assert found.matches[1].writer.rank == 7


# Loud logs


def test_a_loud_signature_keeps_its_first_lines_and_its_last(search, tmp_path):
    lines = [b"NCCL INFO word%s\n" % (b"a" * n) for n in range(1000)] + [b"NCCL INFO last\n"]
    (tmp_path / "log").write_bytes(b"".join(lines) + OOM_LINE)
    found = [one for one in search(tmp_path).matches if one.signature == "note"]
    assert [one.text for one in found[:200]] == [line.decode().rstrip() for line in lines[:200]]
    assert (found[200].line, found[200].count, found[201].text) == (201, 801, "NCCL INFO last")
    assert len(found) == 202
    assert found[200].last_offset == found[201].offset
    assert found[201].line == 1001


def test_beyond_a_count_only_the_last_line_of_a_block_is_looked_at(search, tmp_path):
    many = Caps().lines + 500
    (tmp_path / "log").write_bytes(b"NCCL INFO word\n" * many + OOM_LINE)
    note, oom = search(tmp_path).matches
    assert Caps().lines < note.count <= many
    assert note.last_offset == 15 * (many - 1)
    assert oom.signature == "oom"


def test_when_memory_is_used_up_the_first_and_the_last_are_kept(tmp_path):
    known = Knowledge([NOTE, OOM])
    allowance = Allowance(10_000)
    for number in range(3):
        lines = b"".join(b"NCCL INFO %s\n" % (letters(n) * 200) for n in range(300))
        oom = b"".join(b"CUDA out of memory. Tried to allocate 1 GiB %s\n" % letters(n) for n in range(300))
        (tmp_path / f"{number}.log").write_bytes(lines + oom)
    for log in logs([tmp_path], []):
        sweep = Sweep(log.name, known, engine([NOTE, OOM], None), Caps(), allowance)
        for block in blocks(log, new_buffer()):
            sweep.take(block)
        source, entries = sweep.finish()
        notes = [entry for entry in entries if entry.number == 0]
        ooms = [entry for entry in entries if entry.number == 1]
        if log.name == "0.log":
            assert 3 < len(notes) < 20  # until it was used up
        else:
            assert [entry.count for entry in notes] == [1, 299, 1]
            assert all(len(entry.text) <= 400 for entry in entries)
            assert len(source.tail) == 3
        assert ooms[0].text.endswith(" g")
        assert ooms[-1].text.endswith(letters(299).decode())
        assert [entry.count for entry in ooms] == [1, 299, 1]


def letters(number):
    return bytes(103 + int(digit) for digit in str(number))


def test_many_tracebacks(search, tmp_path):
    """All are counted as one, and the last exception is seen."""
    body = b"".join(TRACE + b"ValueError: attempt %d failed\n" % n for n in range(300))
    (tmp_path / "log").write_bytes(body + TRACE + FAULT.removeprefix(b"[rank3]: "))
    found = search(tmp_path)
    exceptions = [one for one in found.matches if one.signature == "python-exception"]
    assert [one.error_type for one in exceptions] == ["ValueError", "RuntimeError"]
    assert exceptions[0].count > 50
    assert exceptions[1].frame == "/data/train.py:88 step"


def test_many_exceptions_that_differ(search, tmp_path):
    text = b"".join(TRACE + b"ValueError: no " + letters(number) + b"\n" for number in range(300))
    (tmp_path / "log").write_bytes(text)
    found = [one for one in search(tmp_path).matches if one.signature == "python-exception"]
    assert len(found) == 202
    assert (found[200].count, found[201].line) == (100, 300 * 6)
    assert found[201].captures["message"] == "no " + letters(299).decode()


# Tracebacks


def test_the_line_of_an_exception_says_where(search, tmp_path):
    (tmp_path / "log").write_bytes(STEP % 1 + TRACE + OOM_LINE)
    found = search(tmp_path)
    oom = next(one for one in found.matches if one.signature == "oom")
    assert (oom.frame, oom.error_type) == ("/data/train.py:88 step", "torch.OutOfMemoryError")
    assert [one.signature for one in found.matches] == ["python-traceback-start", "oom"]


def test_an_exception_that_no_signature_knows(search, tmp_path):
    lines = [b"[rank3]: " + line for line in TRACE.splitlines(keepends=True)] + [FAULT]
    (tmp_path / "log").write_bytes(b"".join(lines))
    start, exception = search(tmp_path).matches
    assert start.line == 1
    assert (exception.signature, exception.category) == ("python-exception", "python_exception")
    assert (exception.line, exception.writer.rank, exception.text) == (6, 3, FAULT.decode().rstrip())
    assert exception.captures == {"type": "RuntimeError", "message": "bad batch"}
    assert (exception.frame, exception.error_type) == ("/data/train.py:88 step", "RuntimeError")
    assert exception.outermost == "/data/train.py:88 step"
    assert exception.innermost == "/opt/lib/python3.11/site-packages/torch/_tensor.py:5 backward"


def test_tracebacks_of_ranks_that_interleave(search, tmp_path):
    lines = [
        b"[rank%d]: " % rank + line
        for line in (*TRACE.splitlines(keepends=True), b"ValueError: bad\n")
        for rank in range(8)
    ]
    (tmp_path / "log").write_bytes(b"".join(lines))
    exceptions = [one for one in search(tmp_path).matches if one.signature == "python-exception"]
    assert [one.writer.rank for one in exceptions] == list(range(8))
    assert {one.frame for one in exceptions} == {"/data/train.py:88 step"}


@pytest.mark.parametrize("before", range(0, 700, 90))
def test_a_traceback_across_blocks(search, tmp_path, before):
    """Wherever the block ends: among the frames, before the exception, behind it."""
    noise = b"x" * 49 + b"\n"
    text = noise * ((BLOCK_BYTES - before) // 50) + TRACE + OOM_LINE + noise * (AHEAD_BYTES // 50)
    (tmp_path / "log").write_bytes(text + noise * 9)
    found = search(tmp_path)
    assert [(one.signature, one.frame) for one in found.matches] == [
        ("python-traceback-start", ""),
        ("oom", "/data/train.py:88 step"),
    ]
    (tmp_path / "log").write_bytes(text.replace(OOM_LINE, b"ValueError: x\n") + noise * 9)
    assert [one.signature for one in search(tmp_path).matches] == [
        "python-traceback-start",
        "python-exception",
    ]


# Steps, tails, several logs


def test_the_last_step_before_a_long_tail_of_noise(search, tmp_path):
    noise = b"epoch of great iterations, its step by step guide\n" * 2
    text = STEP % 1 + STEP % 2 + b"trouble: " + OOM_LINE + noise * (BLOCK_BYTES // len(noise)) * 3
    (tmp_path / "log").write_bytes(text)
    assert search(tmp_path).sources[0].last_step_offset == len(STEP % 1)
    (tmp_path / "log").write_bytes(noise * 100)
    assert search(tmp_path).sources[0].last_step_offset is None


def test_where_a_log_names_no_steps_its_epochs_are_progress(search, tmp_path):
    epochs = [b"Epoch %d/9  loss 0.5\n" % n for n in range(1, 4)]
    (tmp_path / "log").write_bytes(OOM_LINE + b"".join(epochs))
    assert search(tmp_path).sources[0].last_step_offset == len(OOM_LINE + b"".join(epochs[:2]))
    (tmp_path / "log").write_bytes(STEP % 1 + STEP % 2 + OOM_LINE + b"".join(epochs))
    assert search(tmp_path).sources[0].last_step_offset == len(STEP % 1)
    (tmp_path / "log").write_bytes(b"resumed from epoch 3\nwas in epoch 4\n" + OOM_LINE)
    assert search(tmp_path).sources[0].last_step_offset is None


def test_where_the_last_few_steps_begin(search, tmp_path):
    steps = [STEP % n for n in range(1, 13)]
    (tmp_path / "log").write_bytes(b"".join(steps))
    few = search(tmp_path).sources[0].last_steps_offset
    assert few == len(b"".join(steps[:3]))  # with a ninth step, from which the eight went on
    assert search(tmp_path).sources[0].last_three_steps_offset == len(b"".join(steps[:9]))
    (tmp_path / "log").write_bytes(b"".join(steps[:5]))
    assert search(tmp_path).sources[0].last_steps_offset is None
    assert search(tmp_path).sources[0].last_three_steps_offset == len(b"".join(steps[:2]))
    (tmp_path / "log").write_bytes(b"".join(steps[:3]))
    assert search(tmp_path).sources[0].last_three_steps_offset is None


def test_a_tail_is_short(search, tmp_path):
    (tmp_path / "log").write_bytes(b"".join(b"%d " % n + b"w" * 3000 + b"\n" for n in range(100)))
    tail = search(tmp_path).sources[0].tail
    assert 15 < len(tail) <= 40
    assert all(len(line) <= 400 for line in tail)
    assert tail[-1].startswith("99 ")


def test_sources_are_in_order_and_matches_point_at_them(search, tmp_path):
    for rank in (10, 9, 2):
        (tmp_path / f"rank-{rank}.log").write_bytes(OOM_LINE * rank)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "thing.bin").write_bytes(bytes(range(256)))
    found = search(tmp_path)
    assert [source.name for source in found.sources] == ["empty", "rank-2.log", "rank-9.log", "rank-10.log"]
    assert [(found.sources[one.source].name, one.count) for one in found.matches] == [
        ("rank-2.log", 2),
        ("rank-9.log", 9),
        ("rank-10.log", 10),
    ]
    assert [one.name for one in found.skipped] == ["thing.bin"]


def test_nothing_to_search(search, tmp_path):
    assert search(tmp_path) == Search()
    assert search(tmp_path / "nothing").skipped[0].why == "it does not exist"
    assert search(tmp_path, known=()) == Search()


def test_stdin_beside_files(search, tmp_path):
    (tmp_path / "log").write_bytes(OOM_LINE)
    found = search(tmp_path, stdin=io.BytesIO(gzip.compress(OOM_LINE * 2)))
    assert [(source.name, source.size_bytes) for source in found.sources] == [
        ("log", len(OOM_LINE)),
        ("stdin", 2 * len(OOM_LINE)),
    ]
    assert [one.count for one in found.matches] == [1, 2]


def test_what_was_read_before_an_archive_breaks_counts(search, tmp_path):
    packed = gzip.compress(OOM_LINE + b"".join(b"%d\n" % (n * n) for n in range(200_000)))
    (tmp_path / "log.gz").write_bytes(packed[: len(packed) // 2])
    found = search(tmp_path)
    assert [one.signature for one in found.matches] == ["oom"]
    assert "is truncated" in found.skipped[0].why


def test_memory_does_not_grow_with_the_log(tmp_path):
    with (tmp_path / "log").open("wb") as file:
        for number in range(40):
            file.write(b"w" * BLOCK_BYTES if number % 4 == 3 else (STEP % number) * (BLOCK_BYTES // 60))
    tracemalloc.start()
    found = scan.search([tmp_path], ALL)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.bytes_read > 35 * BLOCK_BYTES
    assert most_bytes < 16 * BLOCK_BYTES
