"""The page of a real `holdfast serve`, over a real state folder: first paint, all views, and what a role may."""

import pytest
from playwright.sync_api import expect

from views.steps.browser import NEEDED, browser_path
from web.page.chrome import View

# These jobs have no samples of their ranks: the server says so, and the browser notes the answer.
NO_SAMPLES = ("/heat?",)


@pytest.fixture(scope="module")
def jobs(place):
    place.job("llama")
    place.job("qwen")
    return place


@pytest.fixture
def open_page(chrome, jobs, serve):
    server = serve()
    opened = []

    def show(path="/", **how):
        opened.append(View(chrome, server.url.rstrip("/"), path, expected=NO_SAMPLES, **how))
        return opened[-1]

    yield show
    for one in opened:
        assert one.problems == []
        assert all(url.startswith(server.url) for url in one.requests)
        one.close()


@pytest.mark.skipif(browser_path() is None, reason=NEEDED)
@pytest.mark.parametrize("width", (390, 1440))
def test_the_views_of_a_real_server(open_page, width):
    shown = open_page("/", width=width)
    page = shown.page
    page.get_by_role("link", name="llama").click()
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    said = page.locator("h1").text_content()
    page.locator(".incidents a").first.click()
    expect(page.get_by_role("heading", name="Evidence")).to_be_visible()
    assert shown.serious() == []
    assert shown.run("document.documentElement.scrollWidth - innerWidth") <= 0
    page.get_by_role("link", name="‹ llama").click()
    expect(page.locator("h1")).to_have_text(said)
    page.get_by_role("link", name="all of it ›").click()
    expect(page.get_by_role("button", name="Show")).to_be_visible()
    page.get_by_role("navigation").get_by_role("link", name="Nodes").click()
    expect(page.get_by_role("searchbox", name="Search nodes")).to_be_visible()


@pytest.mark.skipif(browser_path() is None, reason=NEEDED)
def test_the_sentence_is_in_the_first_answer(open_page):
    shown = open_page("/jobs/llama")
    page = shown.page
    answers = [url for url in shown.requests if url.endswith("/api/v1/jobs/llama")]
    assert answers == []  # the document came with the page
    page.get_by_role("button", name="中文").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
