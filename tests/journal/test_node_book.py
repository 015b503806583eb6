"""The node book under many writers, kills, damage, full and read-only disks, and folders that do not answer."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from holdfast.core.nodes.isolation_limit import IsolationLimit
from holdfast.journal.nodes.book import NodeBook
from holdfast.journal.nodes.file import BACKUP, FILE, NewerNodeBook, NodeBookUnusable, is_local
from holdfast.journal.nodes.fleet_book import FleetBook
from holdfast.model.nodes.book import (
    AttemptRan,
    CheckLine,
    DeviceLine,
    IncidentLine,
    Isolation,
    IsolationLine,
    LostLine,
    ReleaseLine,
)
from journal.processes import in_child, mount

ONE = IsolationLimit(share=0.05)


def _lost(number: int, node: str = "a") -> tuple[str, LostLine]:
    return f"lost/{node}/{number}", LostLine(
        at_s=float(number), node=node, reason=f"no {number}", run="job@1"
    )


def _isolation(node: str, at_s: float = 1000.0, run: str = "job@1") -> Isolation:
    return Isolation(node=node, since_s=at_s, reason="it broke", by="holdfast", run=run)


def test_lines_come_back_by_node_and_by_serial_in_order_of_time(tmp_path):
    book = NodeBook(tmp_path)
    check = CheckLine(at_s=5.0, node="b", device="0000:5d:00.0", serial="S1", status="fail", text="no GPU")
    moved = CheckLine(at_s=9.0, node="c", device="0000:1a:00.0", serial="S1", status="pass", text="well")
    book.note([("2", moved), ("1", check), _lost(7, "b")])
    assert [line.at_s for line in book.lines("b")] == [5.0, 7.0]
    assert [line.node for line in book.lines("S1")] == ["b", "c"]
    assert book.lines(kinds=("lost",)) == [_lost(7, "b")[1]]
    assert book.lines("nobody") == []
    assert set(book.nodes()) == {"b", "c"}


def test_a_device_is_where_it_was_seen_last_since_it_came_there(tmp_path):
    book = NodeBook(tmp_path)

    def seen(node: str, at_s: float) -> None:
        line = DeviceLine(at_s=at_s, node=node, device="0000:5d:00.0", serial="S1", since_s=at_s)
        book.note([(f"device-in/S1/{node}", line)])

    seen("a", 1.0)
    seen("a", 2.0)
    assert [(one.node, one.since_s, one.at_s) for one in book.devices().values()] == [("a", 1.0, 2.0)]
    seen("b", 3.0)
    seen("b", 4.0)
    assert [(one.node, one.since_s) for one in book.devices().values()] == [("b", 3.0)]
    seen("a", 5.0)
    assert [(one.node, one.since_s) for one in book.devices().values()] == [("a", 5.0)]


def test_what_is_noted_again_under_its_key_is_there_once(tmp_path):
    book = NodeBook(tmp_path)
    line = IncidentLine(
        at_s=1.0, run="r", attempt=1, incident=1, category="unknown", title="?", weighs="shared"
    )
    surer = msgspec.structs.replace(line, category="xid_79", node="a", weighs="node")
    book.note(
        [("incident/r/1", line)], [AttemptRan(run="r", attempt=1, nodes=("a", "b"), started_s=0.0, hours=1.0)]
    )
    book.note(
        [("incident/r/1", surer)],
        [AttemptRan(run="r", attempt=1, nodes=("a", "b"), started_s=0.0, hours=2.5)],
    )
    assert book.lines() == [surer]
    assert [(one.nodes, one.hours) for one in book.attempts()] == [(("a", "b"), 2.5)]
    assert book.attempts(since_s=2.6 * 3600) == []


def test_an_isolated_node_stays_isolated_until_it_is_released(tmp_path):
    book = NodeBook(tmp_path)
    assert book.isolate(_isolation("a")).isolated
    assert book.isolate(_isolation("a", 2000.0)).isolated  # twice does no harm, and keeps the first reason
    assert NodeBook(tmp_path).isolated()["a"].since_s == 1000.0
    assert [entry["node"] for entry in json.loads((tmp_path / BACKUP).read_text())] == ["a"]
    assert book.release(ReleaseLine(at_s=3000.0, node="a", reason="new board", by="kim"))
    assert not book.release(ReleaseLine(at_s=3000.0, node="a", reason="new board", by="kim"))
    assert book.isolated() == {}
    assert json.loads((tmp_path / BACKUP).read_text()) == []
    assert [type(line) for line in book.lines("a")] == [IsolationLine, ReleaseLine]


def test_jobs_together_isolate_no_more_than_the_share(tmp_path):
    book = NodeBook(tmp_path)
    names = [f"n{number}" for number in range(40)]
    book.note([], [AttemptRan(run="r", attempt=1, nodes=tuple(names), started_s=0.0, hours=1.0)])
    answers = [
        NodeBook(tmp_path).isolate(_isolation(name, 1000.0, f"job-{number}"), limit=ONE)
        for number, name in enumerate(names)
    ]
    assert [answer.isolated for answer in answers] == [True, True] + [False] * 38
    assert "2 of 40" in answers[2].why_not
    assert set(book.isolated()) == {"n0", "n1"}
    assert len(book.lines(kinds=("held-back",))) == 38
    assert book.isolate(_isolation("n9", 1000.0 + 3601), limit=ONE).isolated  # an hour later
    assert book.isolate(_isolation("n10", 1000.0 + 3602)).isolated  # a person may always


def test_nodes_that_are_long_gone_do_not_widen_the_limit(tmp_path):
    book, now_s = NodeBook(tmp_path), 1e9
    old = tuple(f"old{number}" for number in range(100))
    book.note([], [AttemptRan(run="r", attempt=1, nodes=old, started_s=now_s - 40 * 86_400, hours=24.0)])
    assert book.isolate(_isolation("a", now_s), limit=ONE, nodes=20).isolated
    assert "1 of 20" in book.isolate(_isolation("b", now_s), limit=ONE, nodes=20).why_not


def test_the_book_forgets_what_is_too_old_but_not_what_people_did(tmp_path):
    book, now_s = NodeBook(tmp_path), 1e9
    years_ago_s = now_s - 800 * 86_400
    lost = LostLine(at_s=years_ago_s, node="a", reason="down")
    book.note([("l", lost)], [AttemptRan(run="r", attempt=1, nodes=("a",), started_s=years_ago_s, hours=5.0)])
    book.isolate(_isolation("a", years_ago_s))
    assert len(book.lines("a")) == 2
    book.note([], [AttemptRan(run="r", attempt=2, nodes=("a",), started_s=now_s, hours=0.0)])
    assert [type(line) for line in book.lines("a")] == [IsolationLine]
    assert [one.attempt for one in book.attempts()] == [2]
    assert "a" in book.isolated()


WRITER = """
import sys
from pathlib import Path
from holdfast.core.nodes.isolation_limit import IsolationLimit
from holdfast.journal.nodes.book import NodeBook
from holdfast.model.nodes.book import Isolation, LostLine
folder, who, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
book = NodeBook(folder, busy_s=60.0)
for number in range(count):
    line = LostLine(at_s=float(number), node="abcd"[number % 4], reason="x" * 200, run=who)
    book.note([(f"{who}/{number}", line)])
    if number % 10 == 0:
        book.isolate(Isolation(node=f"{who}-{number}", since_s=5.0, reason="r", by="b", run=who),
                     limit=IsolationLimit(share=0.5), nodes=16)
    print(number, flush=True)
