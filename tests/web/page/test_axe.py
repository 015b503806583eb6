"""axe-core finds nothing serious or critical: in any view, light and dark, in both languages, at three widths."""

import pytest
from playwright.sync_api import expect

from web.page.test_views import VIEWS, WIDTHS, says_its_answer_first


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_answers_first_on_a_phone_and_axe_finds_nothing_serious(view, name):
    """Each theme with each language, and each width. Colours are compared once for each theme."""
    phone, tablet, desk = WIDTHS
    path, said = VIEWS[name]
    shown = view(path, width=phone)
    says_its_answer_first(shown, said)
    found = {"light, English, phone": shown.serious(contrast=False)}
    shown.page.get_by_role("button", name="中文").click()
    shown.page.set_viewport_size({"width": desk, "height": 900})
    found["light, Chinese, desk"] = shown.serious()
    shown.page.get_by_role("button", name="深色").click()
    shown.page.set_viewport_size({"width": phone, "height": 900})
    found["dark, Chinese, phone"] = shown.serious()
    shown.page.get_by_role("button", name="English").click()
    shown.page.set_viewport_size({"width": tablet, "height": 900})
    found["dark, English, tablet"] = shown.serious(contrast=False)
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
