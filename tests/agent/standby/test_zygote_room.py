"""A zygote is made once there is room for it."""

import sys
from pathlib import Path

import pytest

from holdfast.agent.launch import LaunchSpec
from holdfast.agent.standby.imports_known import Known, file_of, store
from holdfast.agent.standby.room import Left
from holdfast.agent.standby.zygote_keeper import ZygoteKeeper
from holdfast.model.policy import Policy
from holdfast.model.settings import RunSettings

COMMAND = ("torchrun", "train.py")
WAITS = (sys.executable, "-S", "-c", "import time; time.sleep(600)")
SHORT, ENOUGH = Left(300 << 20, None), Left(8 << 30, None)


class Job:
    """A job whose imports an earlier run has stored. `left`: what the node has left."""

    def __init__(self, path: Path) -> None:
        self.left, self.told = SHORT, []
        store(file_of(path, COMMAND, str(path)), Known(argv=WAITS))
        settings = RunSettings(
            command=COMMAND, state_dir=str(path), policy=Policy(max_restarts=3), zygote=True
        )
        self.keeper = ZygoteKeeper(
            settings,
            str(path),
            {},
            lambda: 0.0,
            lambda event: self.told.append(event.text),
            lambda: self.left,
        )
        self.spec = LaunchSpec(argv=COMMAND, cwd=str(path), env={}, folder=path / "attempt-001", detach=False)


@pytest.fixture
def job(tmp_path):
    made = Job(tmp_path)
    yield made
    made.keeper.drop()


def test_without_room_none_is_made_and_that_is_said_once(job):
    for job.left in (SHORT, Left(301 << 20, None)):
        job.keeper.offered(1, job.spec)
        assert (job.keeper.has_begun, job.keeper.is_ready) == (False, False)
    assert job.told == [
        "no zygote is made until there is room for it: 300 MiB of memory are left, less than 1024 MiB"
    ]
    assert job.keeper.is_possible  # so that no standby is made instead, which needs more


def test_it_is_made_once_there_is_room(job):
    job.keeper.offered(1, job.spec)
    job.left = ENOUGH
    job.keeper.offered(1, job.spec)
    assert job.keeper.has_begun
