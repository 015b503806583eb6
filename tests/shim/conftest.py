"""Ranks and a gate for each test; nothing they start is left behind."""

import pytest
from rank_kit import Gate, Ranks


@pytest.fixture
def ranks(tmp_path):
    here = Ranks(tmp_path)
    yield here
    for process in here.started:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def gate(ranks):
    made = Gate(ranks.folder)
    yield made
    made.drop()
