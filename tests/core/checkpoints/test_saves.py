"""A save is complete when all its files are."""

import pytest

from holdfast.core.checkpoints.saves import (
    BUSY_S,
    QUIET_S,
    RENAMED_QUIET_S,
    REST_SHARE,
    Change,
    Saves,
    placed,
    root_of,
)


class Disk:
    """What happens in /out, one change after another."""

    def __init__(self):
        self.saves = Saves()
        self.at_s = 0.0

    def __call__(self, kind, path, *, is_folder=False, after_s=0.0):
        self.at_s += after_s
        folder, _, name = f"/out/{path}".rpartition("/")
        self.saves.feed(
            Change(kind=kind, root="/out", folder=folder, name=name, is_folder=is_folder, at_s=self.at_s)
        )
        return self

    def write(self, path, after_s=0.0):
        return self("created", path, after_s=after_s)("written", path)

    def complete(self, after_s):
        self.at_s += after_s
        return self.saves.complete(self.at_s)


@pytest.fixture
def disk():
    return Disk()


def test_a_file_that_is_renamed_into_place_is_complete_at_once(disk):
    disk.write("checkpoint.part")
    assert disk.complete(100) is None
    disk("gone", "checkpoint.part")("renamed", "checkpoint.pt")
    save = disk.complete(RENAMED_QUIET_S * 1.1)
    assert (save.folder, save.unit, save.files, save.is_renamed) == ("/out", "", {"checkpoint.pt"}, True)
    assert disk.complete(100) is None


def test_a_file_that_is_written_in_place_is_complete_after_a_while(disk):
    disk("created", "checkpoint.pt")
    assert disk.complete(100) is None
    disk("written", "checkpoint.pt")
    assert disk.complete(QUIET_S / 2) is None
    save = disk.complete(QUIET_S / 2)
    assert save.files == {"checkpoint.pt"}
    assert not save.is_renamed


def test_a_file_that_is_replaced_all_the_time_is_copied_all_the_same(disk):
    for _ in range(int(BUSY_S / 0.2) + 1):
        disk("renamed", "checkpoint.pt", after_s=0.2)
    assert disk.complete(0.0).files == {"checkpoint.pt"}


def test_a_folder_is_complete_when_all_its_files_are(disk):
    disk("created", "checkpoint-500", is_folder=True)
    assert disk.complete(100) is None
    disk.write("checkpoint-500/model.safetensors")("created", "checkpoint-500/optimizer.pt")
    assert disk.complete(100) is None
    disk("written", "checkpoint-500/optimizer.pt").write("checkpoint-500/trainer_state.json", after_s=1.0)
    assert disk.complete(QUIET_S - 0.1) is None
    save = disk.complete(0.2)
    assert (save.folder, save.unit) == ("/out", "checkpoint-500")


def test_a_folder_that_is_renamed_into_place_is_complete_at_once(disk):
    disk("created", "tmp-checkpoint-500", is_folder=True).write("tmp-checkpoint-500/model.safetensors")
    assert disk.complete(100) is None
    disk("renamed", "checkpoint-500", is_folder=True)
    assert disk.complete(RENAMED_QUIET_S * 1.1).unit == "checkpoint-500"


def test_a_folder_in_a_checkpoint_belongs_to_it(disk):
    disk("created", "checkpoint-5/global_step5", is_folder=True).write("checkpoint-5/global_step5/rank_0.pt")
    assert disk.complete(QUIET_S).unit == "checkpoint-5"


def test_the_file_that_names_the_checkpoint_belongs_to_it(disk):
    disk.write("global_step5/rank_0.pt").write("latest", after_s=1.5)
    assert disk.complete(1.0) is None
    assert disk.complete(1.0).unit == "global_step5"


def test_what_the_end_of_an_attempt_cuts_off_is_no_checkpoint(disk):
    disk("created", "checkpoint-500/model.pt")
    disk("renamed", "last.pt")
    disk("written", "checkpoint-500/model.pt")  # the kernel closes it for the killed writer
    disk.saves.failed()
    assert disk.complete(100).files == {"last.pt"}
    assert disk.complete(100) is None


def test_the_newest_of_several_is_taken_and_the_others_are_forgotten(disk):
    disk("renamed", "a.pt")("renamed", "checkpoint-2", is_folder=True, after_s=1.0)
    assert disk.complete(1.0).unit == "checkpoint-2"
    assert disk.complete(100) is None


def test_a_checkpoint_that_is_removed_is_none(disk):
    disk.write("checkpoint-500/model.pt")("gone", "checkpoint-500", is_folder=True)
    disk("renamed", "a.pt")("gone", "a.pt")
    assert disk.complete(100) is None


def test_copying_takes_no_more_than_a_fifth_of_the_time(disk):
    disk("renamed", "a.pt")
    disk.saves.copied(took_s=10.0, at_s=disk.at_s)
    assert disk.complete(10.0 * REST_SHARE - 0.1) is None
    assert disk.complete(0.2).files == {"a.pt"}


def test_other_files_are_none(disk):
    disk.write("events.0.jsonl").write("train.log").write("tmp_1/a.pt")
    assert disk.complete(100) is None


@pytest.mark.parametrize(
    ("root", "folder", "name", "place"),
    [
        ("/out", "/out/checkpoint-5/global_step5", "x.pt", ("/out", "checkpoint-5")),
        ("/out", "/out", "a.pt", ("/out", "")),
        ("/out", "/out/version_0/checkpoints", "epoch=0-step=5.ckpt", ("/out/version_0/checkpoints", "")),
        ("/epoch_5", "/epoch_5", "a.pt", ("/epoch_5", "")),
        ("/out", "/out/checkpoint-5/.tmp", "x.pt", None),
        ("/out", "/out", "a.log", None),
        ("/", "/", "a.pt", ("/", "")),
    ],
)
def test_to_which_checkpoint_a_file_belongs(root, folder, name, place):
    assert placed(root, folder, name) == place


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/out/checkpoint-500/global_step500/x.pt", "/out"),
        ("/out/tmp-checkpoint-500/x.pt", "/out"),
        ("/epoch_3/checkpoints/x.pt", "/epoch_3/checkpoints"),
        ("/a.pt", "/"),
    ],
)
def test_where_checkpoints_are_saved(path, root):
    assert root_of(path) == root


def test_of_saves_that_were_found_later_the_last_one_counts(disk):
    disk("written", "global_step5/a.pt")("written", "global_step10/a.pt")
    assert disk.complete(QUIET_S * 1.1).unit == "global_step10"


def test_the_files_that_were_seen_being_written_are_known(disk):
    """On a file system that other nodes share, they are this node's."""
    disk.write("tmp-checkpoint-5/rank_0.pt").write("tmp-checkpoint-5/deep/a.pt")(
        "gone", "tmp-checkpoint-5", is_folder=True
    )
    before = "/out/tmp-checkpoint-5"
    disk.saves.feed(
        Change(
            kind="renamed",
            root="/out",
            folder="/out",
            name="checkpoint-5",
            is_folder=True,
            before=before,
            at_s=disk.at_s,
        )
    )
    assert disk.complete(1.0).seen == {"checkpoint-5/rank_0.pt", "checkpoint-5/deep/a.pt"}
    disk.write("checkpoint-6/rank_0.pt")
    assert disk.complete(QUIET_S * 1.1).seen == {"checkpoint-6/rank_0.pt"}
