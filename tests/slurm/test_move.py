"""What a move asks of Slurm, in which order, and what it does where Slurm does not answer. No Slurm is needed."""

import pytest

from holdfast.engines.slurm.move import AGAIN_S, ASKED_S_MAX, MARKED_S_MAX, Move
from holdfast.engines.slurm.run_command import NOT_FOUND, Answer, Commands
from holdfast.model.nodes.workers import EndAsked, EngineNote, NoMoreNodes
from holdfast.slurm_names import Allocation
from slurm.kit import wait_for

SILENT = "scontrol: error: Unable to contact slurm controller (connect failure)"


class Slurm:
    """Takes what is asked; the test answers it."""

    def __init__(self):
        self.open = []

    def ask(self, words, heard, within_s=0.0, *, first=False):
        self.open.append((tuple(words), heard))

    def asked(self):
        return [" ".join(words[:2]) for words, _ in self.open]

    def says(self, out="", *, code=0, why=""):
        words, heard = self.open.pop(0)
        heard(Answer(words=words, code=code, out=out.encode(), why=why))


class Moved:
    def __init__(self, folder):
        self.now_s, self.told, self.gone, self.slurm = 0.0, True, ["n2"], Slurm()
        allocation = Allocation(job="7", nodes=("n1", "n2", "n3"), restarts=0, is_batch=True)
        self.move = Move(
            allocation, self.slurm, folder, 3, lambda: self.gone, 30.0, lambda: self.told, lambda: self.now_s
        )

    def until_planned(self):
        self.slurm.says("JobId=7 JobState=RUNNING")
        assert self.slurm.asked() == ["sbatch --parsable"]
        self.slurm.says("8")

    def turn(self, after_s=0.0):
        self.now_s += after_s
        self.move.turn(self.now_s)


@pytest.fixture
def moved(tmp_path):
    return Moved(tmp_path)


def test_the_job_is_put_back_once_slurm_knows_of_the_nodes_that_are_gone(moved):
    """Else it would be completing on them until Slurm finds out by itself, and not start before."""
    moved.told = False
    moved.until_planned()
    moved.turn(MARKED_S_MAX / 2)
    assert moved.slurm.asked() == []
    moved.told = True
    moved.turn()
    assert moved.slurm.asked() == ["scontrol requeue"]
    moved.slurm.says()
    (end,) = moved.move.news()
    assert isinstance(end, EndAsked)
    assert end.reason.endswith("without n2")


def test_it_is_requeued_all_the_same_where_slurm_cannot_be_marked(moved):
    moved.told = False
    moved.until_planned()
    moved.turn(MARKED_S_MAX)
    assert moved.slurm.asked() == ["scontrol requeue"]


def test_a_slurm_that_does_not_answer_is_asked_again_and_that_is_said_once(moved):
    for _ in range(3):
        moved.slurm.says(code=1, why=SILENT)
        moved.turn(AGAIN_S / 2)
        assert moved.slurm.asked() == []
        moved.turn(AGAIN_S)
    moved.gone = ["n2", "n3"]  # one more, meanwhile
    moved.until_planned()
    moved.turn()
    moved.slurm.says(code=1, why=SILENT)
    moved.turn(AGAIN_S)
    moved.slurm.says()
    note, end = moved.move.news()
    assert isinstance(note, EngineNote)
    assert "will try again" in note.text
    assert isinstance(end, EndAsked)
    assert end.reason.endswith("without n[2-3]")


def test_a_slurm_that_is_away_for_good_is_not_waited_for(moved):
    moved.until_planned()
    moved.now_s = ASKED_S_MAX
    moved.turn()
    for asked in ("scontrol requeue", "scontrol update", "scontrol requeue"):
        assert moved.slurm.asked() == [asked]
        moved.slurm.says(code=1, why=SILENT)
    (end,) = moved.move.news()
    assert isinstance(end, NoMoreNodes)
    assert SILENT in end.reason


def test_a_command_that_is_not_there_is_not_asked_for_again():
    commands, answers = Commands({"PATH": "/nowhere"}), []
    commands.ask(["holdfast-has-no-such-command"], answers.append)

    def answered():
        commands.turn()
        return answers

    wait_for("an answer", answered)
    (answer,) = answers
    assert answer.code == NOT_FOUND
    assert not answer.is_sick
    assert "cannot be started: No such file" in answer.why
