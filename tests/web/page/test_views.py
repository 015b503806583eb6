"""Every view at three widths: it is drawn without an error, answers first, and never scrolls sideways.

axe-core finds nothing serious or critical in any, light and dark, in both languages."""

import pytest
from playwright.sync_api import expect

from web.page.chrome import View

VIEWS = {
    "jobs": ("/", "1 training"),
    "jobs, none": ("/?search=empty", "No job yet."),
    "job": ("/jobs/llama-70b", "Rank 5 (gpu-03, GPU 5) fell off the bus"),
    "job that starts": ("/jobs/vit-huge", "Starts 32 ranks"),
    "job that failed": ("/jobs/eval-7b", "ValueError in data.py:41"),
    "job unknown": ("/jobs/gemma-9b", "has not answered"),
    "incident": ("/jobs/llama-70b/incidents/2", "Rank 5 (gpu-03, GPU 5) fell off the bus"),
    "hang": ("/jobs/llama-70b/incidents/1", "Rank 2 (gpu-07) has not entered"),
    "hostile incident": ("/jobs/hostile-0/incidents/1", "<img src=x"),
    "output": ("/jobs/llama-70b/output?file=attempts/2/rank-5.log&offset=3216880", "Output of llama-70b"),
    "output of ranks": ("/jobs/llama-70b/output?rank=0,3,5", "Output of llama-70b"),
    "nodes": ("/nodes", "2 of 41 nodes are isolated: gpu-03, gpu-17; 1 is a lemon: gpu-22."),
    "node": ("/nodes/gpu-03?serial=1563221014405", "gpu-03 is isolated: xid_79"),
    "terminal": ("/terminal?job=llama-70b", "Terminal: llama-70b"),
    "login": ("/login", "Log in with a token"),
    "nothing": ("/no/such/view", "There is no view at /no/such/view."),
}
WIDTHS = (390, 1024, 1440)
# What stands out of its place to the right, of what can be seen.
BEYOND = """[...document.querySelectorAll('body *')].filter((one) => {
  const area = one.getBoundingClientRect();
  return area.width > 1 && area.right > innerWidth + 1 && !one.closest('.scroll, .table, .graph, .block, .unseen, .strip');
}).map((one) => one.outerHTML.slice(0, 120))"""


def says_its_answer_first(shown: View, said: str) -> None:
    expect(shown.page.locator("main h1")).to_contain_text(said)
    assert shown.page.locator("h1").count() == 1
    assert shown.run("document.documentElement.scrollWidth - innerWidth") <= 0
    assert shown.run(BEYOND) == []


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_answers_first_at_each_width_and_axe_finds_nothing_serious(view, name):
    """Each theme with each language, and each width. Colours are compared once for each theme.

    To open a view anew for each width would cost more than all that is looked at."""
    phone, tablet, desk = WIDTHS
    path, said = VIEWS[name]
    shown = view(path, width=phone)
    says_its_answer_first(shown, said)
    found = {"light, English, phone": shown.serious(contrast=False)}
    for width in (tablet, desk):
        shown.resize(width)
        says_its_answer_first(shown, said)
    shown.page.get_by_role("button", name="中文").click()
    found["light, Chinese, desk"] = shown.serious()
    shown.page.get_by_role("button", name="深色").click()
    shown.page.set_viewport_size({"width": phone, "height": 900})
    found["dark, Chinese, phone"] = shown.serious()
    shown.page.get_by_role("button", name="English").click()
    shown.page.set_viewport_size({"width": tablet, "height": 900})
    found["dark, English, tablet"] = shown.serious(contrast=False)
    assert {name: problems for name, problems in found.items() if problems} == {}


def test_axe_finds_nothing_serious_in_questions_and_answers(view):
    shown = view("/jobs/llama-70b/incidents/2", width=390)
    shown.page.get_by_role("button", name="Wrong verdict?").click()
    assert shown.serious() == []
    shown.page.get_by_label("The right category").fill("gpu_oom")
    shown.page.get_by_role("button", name="Send the correction").click()
    expect(shown.page.get_by_role("dialog")).to_contain_text("Done by mueller")
    assert shown.serious() == []


def test_axe_does_find_what_is_planted(view):
    shown = view("/nodes")
    shown.run("document.querySelector('main').append(document.createElement('input'))")
    assert any(problem.startswith("label:") for problem in shown.serious())


def test_the_answer_of_an_incident_is_on_a_phones_first_screen(view):
    """What happened, who, since when, what was done, what it cost, what to do: without a click or a scroll."""
    page = view("/jobs/llama-70b/incidents/2", width=390, height=844).page
    for text in ("Rank 5 (gpu-03", "97 % sure", "rank 5 (gpu-03, GPU 5)", "replace the worker", "41 s × 64 devices = 0.7 device-hours", "Drain gpu-03"):  # fmt: skip
        box = page.get_by_text(text).first.bounding_box()
        assert box and box["y"] + box["height"] <= 844, text


def test_a_missing_job_says_so_and_what_is_similar(view):
    shown = view("/jobs/llama-80b")
    shown.expected += ("404",)
    shown.problems.clear()
    alert = shown.page.get_by_role("alert")
    expect(alert).to_contain_text("There is nothing at /jobs/llama-80b.")
    expect(alert).to_contain_text("llama-70b")


def test_parts_without_anything_say_what_would_be_there(view):
    page = view("/jobs/vit-huge").page
    for text in ("No incident so far.", "Step times appear here once", "No time was lost."):
        expect(page.get_by_text(text)).to_be_visible()


def test_the_sentence_is_there_without_the_script(chrome, server):
    context = chrome.browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(server.address + "/jobs/llama-70b")
    expect(page.locator("h1")).to_contain_text("Rank 5 (gpu-03, GPU 5) fell off the bus")
    context.close()
