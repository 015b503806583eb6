"""Nodes that share a job's folder: a standby whose place another node has taken leaves that alone."""

from pathlib import Path

from holdfast.agent.launch import LaunchSpec, Started, Stopped
from holdfast.agent.part import unmet
from holdfast.agent.standby.keeper import StandbyKeeper
from holdfast.agent.standby.start import Standby


class Still:
    """Stands for the processes of a standby, whose end is told as soon as it is asked for."""

    def __init__(self, spec):
        self.facts = [Started(pid=1, reaper=1)]

    def read(self):
        facts, self.facts = self.facts, []
        return facts

    def kill(self, why):
        self.facts.append(Stopped(killed=(), left=()))

    def bye(self):
        pass


def standby(folder: Path) -> Standby:
    folder.mkdir(parents=True, exist_ok=True)
    return Standby(2, LaunchSpec(folder=folder, argv=("true",), cwd="/", env={}), Still)


def test_what_another_node_has_put_in_its_place_is_left_alone(tmp_path):
    folder = tmp_path / "attempt-002" / "worker-1"
    cut_off = standby(folder)
    folder.rename(tmp_path / "aside")
    other = standby(folder)
    assert other.is_in_place and not cut_off.is_in_place
    cut_off.throw_away()
    cut_off.clear()
    assert other.is_in_place
    other.clear()
    assert not folder.exists()


def test_one_whose_place_is_taken_is_not_used(tmp_path):
    folder = tmp_path / "attempt-002" / "worker-1"
    keeper = StandbyKeeper(lambda number, part: None, lambda: 0.0, is_wanted=True, holds_launcher=True)
    keeper.standby, keeper.part = standby(folder), unmet(1, 2)
    (folder / "standby").write_text("another")
    assert keeper.release(2, unmet(1, 2)) is None
    assert (folder / "standby").read_text() == "another"