"""


def _writer(folder: Path, who: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(folder), who, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _codes(writers: "list[subprocess.Popen[str]]") -> list[int]:
    """How they ended; none is left, whatever becomes of one."""
    try:
        return [writer.wait(100) for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


@pytest.mark.parametrize("shared", [False, True])
def test_processes_that_write_at_once_lose_nothing_and_keep_one_limit(tmp_path, shared):
    nodes = [f"w{who}-{number}" for who in range(4) for number in (0, 10, 20)] + ["a", "b", "c", "d"]
    NodeBook(tmp_path, shared=shared).note(
        [_lost(0)], [AttemptRan(run="r", attempt=1, nodes=tuple(nodes), started_s=0.0, hours=1.0)]
    )
    mode = sqlite3.connect(tmp_path / FILE).execute("PRAGMA journal_mode").fetchone()[0]
    assert mode == ("wal" if not shared and is_local(tmp_path) else "delete")
    writers = [_writer(tmp_path, f"w{number}", 30) for number in range(4)]
    assert _codes(writers) == [0] * 4
    book = NodeBook(tmp_path)
    assert len(book.lines(kinds=("lost",))) == 4 * 30 + 1
    assert len(book.isolated()) == 8  # half of 16, whoever came first
    assert not book.notes


def test_a_writer_killed_in_the_middle_leaves_a_whole_book(tmp_path):
    for round_ in range(4):
        writer = _writer(tmp_path, f"w{round_}", 100_000)
        said = [writer.stdout.readline() for _ in range(15 + 7 * round_)]
        writer.send_signal(signal.SIGKILL)
        said += writer.stdout.readlines()
        writer.wait()
        writer.stdout.close()
        book = NodeBook(tmp_path)
        seen = {line.at_s for line in book.lines(kinds=("lost",)) if line.run == f"w{round_}"}
        finished = {float(text) for text in said if text.endswith("\n")}
        assert finished <= seen, "what was said to be written is written"
        assert not book.notes
        book.note([_lost(round_, "after")])
        book.close()
    check = sqlite3.connect(tmp_path / FILE).execute("PRAGMA integrity_check").fetchone()[0]
    assert check == "ok"


@pytest.mark.parametrize("damage", ["not a database", "pages", "empty", "cut"])
def test_a_damaged_book_is_set_aside_and_the_isolated_stay_so(tmp_path, damage):
    book = NodeBook(tmp_path)
    book.isolate(_isolation("bad"))
    book.note([_lost(number, f"n{number}") for number in range(500)])
    book.close()
    path = tmp_path / FILE
    content = bytearray(path.read_bytes())
    if damage == "not a database":
        path.write_bytes(b"hello" * 5000)
    elif damage == "pages":
        content[4096:] = os.urandom(len(content) - 4096)
        path.write_bytes(content)
    elif damage == "cut":
        path.write_bytes(content[:6000])
    else:
        path.write_bytes(b"")
    again = NodeBook(tmp_path)
    again.note([_lost(1)])
    assert again.lines("a") == [_lost(1)[1]]
    assert set(again.isolated()) == {"bad"}
    assert any("renamed to" in note for note in again.notes)
    assert len(list(tmp_path.glob(f"{FILE}.damaged-*"))) == 1


def test_processes_that_find_the_damage_together_begin_one_new_book(tmp_path):
    NodeBook(tmp_path).isolate(_isolation("bad"))
    (tmp_path / FILE).write_bytes(b"x" * 9000)
    for ending in ("-wal", "-shm"):
        (tmp_path / f"{FILE}{ending}").unlink(missing_ok=True)
    writers = [_writer(tmp_path, f"w{number}", 10) for number in range(4)]
    assert _codes(writers) == [0] * 4
    book = NodeBook(tmp_path)
    assert len(book.lines(kinds=("lost",))) == 40
    assert "bad" in book.isolated()
    assert len(list(tmp_path.glob(f"{FILE}.damaged-*"))) == 1


def test_a_book_that_was_removed_while_in_use_is_begun_anew(tmp_path):
    book = NodeBook(tmp_path)
    book.isolate(_isolation("bad"))
    for path in tmp_path.glob(f"{FILE}*"):
        path.unlink()
    book.note([_lost(1)])
    assert set(book.isolated()) == {"bad"}
    assert "still isolated" in book.notes[0]


def test_a_newer_book_is_left_as_it_is(tmp_path):
    NodeBook(tmp_path).note([_lost(1)])
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(NewerNodeBook, match="--fleet-dir"):
        NodeBook(tmp_path).isolated()
    assert not list(tmp_path.glob("*.damaged-*"))


def test_a_line_of_a_kind_that_is_not_known_is_passed_over(tmp_path):
    book = NodeBook(tmp_path)
    book.note([_lost(1)])
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute('UPDATE lines SET body = \'{"kind":"from-tomorrow","at_s":1}\'')
    connection.commit()
    connection.close()
    assert book.lines() == []
    assert not book.notes


def test_a_read_only_folder_can_be_read_and_says_that_it_cannot_be_written(tmp_path):
    NodeBook(tmp_path).isolate(_isolation("bad"))

    def work() -> None:
        mount("--bind", tmp_path, tmp_path)
        mount("-o", "remount,bind,ro", tmp_path)
        assert set(NodeBook(tmp_path, read_only=True).isolated()) == {"bad"}
        with pytest.raises(NodeBookUnusable, match=FILE):
            NodeBook(tmp_path).note([_lost(1)])

    in_child(work)


def test_reading_a_folder_without_a_book_creates_none(tmp_path):
    assert NodeBook(tmp_path / "fleet", read_only=True).isolated() == {}
    assert not (tmp_path / "fleet").exists()


def test_a_full_disk_costs_the_run_nothing_and_the_lines_come_later(tmp_path):
    def work() -> None:
        mount("-t", "tmpfs", "-o", "size=1m", "none", tmp_path)
        said: list[str] = []
        book = FleetBook(tmp_path, said.append, wait_s=60.0, limit=ONE)
        book.note([_lost(0)])
        assert book.isolated() == {}
        with suppress(OSError), (tmp_path / "filler").open("wb", buffering=0) as filler:
            while True:  # to the last byte: the book's thread may be writing still
                filler.write(b"x" * 4096)
        book.note([_lost(number, "b") for number in range(1, 3000)])
        assert book.isolated() == {}  # reading works; what could not be written waits
        answer = book.isolate(_isolation("bad"))
        assert answer.isolated
        assert set(book.isolated()) == {"bad"}  # known to this run, whatever the disk says
        (tmp_path / "filler").unlink()
        book.close()
        again = NodeBook(tmp_path)
        assert len(again.lines("b")) == 2999
        assert set(again.isolated()) == {"bad"}
        assert sum("uses the last known" in text for text in said) == 1

    in_child(work)


def test_a_book_that_another_holds_is_not_waited_for(tmp_path):
    NodeBook(tmp_path).isolate(_isolation("bad"))
    said: list[str] = []
    book = FleetBook(tmp_path, said.append, wait_s=4.0, limit=ONE)
    assert set(book.isolated()) == {"bad"}
    holder = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert book.isolate(_isolation("worse"), nodes=40).isolated
    assert book.isolate(_isolation("worse"), nodes=40).isolated
    assert set(book.isolated()) == {"bad", "worse"}
    assert len(said) == 1
    assert "uses the last known" in said[0]
    holder.execute("ROLLBACK")
    assert book.isolated().keys() == {"bad", "worse"}
    book.close()
    assert set(NodeBook(tmp_path).isolated()) == {"bad", "worse"}


def test_a_folder_that_never_answers_is_not_waited_for(tmp_path):
    """As a file server that has died: opening the book blocks for good."""
    stuck = threading.Event()

    class Stuck(NodeBook):
        def isolated(self) -> dict[str, Isolation]:
            stuck.wait()
            return {}

    said: list[str] = []
    book = FleetBook(tmp_path, said.append, wait_s=0.2, limit=ONE, book=Stuck(tmp_path / "other"))
    assert book.isolated() == {}
    assert book.isolated() == {}
    assert len(said) == 1
    assert "did not answer within 0.2 s" in said[0]
    stuck.set()


def test_a_folder_that_cannot_be_made_costs_nothing(tmp_path):
    (tmp_path / "fleet").write_text("a file")
    said: list[str] = []
    book = FleetBook(tmp_path / "fleet", said.append, limit=ONE)
    book.note([_lost(1)])
    assert book.isolated() == {}
    assert book.isolate(_isolation("a")).isolated
    book.close()
    assert sum("uses the last known" in text for text in said) == 1
    assert "1 entry is lost" in said[-1]
