"""A place to run in; what a test leaves running there is ended, and is an error."""

import os

import pytest

from run.place import Place


@pytest.fixture
def place(tmp_path, tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    one = Place(tmp_path, cache=(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache")
    yield one
    one.end()
