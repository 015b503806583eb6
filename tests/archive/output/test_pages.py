"""Pages of output: on one time axis, by cursor, by time and by pattern."""

from pathlib import Path

import pytest

from holdfast.archive.output.cursors import BadCursor, read, written
from holdfast.archive.output.log_files import LogFile, Selection, log_files
from holdfast.archive.output.pages import Start, TooManyFiles, page
from holdfast.archive.output.patterns import BadPattern, compiled
from holdfast.journal.jobdir import JobDir
from holdfast.model.documents.output import OutputPage
from holdfast.observe.logs.index import IndexWriter


def write_log(folder: Path, name: str, lines: list[tuple[float, str]]) -> None:
    """Each line is noted in the index at its time."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    index = IndexWriter(path, print)
    with path.open("ab") as file:
        for at_s, text in lines:
            file.write(text.encode() + b"\n")
            index.append(at_s, file.tell())
    index.close()


@pytest.fixture
def job(tmp_path: Path) -> JobDir:
    worker = tmp_path / "llama" / "attempt-001" / "worker-0"
    write_log(worker, "rank-0.log", [(10.0 + 2 * number, f"r0 step {number}") for number in range(50)])
    write_log(worker, "rank-1.log", [(11.0 + 2 * number, f"r1 step {number}") for number in range(50)])
    write_log(worker, "stderr", [(5.0, "launched"), (200.0, "Traceback"), (200.0, "ValueError: bad")])
    write_log(tmp_path / "llama" / "attempt-002" / "worker-1", "stdout", [(300.0, "again")])
    return JobDir(tmp_path / "llama")


def texts(found: OutputPage) -> list[str]:
    return [line.text for line in found.lines]


def test_files_are_chosen_by_attempt_worker_and_rank(job: JobDir) -> None:
    assert [one.name for one in log_files(job, Selection(attempt=1))] == [
        "attempt-001/worker-0/stderr",
        "attempt-001/worker-0/rank-0.log",
        "attempt-001/worker-0/rank-1.log",
    ]
    assert [one.rank for one in log_files(job, Selection(ranks=(1,)))] == [1]
    assert [one.name for one in log_files(job, Selection(workers=(1,)))] == ["attempt-002/worker-1/stdout"]
    (only,) = log_files(job, Selection(file="attempt-001/worker-0/stderr"))
    assert (only.document().from_s, only.document().to_s) == (5.0, 200.0)


@pytest.mark.parametrize("name", ["../llama/created", "attempt-001/../../secret", "/etc/passwd", ""])
def test_no_name_leaves_the_folder(job: JobDir, name: str) -> None:
    (job.path / "created").write_text("1.0")
    assert log_files(job, Selection(file=name)) == []


def test_the_last_page_comes_first_and_cursors_lead_back_to_the_start(job: JobDir) -> None:
    logs = log_files(job, Selection(attempt=1))
    start = Start(limit=30)
    seen: list[str] = []
    while True:
        found = page(logs, start)
        seen = texts(found) + seen
        if not found.before:
            break
        start = Start(cursor=found.before, limit=30)
    assert len(seen) == 103
    assert seen[:4] == ["launched", "r0 step 0", "r1 step 0", "r0 step 1"]
    assert seen[-2:] == ["Traceback", "ValueError: bad"]


def test_pages_after_the_start_are_the_same_lines(job: JobDir) -> None:
    logs = log_files(job, Selection(attempt=1))
    everything = texts(page(logs, Start(direction="after", limit=2000)))
    start = Start(direction="after", limit=7)
    seen: list[str] = []
    while lines := texts(found := page(logs, start)):
        seen += lines
        start = Start(direction="after", cursor=found.after, limit=7)
    assert seen == everything


def test_new_lines_come_after_the_last_cursor(job: JobDir) -> None:
    last = page(log_files(job), Start())
    write_log(job.path / "attempt-002" / "worker-1", "stdout", [(400.0, "more")])
    write_log(job.path / "attempt-002" / "worker-1", "rank-7.log", [(401.0, "a new rank")])
    found = page(log_files(job), Start(direction="after", cursor=last.after))
    assert texts(found) == ["more", "a new rank"]


def test_a_page_starts_at_a_second(job: JobDir) -> None:
    found = page(log_files(job), Start(direction="after", at_s=50.0, limit=3))
    assert texts(found) == ["r0 step 20", "r1 step 20", "r0 step 21"]
    before = page(log_files(job), Start(direction="before", at_s=50.0, limit=2))
    assert texts(before) == ["r0 step 19", "r1 step 19"]


def test_a_page_around_a_line_has_it_in_its_middle(job: JobDir) -> None:
    logs = log_files(job, Selection(file="attempt-001/worker-0/rank-0.log"))
    offset = page(logs, Start(direction="after", at_s=50.0)).lines[0].place.offset
    found = page(logs, Start(direction="around", offset=offset, limit=5))
    assert texts(found) == [f"r0 step {number}" for number in range(18, 23)]
    assert texts(page(logs, Start(cursor=found.before, limit=1))) == ["r0 step 17"]
    assert texts(page(logs, Start(direction="after", cursor=found.after, limit=1))) == ["r0 step 23"]


def test_the_first_error_is_marked(job: JobDir) -> None:
    found = page(
        log_files(job, Selection(attempt=1)),
        Start(limit=3),
        marked={"attempt-001/worker-0/stderr": len("launched\nTraceback\n")},
    )
    assert [line.first_error for line in found.lines] == [False, False, True]


def test_a_pattern_is_searched_in_order_of_time(job: JobDir) -> None:
    logs = log_files(job, Selection(attempt=1))
    start = Start(direction="after", limit=4)
    seen: list[str] = []
    while lines := texts(found := page(logs, start, pattern=compiled(r"step [34]\d$|Error"), scan_bytes=64)):
        seen += lines
        start = Start(direction="after", cursor=found.after, limit=4)
    expected = [f"r{rank} step {number}" for number in range(30, 50) for rank in (0, 1)]
    assert seen == [*expected, "ValueError: bad"]


def test_a_pattern_that_matches_everywhere_finds_every_line(job: JobDir) -> None:
    found = page(log_files(job), Start(direction="after", limit=2000), pattern=compiled(".", ends_max=5))
    assert len(found.lines) == 104 and found.scanned_bytes == found.size_bytes


def test_a_search_that_takes_too_long_goes_on_by_its_cursor(job: JobDir) -> None:
    ticks = iter(range(0, 10_000, 3))
    logs = log_files(job)
    found = page(
        logs, Start(direction="after"), pattern=compiled("again"), monotonic=lambda: float(next(ticks))
    )
    tries = 0
    while not found.lines and tries < 20:
        tries += 1
        start = Start(direction="after", cursor=found.after)
        found = page(logs, start, pattern=compiled("again"), monotonic=lambda: float(next(ticks)))
    assert texts(found) == ["again"] and tries > 0


@pytest.mark.parametrize("text", ["", "(", "(?=x)y", r"(a)\1", "x" * 1001, "a*"])
def test_a_pattern_that_cannot_be_searched_is_refused(text: str) -> None:
    with pytest.raises(BadPattern):
        compiled(text)


@pytest.mark.parametrize("cursor", ["x", "!!", "a" * 20_000, written({"stdout": -1})])
def test_a_cursor_of_others_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursor):
        read(cursor)


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    logs = [
        LogFile(path=tmp_path / str(number), name=str(number), attempt=1, worker=0, rank=number)
        for number in range(65)
    ]
    with pytest.raises(TooManyFiles, match="65 files"):
        page(logs, Start())
