"""The GPU part of the fault matrix (bench/checks/gpu_matrix.py), case by case."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_nvml.healthy import HEALTHY
from fake_nvml.matrix import FAULTS, Case, prepared, tried
from fake_nvml.worker import Worker
from holdfast.core.verdict.categories import KINDS

FAULTS_MIN, HEALTHY_MIN = 35, 25


@pytest.fixture(scope="module")
def workers(library: Path, old_library: Path) -> Iterator[dict[bool, Worker]]:
    both = {False: Worker(library), True: Worker(old_library)}
    yield both
    for worker in both.values():
        worker.close()


@pytest.mark.parametrize("case", [*FAULTS, *HEALTHY], ids=lambda case: case.name)
def test_case(case: Case, tmp_path, library, old_library, workers):
    node = prepared(case, tmp_path, old_library if case.old else library)
    assert not tried(case, node, workers[case.old])


def test_there_are_enough_cases_and_each_is_named_once():
    assert len(FAULTS) >= FAULTS_MIN and len(HEALTHY) >= HEALTHY_MIN
    names = [case.name for case in (*FAULTS, *HEALTHY)]
    assert len(set(names)) == len(names)


def test_categories_are_those_of_the_taxonomy():
    named = {case.found.category for case in FAULTS if case.found and case.found.category}
    assert {name for name in named if not name.startswith("xid_")} <= set(KINDS)
