"""Faults in words."""

import pytest

from holdfast.core.job.faults import words
from holdfast.model.state import ExitFault


@pytest.mark.parametrize(
    ("rank", "code", "says"),
    [
        (None, 3, "the command of worker 0 ended with 3"),
        (None, -9, "the command of worker 0 was killed by signal 9"),
        (1, 3, "rank 1 on worker 0 failed: exit code 3"),
        (1, -9, "rank 1 on worker 0 failed: killed by signal 9"),
    ],
)
def test_an_end_by_a_signal_is_no_negative_code(rank, code, says):
    assert words(ExitFault(worker=0, rank=rank, code=code)) == says
