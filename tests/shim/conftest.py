"""Ranks, a gate and zygotes for each test; nothing they start is left behind."""

import pytest
from rank_kit import Gate, Ranks
from zygote_kit import Nursery


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


@pytest.fixture
def nursery(ranks):
    made = []

    def make(program, *lines, **how):
        made.append(Nursery(ranks, program))
        report = made[-1].begin(*lines, **how)
        assert report["is"] == "ready", report
        made[-1].serve()
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def report(ranks):
    """What a zygote says of these lines."""
    made = []

    def ask(*lines, **how):
        made.append(Nursery(ranks, ""))
        return made[-1].begin(*lines, **how)

    yield ask
    for one in made:
        one.close()
