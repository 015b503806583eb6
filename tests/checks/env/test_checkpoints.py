"""Checkpoints that are whole and checkpoints that are not, of real writers where they are at hand."""

import importlib.util
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.env.worlds import saved, tensors
from holdfast.checks.child import look
from holdfast.checks.registry import check_named
from holdfast.core.checks.env.checkpoint import (
    DEEPSPEED_TRACKER,
    MEGATRON_TRACKER,
    TAIL_BYTES,
    Entry,
    newest_of,
    state_of_file,
    state_of_folder,
    state_of_safetensors,
)
from holdfast.model.checks import ENVIRONMENT_FAULT, FAIL, PASS, WARN, Scene

SAVE = """
import sys, torch
torch.save({"w": torch.arange(40000), "step": 7}, sys.argv[1] + "/new.pt")
torch.save({"w": torch.arange(40000)}, sys.argv[1] + "/old.pt", _use_new_zipfile_serialization=False)
"""


def state(path):
    with open(path, "rb") as file:
        data = file.read()
    return state_of_file(path.name, len(data), data[:8], data[-TAIL_BYTES:])


def checked(folder, *more):
    command = ("python", "t.py", "--save", str(folder), *more)
    env = {"PATH": os.path.dirname(sys.executable)}
    (finding, *_) = look(check_named("env-checkpoint"), Scene(command=command, env=env, cwd="/")).findings
    return finding


@pytest.mark.torch
@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (the demo extra)"
)
def test_what_torch_saves_is_whole_and_every_cut_of_it_is_seen(tmp_path):
    subprocess.run([sys.executable, "-c", SAVE, str(tmp_path)], check=True)
    assert state(tmp_path / "new.pt") == "" and state(tmp_path / "old.pt") == ""
    data = (tmp_path / "new.pt").read_bytes()
    for length in (1, 7, 100, len(data) // 2, len(data) - 30, len(data) - 1):
        (tmp_path / "cut.pt").write_bytes(data[:length])
        whole = length < 4  # too short to tell what it is meant to be
        assert bool(state(tmp_path / "cut.pt")) is not whole, length


def test_a_zip_file_cut_anywhere_is_seen(tmp_path):
    path = tmp_path / "a.pt"
    saved(path, kib=2)
    data = path.read_bytes()
    assert state(path) == ""
    for length in range(4, len(data)):
        assert state_of_file("a.pt", length, data[:8], data[:length][-TAIL_BYTES:]), length


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors", "a.bin"])
def test_files_without_content(name):
    assert state_of_file(name, 0, b"", b"") == "it is empty"
    assert state_of_file(name, 8, b"\0" * 8, b"\0" * 8) != ""


def test_safetensors_say_how_long_they_are(tmp_path):
    tensors(tmp_path / "a.safetensors", missing_bytes=1)
    data = (tmp_path / "a.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert "truncated" in state_of_safetensors(data[8 : 8 + length], len(data))
    assert state_of_safetensors(data[8 : 8 + length], len(data) + 1) == ""
    assert state_of_safetensors(b"[1]", 11) == "its header cannot be read"


@given(st.binary(max_size=80), st.sampled_from(["a.pt", "b.safetensors", "c.ckpt"]))
def test_any_bytes_have_an_answer(data, name):
    assert isinstance(state_of_file(name, len(data), data[:8], data), str)
    assert isinstance(state_of_safetensors(data, len(data)), str)
    assert isinstance(
        state_of_folder("Hugging Face", ["trainer_state.json"], {"trainer_state.json": data}), str
    )
    assert isinstance(state_of_folder("file", ["x.index.json"], {"x.index.json": data}), str)


def folder(name, changed_s=1.0):
    return Entry(name, True, changed_s)


@pytest.mark.parametrize(
    ("entries", "trackers", "name", "wrong"),
    [
        ([folder("iter_0000100")], {MEGATRON_TRACKER: "100\n"}, "iter_0000100", ""),
        ([folder("release")], {MEGATRON_TRACKER: "release"}, "release", ""),
        (
            [folder("iter_0000100")],
            {MEGATRON_TRACKER: "200"},
            "",
            "it names iter_0000200, which is not there",
        ),
        ([], {MEGATRON_TRACKER: "metadata"}, "", "its content is 'metadata', not an iteration number"),
        ([folder("global_step5")], {DEEPSPEED_TRACKER: "global_step5"}, "global_step5", ""),
        ([], {DEEPSPEED_TRACKER: "../x"}, "", "it names '../x'"),
        (
            [folder("checkpoint-9"), folder("checkpoint-10"), folder("tmp-checkpoint-11")],
            {},
            "checkpoint-10",
            "",
        ),
        ([folder("step-9"), folder("step-100")], {}, "step-100", ""),
        ([Entry("a.ckpt", False, 2.0), Entry("b.ckpt", False, 1.0)], {}, "a.ckpt", ""),
    ],
)
def test_which_checkpoint_is_the_newest(entries, trackers, name, wrong):
    newest = newest_of(entries, trackers)
    assert newest is not None and (newest.name, newest.wrong) == (name, wrong)


def test_a_folder_of_something_else_has_no_checkpoint():
    assert newest_of([folder("logs"), Entry("args.json", False, 1.0)], {}) is None


def test_nothing_is_left_in_the_folder(tmp_path):
    assert checked(tmp_path).status == PASS
    assert checked(tmp_path / "new/deeper").status == PASS
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_to_go_on_from_that_is_elsewhere(tmp_path):
    (tmp_path / "out").mkdir()
    saved(tmp_path / "other/a.pt")
    os.truncate(tmp_path / "other/a.pt", 100)
    findings = look(
        check_named("env-checkpoint"),
        Scene(
            command=("python", "t.py", "--save", "out", "--resume", "other/a.pt"),
            cwd=str(tmp_path),
            env={"PATH": "/usr/bin"},
        ),
    ).findings
    assert [one.status for one in findings] == [PASS, WARN]
    assert checked_resume(tmp_path, "/no/such/place").status == WARN
    assert checked_resume(tmp_path, "org/model").status == PASS  # a name of a hub


def checked_resume(tmp_path, resume):
    command = ("python", "t.py", "--save", str(tmp_path / "out"), "--resume-from-checkpoint", resume)
    scene = Scene(command=command, cwd=str(tmp_path), env={"PATH": "/usr/bin"})
    return look(check_named("env-checkpoint"), scene).findings[-1]


def test_a_missing_part_that_the_index_names(tmp_path):
    place = tmp_path / "checkpoint-5"
    tensors(place / "model-00001-of-00002.safetensors")
    (place / "trainer_state.json").write_text('{"global_step": 5}')
    index = (
        '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
    )
    (place / "model.safetensors.index.json").write_text(index)
    finding = checked(tmp_path)
    assert finding.status == WARN
    assert "model-00002-of-00002.safetensors, which model.safetensors.index.json lists, is" in finding.why


def test_a_file_system_that_is_read_only(tmp_path):
    """/proc and /sys take no files, from root neither."""
    finding = checked("/sys/holdfast")
    assert (finding.status, finding.fault) == (FAIL, ENVIRONMENT_FAULT)
