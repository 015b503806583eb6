"""The newest checkpoint is read into the page cache when an attempt fails."""

import os
import subprocess
import sys

import pytest

from cached import evict, is_cached
from holdfast.agent.standby import page_cache

SIZE = 3 << 20


@pytest.fixture
def folder(tmp_path):
    """Two checkpoints of transformers' Trainer, neither of them in the page cache."""
    for step in (500, 1000):
        made = tmp_path / f"checkpoint-{step}"
        (made / "global_step").mkdir(parents=True)
        for path in (made / "model.safetensors", made / "global_step" / "rank_0.pt"):
            path.write_bytes(os.urandom(SIZE))
            evict(path)
    if is_cached(path):
        pytest.skip("this file system keeps its files in memory")
    return tmp_path


def test_the_newest_checkpoint_and_no_other_is_read(folder):
    newest, other = folder / "checkpoint-1000", folder / "checkpoint-500"
    assert page_cache.main([str(folder)]) == 0
    assert is_cached(newest / "model.safetensors")
    assert is_cached(newest / "global_step" / "rank_0.pt")
    assert not is_cached(other / "model.safetensors")


def test_a_single_file_and_the_second_path_are_read(folder):
    file = folder / "checkpoint-500" / "model.safetensors"
    assert page_cache.main([str(folder / "none"), str(file)]) == 0
    assert is_cached(file)
    assert page_cache.main([str(folder / "none")]) == 1


def test_a_checkpoint_that_is_large_for_the_memory_is_not_read(folder):
    assert page_cache.main([str(folder)], share=1e-6) == 1
    assert not is_cached(folder / "checkpoint-1000" / "model.safetensors")


def test_the_reading_ends_with_its_agent(folder):
    """Its parent is gone: it reads nothing more."""
    files = [str(folder / "checkpoint-1000" / "model.safetensors")]
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert page_cache.read(files, gone.pid)
    assert not is_cached(folder / "checkpoint-1000" / "model.safetensors")
