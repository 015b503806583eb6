"""What a deterministic run sets in real processes, and that the script's own settings win.

The import of PyTorch is most of what such a process costs. Four of them answer all questions.
"""

import json
from typing import NamedTuple

import pytest
from rank_kit import Ranks

# What it draws first, and what it draws after seeds of its own, which it sets partly before it imports torch.
REPORT = """import json, random
import numpy.random
numbers = [random.random(), float(numpy.random.rand())]
random.seed(5); numpy.random.seed(5)
import torch
numbers.append(float(torch.rand(1)))
torch.manual_seed(5)
print(json.dumps({
    "numbers": numbers,
    "own": [random.random(), float(numpy.random.rand()), float(torch.rand(1))],
    "algorithms": torch.are_deterministic_algorithms_enabled(),
    "warns": torch.is_deterministic_algorithms_warn_only_enabled(),
    "cudnn": [torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic],
}))
"""


class Told(NamedTuple):
    """By one process: its report, and its note, which is None if it left none."""

    report: dict
    note: dict | None


def told(folder, rank=0, **env) -> Told:
    folder.mkdir()
    ranks = Ranks(folder)
    code, out, err = ranks.run(REPORT, rank=rank, **env)
    assert (code, err) == (0, "")
    return Told(
        json.loads(out), ranks.read("deterministic.json") if "deterministic.json" in ranks.names() else None
    )


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    return told(tmp_path_factory.mktemp("first") / "0", HOLDFAST_DETERMINISTIC_SEED="0")


def test_a_run_repeats_and_ranks_differ(first, tmp_path):
    """A process that is no rank draws the numbers of rank 0: both have the variable's value as their seed."""
    again = told(tmp_path / "again", rank=None, HOLDFAST_DETERMINISTIC_SEED="0")
    other = told(tmp_path / "other", rank=1, HOLDFAST_DETERMINISTIC_SEED="0")
    assert first.report == again.report
    numbers = zip(first.report["numbers"], other.report["numbers"], strict=True)
    assert all(one != two for one, two in numbers)


def test_what_is_set_and_noted(first):
    report = first.report
    assert (report["algorithms"], report["warns"], report["cudnn"]) == (True, True, [False, True])
    assert (len(first.note["set"]), first.note["not_set"], first.note["seed"]) == (4, {}, 0)


def test_seeds_of_the_script_win_and_without_the_variable_nothing_is_set(first, tmp_path):
    plain = told(tmp_path / "plain")
    assert not plain.report["algorithms"]
    assert plain.note is None
    assert first.report["own"] == plain.report["own"]


def test_an_old_torch_has_what_it_knows(ranks):
    ranks.module(
        "torch/__init__.py",
        "__version__ = '1.7'\nseeds = []\ndef manual_seed(seed):\n    seeds.append(seed)\n",
    )
    code, out, err = ranks.run("import torch; print(torch.seeds)", rank=2, HOLDFAST_DETERMINISTIC_SEED="0")
    assert (code, out, err) == (0, "[2]\n", "")
    note = ranks.read("deterministic.json")
    assert note["set"] == ["torch.manual_seed(seed + rank)"] and len(note["not_set"]) == 3
