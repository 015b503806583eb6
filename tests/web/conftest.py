"""Real servers for the tests of the API: `holdfast serve` in a process of its own, on a free port."""

import os
import time

import pytest

from web.servers import Place, Server


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Without settings; the time zone UTC."""
    for name in list(os.environ):
        if name.startswith(("HOLDFAST_", "MA_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A state folder for all tests of a module."""
    return Place(tmp_path_factory.mktemp("state"))


@pytest.fixture
def serve(place):
    """serve("--lang", "zh"): a server of this module's place, that ends with the test."""
    started = []

    def start(*flags: str, state=None, env=None) -> Server:
        started.append(Server(state or place.root, *flags, env=env))
        return started[-1]

    yield start
    for server in started:
        server.stop()
