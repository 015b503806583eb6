"""Copies of the journal on agents: what is sent, what is acknowledged, and who gets one."""

import msgspec
import pytest

from holdfast.agent.nodes.copy_on_demand import CopyOnDemand
from holdfast.controller.journal_copies import COPIES, LATE_S, JournalCopies
from holdfast.journal.recorder import Recorder
from holdfast.journal.rows import Row
from holdfast.journal.store import Store
from holdfast.model.nodes.workers import FILE_KEY, AgentHello, AnyCommand, RowsKept

DECODER = msgspec.msgpack.Decoder(AnyCommand)


def row(number):
    return Row(float(number), "tick", b'{"kind":"tick","at_s":1}', b"[]", f"row {number}")


class Bench:
    """A controller's copies, and agents that keep them in real files."""

    def __init__(self, folder, agents=3):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.record = Recorder(folder / "journal.db", lambda: 0.0, print)
        self.copies = JournalCopies(self.record, self.say, folder, ("note",))
        self.record.flush()
        self.agents = {f"n{number}": CopyOnDemand(folder / f"n{number}") for number in range(agents)}
        self.silent = set()
        for name in self.agents:
            self.join(name)

    def join(self, name):
        of, seq = self.agents[name].state
        hello = AgentHello(node=name, address="", instance="i", version="1", copy_of=of, copy_seq=seq)
        self.copies.joined(hello)

    def say(self, node, body):
        answer = self.agents[node].keep(DECODER.decode(body))
        if node not in self.silent:
            self.copies.kept(node, answer)
        return True

    def write(self, *numbers):
        for number in numbers:
            self.record.record(row(number))
        self.record.flush()


@pytest.fixture
def bench(tmp_path):
    one = Bench(tmp_path)
    yield one
    one.record.close()


def test_two_agents_have_all_rows_and_the_files_of_the_job(bench):
    (bench.folder / "note").write_text("isolated: gpu-1")
    bench.write(1, 2, 3)
    bench.copies.push(1.0)
    assert bench.copies.covers(3)
    kept = [name for name, copy in bench.agents.items() if copy.state[1] == 3]
    assert len(kept) == COPIES
    (*_, piece) = bench.agents[kept[0]].pieces()
    assert piece.is_last and [one[4] for one in piece.rows] == ["row 1", "row 2", "row 3"]
    assert piece.meta[FILE_KEY + "note"] == b"isolated: gpu-1"


def test_what_is_not_acknowledged_is_not_covered_and_another_agent_gets_a_copy(bench):
    bench.silent = {"n0"}
    bench.write(1)
    bench.copies.push(1.0)
    assert not bench.copies.covers(1)
    bench.copies.push(2.0 + LATE_S)
    bench.copies.push(4.0 + LATE_S)
    assert bench.copies.covers(1)
    assert bench.agents["n2"].state[1] == 1


def test_an_agent_that_comes_back_gets_only_what_it_lacks(bench):
    bench.write(1, 2)
    bench.copies.push(1.0)
    bench.copies.left("n0")
    bench.write(3)
    bench.copies.push(2.0)
    bench.join("n0")
    bench.write(4)
    bench.copies.push(3.0, now=True)
    states = sorted(copy.state[1] for copy in bench.agents.values())
    assert states[-2:] == [4, 4] and bench.copies.covers(4)


def test_a_copy_of_another_record_is_replaced(bench, tmp_path):
    bench.write(1, 2)
    bench.copies.push(1.0)
    other = Bench(tmp_path / "other", agents=0)
    other.agents = {"n0": bench.agents["n0"]}
    other.join("n0")
    other.write(7)
    other.copies.push(1.0)
    assert other.agents["n0"].state[1] == 1 and other.copies.covers(1)
    other.record.close()


def test_a_copy_that_cannot_be_written_is_given_up(bench):
    bench.write(1)
    bench.copies.push(1.0)
    report = RowsKept(lineage=bench.agents["n0"].state[0], seq=0, is_broken=True)
    bench.copies.kept("n0", report)
    bench.write(2)
    bench.copies.push(2.0)
    assert bench.agents["n2"].state[1] == 2 and bench.copies.covers(2)


def test_a_copy_is_a_whole_journal_again(bench, tmp_path):
    bench.write(*range(1, 2001))
    for at_s in range(1, 8):
        bench.copies.push(float(at_s))
    assert bench.copies.covers(2000)
    store = Store.open(tmp_path / "restored" / "journal.db")
    for piece in bench.agents["n0"].pieces():
        store.append([Row(*one) for one in piece.rows])
    assert store.last_seq == 2000
    store.close()
