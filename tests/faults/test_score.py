"""Tests the labels of the fault benchmark's corpus and their scoring."""

import json
from pathlib import Path

import pytest

from bench.faults.corpus import cleaned, labelled
from bench.faults.draw import Case
from bench.faults.kinds import BY_NAME
from bench.faults.score import scored

CORPUS = Path(__file__).parents[2] / "bench" / "faults" / "corpus"
LINES = ["step 10/100 loss 2.2\n", "FileNotFoundError: [Errno 2] No such file: 'shard-00017.bin'\n"]


def test_a_label_names_the_line_that_states_the_cause():
    label = labelled(BY_NAME["shard"], Case(0, "shard", 50, 1), "one", LINES)
    assert (label["category"], label["culprit"], label["first_error_line"]) == (
        "missing_file",
        {"rank": 1},
        LINES[1].strip(),
    )


@pytest.mark.parametrize("kind, lines", [("sigstop", LINES), ("shard", LINES[:1])])
def test_a_cause_that_the_log_does_not_hold_is_unknown_and_nobody_is_named(kind: str, lines: list[str]):
    label = labelled(BY_NAME[kind], Case(0, kind, 50, 1), "one", lines)
    assert (label["category"], label["culprit"], label["action"]) == ("unknown", None, "unknown")
    assert label["also"] == ["none"]


def test_the_log_of_a_training_that_completed_is_healthy():
    label = labelled(BY_NAME["launcher"], Case(0, "launcher", 50, 1), "one", LINES[:1], ended_well=True)
    assert (label["category"], label["culprit"], label["action"]) == ("none", None, "none")


def test_names_of_the_machine_are_replaced():
    assert cleaned(["File /home/me/run-1/x.py\n"], {"/home/me": "/job"}) == ["File /job/run-1/x.py\n"]


def test_abstaining_counts():
    label = {"category": "nccl_network_error", "also": ["collective_timeout"], "culprit": None}
    assert scored(label, {"category": "collective_timeout", "culprits": []}) == {
        "cause": True,
        "abstained": True,
    }
    assert scored(label, {"category": "none", "culprits": [{"rank": 0}]}) == {
        "cause": False,
        "abstained": False,
    }


def test_a_full_answer():
    label = labelled(BY_NAME["shard"], Case(0, "shard", 50, 1), "one", LINES)
    answer = {
        "category": "data_error",
        "culprits": [{"rank": 1}],
        "first_error": {"text": LINES[1]},
        "action": "fix_data",
    }
    assert set(scored(label, answer).values()) == {True}
    assert scored(label, {}) == dict.fromkeys(("cause", "culprit", "first", "action"), False)


def test_every_case_of_the_corpus_has_a_label_and_its_log():
    paths = sorted(CORPUS.glob("*/case.json"))
    assert 0 < len(paths) <= 60
    for path in paths:
        label = json.loads(path.read_text())
        assert label["id"] == path.parent.name
        log = (path.parent / "log.txt").read_text()
        assert len(log.splitlines()) == label["lines"]
        assert label["first_error_line"] is None or label["first_error_line"] in log
    assert sum(file.stat().st_size for file in CORPUS.rglob("*") if file.is_file()) <= 2 << 20
