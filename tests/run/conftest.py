"""A place to run in; what a test leaves running there is ended, and is an error."""

import pytest

from run.place import Place


@pytest.fixture
def place(tmp_path):
    one = Place(tmp_path)
    yield one
    one.end()
