"""The small file that tells where a training is."""

import math
import os

import pytest

from holdfast.model.steps import StepFinding, StepNow
from holdfast.observe.logs.step_file import BYTES_MAX, NAME, StepFile, StepFileWriter, read

SLOW = StepFinding(
    kind="slowdown", text="slower since step 40", step=44, numbers={"ratio": 1.5, "recent": [0.3]}
)
NOW = StepNow(step=120, total=500, now_s=0.3, median_s=0.2, best_s=0.19, eta_s=114.0, loss=2.5)


def told(**changed):
    return StepFile(
        **{"at_s": 5.0, "attempt": 2, "now": NOW, "recent": (0.2, 0.3), "findings": (SLOW,), **changed}
    )


def test_what_was_written_is_read_back(tmp_path):
    assert read(tmp_path) is None
    assert StepFileWriter(tmp_path).write(told())
    assert read(tmp_path) == told()
    assert os.listdir(tmp_path) == [NAME]


def test_a_loss_that_is_no_number_is_read_as_none(tmp_path):
    StepFileWriter(tmp_path).write(told(now=StepNow(step=1, loss=math.nan)))
    assert read(tmp_path).now == StepNow(step=1)


def test_what_has_not_changed_is_not_written_again(tmp_path):
    writer = StepFileWriter(tmp_path)
    writer.write(told())
    assert writer.write(told(at_s=9.0))
    assert read(tmp_path).at_s == 5.0
    writer.write(told(at_s=9.0, attempt=3))
    assert read(tmp_path).at_s == 9.0


def test_where_it_cannot_be_written_nothing_else_happens(tmp_path):
    writer = StepFileWriter(tmp_path / "gone")
    assert not writer.write(told())
    (tmp_path / "gone").mkdir()
    assert writer.write(told())


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"at_s": 1', b"\xff\0", b"[" * 9_000, b"1" * (BYTES_MAX + 2)]
)
def test_another_file_of_that_name_is_none(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    assert read(tmp_path) is None
