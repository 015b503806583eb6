"""Text from outside is text: fifty hostile ones as names, sentences, evidence, stacks and lines of output."""

import pytest
from playwright.sync_api import expect

from web.page.hostile import HOSTILE
from web.page.test_views import WIDTHS

# Elements that no view has, and frames, scripts, styles and forms that came with a text.
FOREIGN = """[...document.querySelectorAll('img, iframe, object, base, math, body style, body link, body template, [onload], [onerror], a[href^="javascript:"], a[href^="data:"]')]
  .map((one) => one.outerHTML.slice(0, 200))"""
SCRIPTS = "document.querySelectorAll('script:not([src]):not([type=\"application/json\"])').length"

AT_ONCE = 10  # texts that one page shows, one after the other


def _unhurt(shown) -> None:
    assert shown.run(FOREIGN) == []
    assert shown.run(SCRIPTS) == 0
    assert "owned" not in shown.page.title()
    assert shown.run("document.querySelector('#app').innerText.includes('\\u202e')") is False
    assert shown.run("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize(
    "path",
    ["/?state=failed", "/jobs/hostile-0", "/jobs/hostile-1/incidents/1", "/jobs/hostile-18/incidents/1", "/jobs/hostile-41", "/nodes", "/jobs/llama-70b/output?file=attempts/2/rank-5.log&offset=6400"],
)  # fmt: skip
def test_a_view_full_of_hostile_text_is_unhurt(view, path):
    shown = view(path, width=WIDTHS[0])
    _unhurt(shown)
    for width in WIDTHS[1:]:
        shown.resize(width)
        _unhurt(shown)


def test_every_hostile_name_can_be_read_and_opened(view):
    shown = view("/?state=failed")
    names = shown.page.locator(".job .name a")
    titles = names.evaluate_all("(all) => all.map((one) => one.title)")
    # What a browser makes of a null in an attribute is its own affair.
    wanted = [name[:300] for name in HOSTILE if "\x00" not in name]
    assert [name for name in wanted if name not in titles] == []
    hrefs = names.evaluate_all("(all) => all.map((one) => one.getAttribute('href'))")
    assert all(href.startswith("/sub/jobs/") for href in hrefs)


@pytest.mark.parametrize("first", range(0, len(HOSTILE), AT_ONCE))
def test_a_hostile_text_is_drawn_as_text(view, first):
    """As the sentence, the title, the culprit, the evidence and an action of an incident."""
    shown = view("/nodes", width=390)
    for number in range(first, min(first + AT_ONCE, len(HOSTILE))):
        shown.move(f"/jobs/hostile-{number}/incidents/1", f"hostile-{number} #1")
        expect(shown.page.locator("main h1")).not_to_be_empty()
        _unhurt(shown)
        assert shown.problems == [], number
        if HOSTILE[number].isprintable() and HOSTILE[number].isascii():
            expect(shown.page.locator("main h1")).to_have_text(HOSTILE[number], use_inner_text=False)
