"""What is not urgent waits, and what is overtakes it: by kinds, in each peer's order, within bounds."""

import os

import msgspec

from holdfast.controller.later import BYTES_MAX, Later
from holdfast.controller.parts import Parts
from holdfast.controller.worker_group import WorkerGroupEngine
from holdfast.core.workers.group import WorkerGroup
from holdfast.core.workers.roster import Settings
from holdfast.link.arrived import Entry, Left
from holdfast.model.events import DeviceFaulted, FindingNoted, StepReached
from holdfast.model.nodes.workers import EventReport, Sampled, SetUp
from holdfast.model.settings import RunSettings

pack = msgspec.msgpack.encode


def entry(peer, seq, size=10):
    return Entry(peer, f"{peer}/s", seq, bytes(size), may_drop=True)


def test_of_a_peer_the_first_comes_first_and_no_peer_is_passed_over():
    later = Later()
    for one in (entry("a", 1), entry("b", 1), entry("a", 2)):
        later.put(one)
    assert later.waits("a")
    assert later.take("b") == entry("b", 1)
    assert not later.waits("b")
    assert [later.take(), later.take(), later.take()] == [entry("a", 1), entry("a", 2), None]
    assert not later


def test_it_is_full_by_bytes_until_some_are_taken():
    later = Later()
    later.put(entry("a", 1, BYTES_MAX))
    assert not later.is_full
    later.put(entry("a", 2, 1))
    assert later.is_full
    later.take()
    assert not later.is_full


class Ticking:
    """A clock that goes on at each look: `slow` as if each thing took that long."""

    def __init__(self) -> None:
        self.now_s, self.slow_s = 1000.0, 0.0

    def __call__(self) -> float:
        self.now_s += self.slow_s
        return self.now_s


class Looking:
    """Hang detection of which a tick begins three pieces of work."""

    def __init__(self) -> None:
        self.left, self.samples = 0, []

    @property
    def is_busy(self):
        return self.left > 0

    def tick(self, at_s):
        self.left = 3
        return []

    def go_on(self, at_s):
        self.left -= 1
        return []

    def sampled(self, node, report):
        self.samples.append((node, report.step))


class Quiet:
    def __getattr__(self, name):
        return lambda *given, **named: []


class Bench(Quiet):
    """Is its own link, which something else has always come by: `arrives` comes with the next turn."""

    def __init__(self) -> None:
        self.clock, self.hangs, self.arrives = Ticking(), Looking(), []
        self.told, self.marks = [], []
        self.end, other_end = os.pipe()
        os.write(other_end, b".")
        self.ends = (self.end, other_end)
        nothing = Quiet()
        self.machine = WorkerGroupEngine(
            WorkerGroup("job", ["n0", "n1"], Settings(checks=False), "1", "t"),
            self,
            nothing,
            SetUp(
                job="job",
                folder="",
                cwd="/",
                settings=RunSettings(command=("true",), state_dir="/"),
                token="",
            ),
            lambda machine: Parts(hangs=self.hangs, conclusion=nothing, calls=nothing, files=nothing),
            self.clock,
            self.told.append,
            lambda: True,
        )
        self.seq = 0

    def turn(self):
        arrived, self.arrives = self.arrives, []
        return arrived

    def fileno(self):
        return self.end

    def offset_s(self, peer):
        return 0.0

    def recorded(self, stream, seq):
        self.marks.append((stream, seq))

    def tells(self, peer, report, *, may_drop=False):
        self.seq += 1
        self.arrives.append(Entry(peer, f"{peer}/s", self.seq, pack(report), may_drop=may_drop))

    def samples(self, peer, step):
        self.tells(peer, Sampled(attempt=1, worker=0, at_s=1000.0, step=step), may_drop=True)

    def close(self):
        for end in self.ends:
            os.close(end)


def finding(text):
    return EventReport(event=FindingNoted(at_s=1000.0, finding="xid", text=text))


def texts(bench):
    return [event.text for event in bench.told if isinstance(event, FindingNoted)]


def test_a_finding_is_decided_ahead_of_the_samples_before_it_and_these_are_lost_by_nobody():
    bench = Bench()
    for step in range(20):
        bench.samples("n0", step)
    bench.samples("n1", 20)
    bench.tells("n1", finding("fell off the bus"))
    bench.clock.slow_s = 0.004
    bench.machine.turn()
    assert texts(bench) == ["n1: fell off the bus"]
    assert 1 < len(bench.hangs.samples) < 21
    assert bench.hangs.samples[:2] == [("n1", 20), ("n0", 0)]  # its own node's, then what has waited
    while len(bench.hangs.samples) < 21:
        bench.machine.turn()
    assert bench.hangs.samples[1:] == [("n0", step) for step in range(20)]
    assert max(seq for _, seq in bench.marks) == 22


def test_a_step_that_overtakes_is_acknowledged_after_what_came_before_it():
    bench = Bench()
    for step in range(20):
        bench.samples("n0", step)
    bench.tells("n0", EventReport(event=StepReached(at_s=1000.0, attempt=1, step=7)))
    bench.clock.slow_s = 0.004
    bench.machine.turn()
    taken = len(bench.hangs.samples)
    assert 0 < taken < 20
    assert max(seq for _, seq in bench.marks) == taken
    while len(bench.hangs.samples) < 20:
        bench.machine.turn()
    assert max(seq for _, seq in bench.marks) == 21
    bench.close()


def test_what_may_depend_on_earlier_reports_overtakes_nothing():
    bench = Bench()
    bench.clock.slow_s = 0.05  # one sample a turn
    for step in range(4):
        bench.samples("n0", step)
        bench.samples("n1", step)
    bench.tells("n1", EventReport(event=StepReached(at_s=1000.0, attempt=1, step=7)))
    bench.machine.turn()
    assert len(bench.hangs.samples) == 1
    bench.tells("n1", EventReport(event=DeviceFaulted(at_s=1000.0, node="n1", device="0", code="79")))
    bench.machine.turn()
    assert [step for peer, step in bench.hangs.samples if peer == "n1"] == [0, 1, 2, 3]
    assert isinstance(bench.told[-1], DeviceFaulted)
    bench.samples("n0", 4)
    bench.arrives.append(Left("n0", "gone", said_goodbye=True))
    bench.machine.turn()
    assert [step for peer, step in bench.hangs.samples if peer == "n0"] == [0, 1, 2, 3, 4]
    bench.close()


def test_what_a_tick_has_begun_is_done_in_pieces_with_findings_between():
    bench = Bench()
    bench.clock.slow_s = 0.03
    bench.machine.turn()
    left = bench.hangs.left
    assert left > 0
    bench.clock.slow_s = 0.0
    bench.machine.turn()
    assert bench.hangs.left == 0
    bench.close()
