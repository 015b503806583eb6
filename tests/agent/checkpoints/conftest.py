"""Folders for a disk and for memory."""

import pytest

from agent.checkpoints.kit import Memory


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


@pytest.fixture
def memory(tmp_path):
    folder = tmp_path / "shm"
    folder.mkdir()
    one = Memory(folder)
    yield one
    one.store.release()
