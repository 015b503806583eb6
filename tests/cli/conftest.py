"""A clean place for each test of the command line: its own state folder, no settings, one time zone."""

import os
import time

import pytest

from cli.nodes_kit import Nodes
from holdfast.cli.line.command_line import exit_code
from holdfast.journal.jobdir import StateDir


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch, cache_home):
    """An empty working folder and home; the environment without settings; the time zone UTC."""
    for name in list(os.environ):
        if name.startswith(("HOLDFAST_", "MA_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def state(place, monkeypatch):
    """The state folder that the commands find."""
    monkeypatch.setenv("HOLDFAST_STATE_DIR", str(place / "state"))
    return StateDir(place / "state")


@pytest.fixture
def nodes(state):
    """nodes(3, spares=1): job llama on so many nodes, under a real hub; see nodes_kit."""
    made = []

    def make(count, spares=0):
        made.append(Nodes(state, count, spares))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def holdfast(capsys):
    """holdfast("log", "llama"): its exit code, stdout and stderr, in this process."""

    def run(*words: str) -> tuple[int, str, str]:
        code = exit_code(list(words))
        output = capsys.readouterr()
        return code, output.out, output.err

    return run
