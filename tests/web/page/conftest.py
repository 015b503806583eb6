"""The page's server and a real Chromium, driven by Playwright."""

import os
import time

import pytest

from views.steps.browser import NEEDED, browser_path
from web.page.chrome import Chrome, View
from web.page.server import PageServer


@pytest.fixture(scope="package", autouse=True)
def zone():
    """UTC, here and in the browser."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


@pytest.fixture(scope="module")
def chrome():
    path = browser_path()
    if path is None:
        pytest.skip(NEEDED)
    one = Chrome(path)
    yield one
    one.close()


@pytest.fixture(scope="module")
def page_server():
    """One for all tests of a module: its scripts are compiled once."""
    one = PageServer()
    yield one
    one.close()


@pytest.fixture
def server(page_server):
    """In its world nothing has been done yet."""
    page_server.begin()
    yield page_server
    page_server.world.hang_up()


@pytest.fixture
def view(chrome, server):
    """view("/jobs/llama-70b", width=390): the page of that address. No test may end with an error in its console."""
    opened = []

    def open_view(path="/", **how) -> View:
        opened.append(View(chrome, server.address, path, cookie=server.cookie, **how))
        return opened[-1]

    yield open_view
    problems = [problem for one in opened for problem in one.problems]
    elsewhere = [url for one in opened for url in one.requests if not url.startswith(server.address)]
    for one in opened:
        one.close()
    assert problems == []
    assert elsewhere == [], "the page asks another host"
