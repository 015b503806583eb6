"""Checkpoints are recognised by the names that libraries give them, and other files are not."""

import pytest

from holdfast.core.checkpoints import names


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint.pt",
        "model.safetensors",
        "__0_0.distcp",
        "epoch=1-step=500.ckpt",
        "ckpt_1000",
        "model.pth.tar",
    ]
    + ["model.ckpt-1000.data-00000-of-00001", "mp_rank_00_model_states.pt", "template.pt"],
)
def test_files(name):
    assert names.is_file(name)


@pytest.mark.parametrize(
    "name",
    [
        "train.log",
        "events.0.jsonl",
        "checkpoint.part",
        "model.safetensors.tmp",
        ".model.pt",
        "data.tar",
        "step_5.log",
    ]
    + ["tmp_model.pt", "checkpoint.pt.tmp.1234"],
)
def test_other_files(name):
    assert not names.is_file(name)


@pytest.mark.parametrize(
    "name", ["checkpoint-500", "iter_0000500", "global_step500", "epoch=1-step=500", "ckpt-7", "run-step-5"]
)
def test_folders(name):
    assert names.is_folder(name)


@pytest.mark.parametrize(
    "name", ["out", "version_0", "checkpoints", "tmp-checkpoint-500", "checkpoint-500.tmp", "step"]
)
def test_other_folders(name):
    assert not names.is_folder(name)
