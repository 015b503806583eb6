"""A place to run in; what a test leaves running there is ended, and is an error."""

import pytest

from run.place import Place


@pytest.fixture
def place(tmp_path, cache_home):
    one = Place(tmp_path, cache_home)
    yield one
    one.end()
