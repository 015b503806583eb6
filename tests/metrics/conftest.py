"""Servers that a test starts, and ends with it."""

import contextlib
import shutil

import pytest

TOOLS = ("prometheus", "promtool", "prometheus-alertmanager", "prometheus-node-exporter")


@pytest.fixture
def started():
    """Takes servers: all are ended after the test."""
    with contextlib.ExitStack() as stack:

        def take(server):
            stack.callback(server.end)
            return server

        yield take


@pytest.fixture
def tools():
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: make monitoring")
