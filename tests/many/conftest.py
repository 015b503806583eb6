"""A bench for agents; what a test leaves running is ended, and is an error."""

import pytest

from many.agent_bench import Bench


@pytest.fixture
def bench(tmp_path):
    one = Bench(tmp_path)
    yield one
    left = one.end()
    assert not left, f"processes of the job were left: {left}"
