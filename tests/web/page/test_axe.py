"""axe-core finds nothing serious or critical: in any view, light and dark, in both languages, at three widths."""

import pytest
from playwright.sync_api import expect

from web.page.test_views import VIEWS, WIDTHS


@pytest.mark.parametrize("name", VIEWS)
def test_axe_finds_nothing_serious(view, name):
    shown = view(VIEWS[name][0], width=390)
    expect(shown.page.locator("main h1")).not_to_be_empty()
    found = {"light, English": shown.serious()}
    shown.page.get_by_role("button", name="dark", exact=True).click()
    found["dark, English"] = shown.serious()
    shown.page.get_by_role("button", name="中文").click()
    found["dark, Chinese"] = shown.serious()
    shown.page.get_by_role("button", name="浅色").click()
    found["light, Chinese"] = shown.serious()
    for width in WIDTHS[1:]:
        shown.page.set_viewport_size({"width": width, "height": 900})
        found[f"{width} px"] = shown.serious()
    assert {name: problems for name, problems in found.items() if problems} == {}


def test_nor_in_questions_and_answers(view):
    shown = view("/jobs/llama-70b/incidents/2", width=390)
    shown.page.get_by_role("button", name="Wrong verdict?").click()
    assert shown.serious() == []
    shown.page.get_by_label("The right category").fill("gpu_oom")
    shown.page.get_by_role("button", name="Send the correction").click()
    expect(shown.page.get_by_role("dialog")).to_contain_text("Done by mueller")
    assert shown.serious() == []


def test_it_does_find_what_is_planted(view):
    shown = view("/nodes")
    shown.run("document.querySelector('main').append(document.createElement('input'))")
    assert any(problem.startswith("label:") for problem in shown.serious())
