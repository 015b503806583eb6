"""The spool: what must not be lost is not, whatever happens to the process and the disk; all of it is bounded."""

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from link_kit import HandClock

from holdfast.link.segments import SegmentLog
from holdfast.link.spool import Entry, Spool, SpoolInUse, SpoolLimits
from journal.processes import in_child, mount

SMALL = SpoolLimits(memory_bytes=6_000, disk_bytes=9_000, kept_bytes=1 << 20, segment_bytes=2_000)


def drained(spool: Spool, after: int = 0) -> list[Entry]:
    found: list[Entry] = []
    while part := spool.read(found[-1].seq if found else after, 1_500):
        found += part
    return found


class Life(RuleBasedStateMachine):
    """An agent's spool over many starts and connections, against a list of what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = HandClock()
        self.spool = Spool(self.folder, self.clock, SMALL)
        self.kept: list[tuple[int, bytes]] = []
        self.loose: dict[int, bytes] = {}
        self.sent = self.recorded_to = 0
        self.count = 0

    @rule(drop=st.booleans(), size=st.integers(0, 700), times=st.integers(1, 12))
    def append(self, drop, size, times):
        for _ in range(times):
            self.count += 1
            body = b"%d " % self.count + b"x" * size
            self.spool.append(body, drop=drop)
            if drop:
                self.loose[self.spool.last] = body
            else:
                self.kept.append((self.spool.last, body))

    @rule(bytes_max=st.integers(1, 4_000))
    def send(self, bytes_max):
        entries = self.spool.read(self.sent, bytes_max)
        expected = [seq for seq, _ in self.kept if seq > max(self.sent, self.recorded_to)]
        seqs = [entry.seq for entry in entries]
        assert seqs == sorted(set(seqs)) and all(seq > self.sent for seq in seqs)
        for entry in entries:
            assert entry.body == (self.loose[entry.seq] if entry.drop else dict(self.kept)[entry.seq])
        if entries:
            passed = [seq for seq in expected if seq <= seqs[-1]]
            assert passed == [
                entry.seq for entry in entries if not entry.drop and entry.seq > self.recorded_to
            ]
            self.sent = seqs[-1]
        else:
            assert not expected

    @rule()
    def received(self):
        self.spool.received(self.sent)

    @rule(part=st.floats(0, 1))
    def recorded(self, part):
        seqs = [seq for seq, _ in self.kept if seq <= self.sent] + [s for s in self.loose if s <= self.sent]
        if seqs:
            self.recorded_to = max(self.recorded_to, sorted(seqs)[int(part * (len(seqs) - 1))])
            self.spool.recorded(self.recorded_to)

    @rule()
    def connect_again(self):
        self.sent = self.recorded_to
        self.spool.received(self.sent)

    @rule()
    def put_away(self):
        self.spool.put_away()

    @precondition(lambda self: self.count)
    @rule(torn=st.binary(max_size=30))
    def killed_and_opened_again(self, torn):
        os.close(self.spool._lock)
        self.spool._lock = None
        if torn:
            files = sorted(self.folder.glob("kept-*.log"))
            if files:
                files[-1].write_bytes(files[-1].read_bytes() + torn)
        self.spool = Spool(self.folder, self.clock, SMALL)
        self.connect_again()

    @invariant()
    def bounded(self):
        on_disk = sum(path.stat().st_size for path in self.folder.glob("loose-*.log"))
        assert on_disk <= SMALL.disk_bytes
        assert self.spool._memory_bytes <= SMALL.memory_bytes

    def teardown(self):
        self.connect_again()
        there = {entry.seq: entry.body for entry in drained(self.spool, self.recorded_to)}
        for seq, body in self.kept:
            assert seq <= self.recorded_to or there[seq] == body
        assert self.spool.lost == 0
        self.spool.close()
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.rmdir()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)


def test_files_of_what_was_recorded_are_removed(tmp_path):
    spool = Spool(tmp_path, HandClock(), SMALL)
    for _ in range(40):
        spool.append(b"x" * 300, drop=False)
    files = len(list(tmp_path.glob("kept-*.log")))
    assert files > 4
    spool.recorded(spool.last - 1)
    assert len(list(tmp_path.glob("kept-*.log"))) == 1
    spool.recorded(spool.last)
    assert not list(tmp_path.glob("*.log"))
    spool.append(b"more", drop=False)
    assert [entry.body for entry in drained(spool)] == [b"more"]
    spool.close()


def test_the_oldest_samples_are_dropped_and_findings_never(tmp_path):
    spool = Spool(tmp_path, HandClock(), SMALL)
    for number in range(200):
        spool.append(b"sample %03d" % number + b"." * 300, drop=True)
        if number % 10 == 0:
            spool.append(b"finding %03d" % number, drop=False)
    entries = drained(spool)
    samples = [entry.body[:10] for entry in entries if entry.drop]
    assert [entry.body for entry in entries if not entry.drop] == [
        b"finding %03d" % n for n in range(0, 200, 10)
    ]
    assert samples == [b"sample %03d" % number for number in range(200 - len(samples), 200)]
    assert 30 < len(samples) < 60
    assert spool.dropped == 200 - len(samples)
    assert spool.notes() == ["the spool is out of space: the oldest samples are being dropped"]
    spool.close()


def test_in_memory_alone_it_does_the_same(tmp_path):
    spool = Spool(None, HandClock(), SMALL)
    for number in range(100):
        spool.append(b"%03d" % number + b"." * 300, drop=number % 10 != 0)
    kept = [entry.body[:3] for entry in drained(spool) if not entry.drop]
    assert kept == [b"%03d" % number for number in range(0, 100, 10)]
    assert spool.lost == 0


def test_findings_alone_that_fill_memory_without_a_disk_are_lost_and_reported():
    spool = Spool(None, HandClock(), SMALL)
    for _ in range(100):
        spool.append(b"." * 300, drop=False)
    assert 8 <= len(drained(spool)) <= 12
    assert spool.lost == 100 - len(drained(spool))
    assert "this entry is lost" in spool.notes()[-1]


def test_an_entry_too_large_for_the_link_is_reported():
    spool = Spool(None, HandClock())
    spool.append(b"\0" * (16 << 20), drop=False)
    assert not drained(spool)
    assert "too large" in spool.notes()[0]


def test_numbers_of_a_new_opening_are_above_all_that_were_given(tmp_path):
    clock = HandClock()
    highest = 0
    for opening in range(5):
        spool = Spool(tmp_path, clock, SMALL)
        assert spool.last >= highest
        for _ in range(5):
            spool.append(b"only in memory", drop=True)
        highest = spool.last
        os.close(spool._lock)  # killed: nothing is put away
        spool._lock = None
        if opening == 2:
            clock.now_s -= 7200  # the clock of the node was set back
    spool = Spool(tmp_path, clock, SMALL)
    assert spool.last >= highest
    spool.close()


def test_two_agents_cannot_have_one_spool(tmp_path):
    spool = Spool(tmp_path, HandClock())
    with pytest.raises(SpoolInUse, match="used by another agent"):
        Spool(tmp_path, HandClock())
    spool.close()
    Spool(tmp_path, HandClock()).close()


WRITER = """
import sys, time
from pathlib import Path
from holdfast.link.spool import Spool, SpoolLimits
spool = Spool(Path(sys.argv[1]), time.time, SpoolLimits(memory_bytes=50_000, segment_bytes=20_000))
number = 0
while True:
    number += 1
    spool.append(b"%d " % number + b"x" * (number * 37 % 400), drop=number % 3 == 0)
    if number % 3:
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()
"""


def test_a_killed_process_loses_nothing_it_had_to_keep(tmp_path):
    dice = random.Random(7)
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout
            said = [writer.stdout.readline() for _ in range(dice.randint(50, 3000))]
            writer.send_signal(signal.SIGKILL)
            said += [line for line in writer.stdout if line.endswith("\n")]
        spool = Spool(tmp_path, HandClock())
        there = [entry for entry in drained(spool) if not entry.drop]
        seqs = [entry.seq for entry in there]
        assert seqs == sorted(set(seqs))
        assert [int(entry.body.split()[0]) for entry in there][: len(said)] == [int(line) for line in said]
        assert len(there) <= len(said) + 1
        spool.recorded(spool.last)
        spool.close()


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=10), st.data())
@settings(deadline=None)
def test_what_stands_before_a_damaged_place_is_read(tmp_path_factory, bodies, data):
    folder = tmp_path_factory.mktemp("log")
    log = SegmentLog(folder, "kept")
    ends = [0]
    for number, body in enumerate(bodies, 1):
        log.append(number, body)
        ends.append(log.size_bytes)
    log.close()
    [path] = folder.iterdir()
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    path.write_bytes(content)
    good = max(index for index, end in enumerate(ends) if end <= place)
    again = SegmentLog(folder, "kept")
    assert again.read(0) == list(enumerate(bodies[:good], 1))
    assert bool(again.damaged) == (len(content) > ends[good])
    again.append(100, b"goes on")
    once_more = SegmentLog(folder, "kept")
    assert once_more.read(good) == [(100, b"goes on")]
    assert not once_more.damaged
    again.close()


def on_a_small_disk(work: Callable[[Path], None], place: Path) -> None:
    """Runs it in a child process, with a file system of 256 KiB."""

    def mounted() -> None:
        mount("-t", "tmpfs", "-o", "size=256k", "none", place)
        work(place)

    in_child(mounted)


def a_full_disk_loses_nothing_is_reported_once_and_written_when_there_is_room(small_disk: Path) -> None:
    clock = HandClock()
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 200_000)
    spool = Spool(small_disk / "spool", clock, SpoolLimits(memory_bytes=400_000, segment_bytes=8_000))
    for number in range(200):
        spool.append(b"%03d" % number + b"." * 1000, drop=False)
    [note] = spool.notes()
    assert "cannot be written (No space left on device)" in note
    assert [int(entry.body[:3]) for entry in drained(spool)] == list(range(200))
    ballast.unlink()
    clock.now_s += 6
    spool.append(b"200", drop=False)
    assert spool.notes() == [f"the spool {small_disk / 'spool'} is being written again"]
    os.close(spool._lock)  # killed
    spool._lock = None
    again = Spool(small_disk / "spool", clock)
    assert [int(entry.body[:3]) for entry in drained(again)] == list(range(201))
    again.close()


def on_a_full_disk_samples_make_room_for_findings(small_disk: Path) -> None:
    limits = SpoolLimits(memory_bytes=30_000, segment_bytes=8_000)
    spool = Spool(small_disk / "spool", HandClock(), limits)
    for _ in range(400):
        spool.append(b"sample" + b"." * 1000, drop=True)
    for number in range(100):
        spool.append(b"%03d" % number + b"." * 1000, drop=False)
    assert [int(entry.body[:3]) for entry in drained(spool) if not entry.drop] == list(range(100))
    assert spool.lost == 0
    spool.close()


def a_disk_that_is_full_from_the_start_is_taken_up_later(small_disk: Path) -> None:
    clock = HandClock()
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"\0" * 4096)
            except OSError:
                break
    folder = small_disk / "spool"
    spool = Spool(folder, clock)
    spool.append(b"first", drop=False)
    assert "cannot be written" in spool.notes()[0]
    ballast.unlink()
    clock.now_s += 6
    spool.append(b"second", drop=False)
    stream = spool.stream_id
    if spool._lock is not None:
        os.close(spool._lock)  # killed
        spool._lock = None
    again = Spool(folder, clock)
    assert [entry.body for entry in drained(again)] == [b"first", b"second"]
    assert again.stream_id == stream
    again.close()


@pytest.mark.parametrize(
    "work",
    [
        a_full_disk_loses_nothing_is_reported_once_and_written_when_there_is_room,
        on_a_full_disk_samples_make_room_for_findings,
        a_disk_that_is_full_from_the_start_is_taken_up_later,
    ],
)
def test_on_a_small_disk(work, tmp_path):
    on_a_small_disk(work, tmp_path)
