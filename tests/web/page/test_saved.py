"""A saved page: one file that needs no server, asks nobody for anything, and leads only to what it holds."""

import time

import pytest
from playwright.sync_api import expect

from holdfast.views.page.shell import First, Shell, saved_html
from web.page import documents, incidents
from web.page.chrome import View
from web.page.hostile import HOSTILE


@pytest.fixture
def saved(chrome, tmp_path):
    """saved(start, width=...): a page with a job and one of its incidents, opened from its file."""
    now_s = time.time()
    row = documents.job_row("training", now_s)
    path = "/jobs/llama-70b"
    texts = {
        path: documents.job_document(row, now_s),
        f"{path}/incidents/2": incidents.incident_document(
            "llama-70b", documents.incident_rows(now_s)[1], now_s
        ),
        f"{path}/steps": incidents.step_series(now_s, 41_877, None, None, 600),
        f"{path}/heat": incidents.heat_map(now_s, 100),
        f"{path}/log": {"lines": documents.log_lines(now_s), "next": 28, "live": False},
        f"{path}/output": incidents.output_page([5], now_s, 60, 40),
        f"{path}/incidents/2/markdown": "**" + HOSTILE[1] + "**",
    }
    opened = []

    def save(start, **how):
        first = First(documents=texts, saved_at_s=now_s, start=start)
        shell = Shell(title="llama-70b", first=first, sentence=row.sentence.text, tone="recovered")
        file = tmp_path / "incident.html"
        file.write_text(saved_html(shell), encoding="utf-8")
        opened.append(View(chrome, "", file.as_uri(), **how))
        return opened[-1]

    yield save
    for one in opened:
        assert one.problems == []
        assert {url.partition("#")[0] for url in one.requests} == {(tmp_path / "incident.html").as_uri()}
        one.close()


@pytest.mark.parametrize("width", (390, 1440))
def test_the_incident_and_its_job_are_there_without_a_server(saved, width):
    shown = saved("/jobs/llama-70b/incidents/2", width=width)
    page = shown.page
    expect(page.locator("h1")).to_contain_text("Rank 5 (gpu-03, GPU 5) fell off the bus")
    expect(page.get_by_text("This file loads nothing and sends nothing.")).to_be_visible()
    assert shown.run("document.documentElement.scrollWidth - innerWidth") <= 0
    assert shown.serious() == []
    page.get_by_role("link", name="‹ llama-70b").click()
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    expect(page.locator(".u-over")).to_be_visible()
    expect(page.locator("#heat-read")).to_contain_text("64 ranks")
    expect(page.get_by_role("region", name="Last lines of the output")).to_contain_text("<template><script>")
    page.go_back()
    expect(page.get_by_role("heading", name="Evidence")).to_be_visible()


def test_it_offers_no_action_and_no_way_to_what_it_does_not_hold(saved):
    page = saved("/jobs/llama-70b/incidents/2").page
    for name in ("Acknowledge", "Restart the job", "Wrong verdict?"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.get_by_role("link", name="Download the bundle")).to_have_count(0)
    hrefs = page.locator("a[href]").evaluate_all("(all) => all.map((one) => one.getAttribute('href'))")
    assert all(href.startswith("#") for href in hrefs)
    assert "#/nodes/gpu-03" not in hrefs
    page.get_by_role("button", name="Copy as Markdown").click()
    assert page.evaluate("navigator.clipboard.readText()") == "**" + HOSTILE[1] + "**"


def test_a_page_without_a_series_or_a_heat_map_says_so(chrome, tmp_path):
    now_s = time.time()
    document = documents.job_document(documents.job_row("failed", now_s), now_s)
    first = First(documents={"/jobs/eval-7b": document}, saved_at_s=now_s, start="/jobs/eval-7b")
    file = tmp_path / "job.html"
    file.write_text(saved_html(Shell(title="eval-7b", first=first)), encoding="utf-8")
    shown = View(chrome, "", file.as_uri())
    expect(shown.page.locator("h1")).to_contain_text("ValueError in data.py:41")
    expect(shown.page.get_by_role("heading", name="Time of a step")).to_have_count(0)
    expect(shown.page.get_by_role("heading", name="Output")).to_have_count(0)
    assert shown.problems == []
    shown.close()
