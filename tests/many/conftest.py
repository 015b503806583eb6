"""A bench for agents; what a test leaves running is ended, and is an error."""

import pytest

from many.agent.bench import Bench


@pytest.fixture
def bench(tmp_path, cache_home):
    one = Bench(tmp_path, cache_home)
    yield one
    left = one.end()
    assert not left, f"processes of the job were left: {left}"
