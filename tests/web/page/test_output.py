"""The output: jumps to a line, a second, a pattern; several ranks on one time axis; reads on without a jump; copies bytes."""

import re

import pytest
from playwright.sync_api import expect

from web.page import incidents
from web.page.hostile import HOSTILE
from web.page.test_views import WIDTHS

LINE = "/jobs/llama-70b/output?file=attempts/2/rank-5.log&offset="
TOP = """(() => { const box = document.querySelector(".scroll"), top = box.getBoundingClientRect().top;
  return [...box.querySelectorAll(".out")].find((one) => one.getBoundingClientRect().bottom > top + 4).dataset.key; })()"""


@pytest.mark.parametrize("width", WIDTHS)
def test_a_link_to_a_line_shows_that_line_with_the_first_error_marked(view, width):
    page = view(LINE + str(40_211 * 80), width=width).page
    line = page.locator(".out.target")
    expect(line).to_contain_text("RuntimeError: CUDA error")
    expect(line).to_contain_text("first error")
    expect(line).to_be_in_viewport()
    expect(line.get_by_role("link")).to_have_attribute("href", re.compile(r"rank-5.log&offset=3216880$"))


def test_ranks_stand_on_one_time_axis(view):
    page = view("/jobs/llama-70b/output?rank=0,3,5").page
    ranks = page.locator(".out .rank").all_text_contents()
    assert set(ranks) == {"0", "3", "5"}
    times = page.locator(".out .when").all_text_contents()
    assert times == sorted(times) and len(times) == 198


def test_the_bar_jumps_to_a_second_and_says_what_is_no_time(view, server):
    page = view("/jobs/llama-70b/output?rank=5").page
    wanted = incidents.output_line(5, 99_000, server.world.now_s)
    second = page.evaluate(f"new Date({wanted.at_s} * 1000).toISOString().slice(11, 19)")
    page.get_by_label("time").fill("half past nine")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("alert")).to_contain_text("half past nine is no time")
    page.get_by_label("time").fill(second)
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile(r"at_s=\d+&rank=5"))
    expect(page.locator(".out.target .when")).to_contain_text(second)
    page.go_back()
    expect(page.locator(".out.target")).to_have_count(0)


def test_a_pattern_is_searched_further_on_demand(view):
    page = view("/jobs/llama-70b/output?rank=5").page
    page.get_by_label("pattern").fill("RuntimeError")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("0 lines fit. Searched 2.40 MB of 8.00 MB.")).to_be_visible()
    page.get_by_role("button", name="search on").click()
    expect(page.locator(".out")).to_have_count(1)
    expect(page.get_by_text("1 line fits. Searched 4.80 MB of 8.00 MB.")).to_be_visible()
    page.locator(".out a").click()
    expect(page.locator(".out.target")).to_contain_text("RuntimeError")
    assert page.locator(".out").count() > 100


def test_first_error_and_end_are_one_click_away(view):
    page = view("/jobs/llama-70b/output").page
    page.get_by_role("link", name="First error").click()
    expect(page.locator(".out.target")).to_contain_text("RuntimeError: CUDA error")
    page.get_by_role("link", name="End", exact=True).click()
    expect(page.get_by_text("The output ends here, until more is written.")).to_be_in_viewport()


def test_earlier_pages_come_without_moving_the_line_that_is_read_and_far_ones_go(view):
    shown = view(LINE + str(50_000 * 80))
    page, box = shown.page, shown.page.locator(".scroll")
    expect(page.locator(".out.target")).to_be_in_viewport()
    for _ in range(12):
        first = page.locator(".out").first.get_attribute("data-key")
        at = box.evaluate(f"(box) => {{ box.scrollTop = 700; return {TOP}; }}")
        shown.wait(f"document.querySelector('.out').dataset.key !== {first!r}")
        assert shown.run(TOP) == at
    assert page.locator(".out").count() <= 8 * 200
    last = page.locator(".out").last.get_attribute("data-key")
    box.evaluate("(box) => { box.scrollTop = box.scrollHeight; }")
    shown.wait(f"[...document.querySelectorAll('.out')].at(-1).dataset.key !== {last!r}")


def test_what_is_copied_is_what_was_written(view):
    page = view(LINE + str(40_211 * 80)).page
    expect(page.locator(".out.target")).to_be_in_viewport()
    page.evaluate("""() => {
        const all = [...document.querySelectorAll(".out .text")], at = all.findIndex((one) => one.closest(".target"));
        getSelection().setBaseAndExtent(all[at - 1], 0, all[at + 1], all[at + 1].childNodes.length);
    }""")
    page.locator(".scroll").focus()
    page.keyboard.press("Control+c")
    wanted = [incidents.output_line(5, number, 0.0).text for number in (40_210, 40_211, 40_212)]
    assert page.evaluate("navigator.clipboard.readText()") == "\n".join(wanted)


def test_new_lines_are_offered_at_the_end(view, server):
    page = view("/jobs/llama-70b/output?rank=5").page
    expect(page.get_by_text("The output ends here, until more is written.")).to_be_visible()
    server.world.wait_for_stream()
    for number in (100_001, 100_002, 100_003):
        line = incidents.output_line(5, number, server.world.now_s)
        server.world.tell("output", {"job": "llama-70b", "line": {"place": {"file": line.place.file, "offset": number * 80, "rank": 5}, "text": f"line {number}", "at_s": line.at_s}})  # fmt: skip
    offer = page.get_by_role("button", name="3 new lines ↓")
    expect(offer).to_be_visible()
    expect(page.get_by_text("line 100003")).to_have_count(0)
    offer.click()
    expect(page.get_by_text("line 100003")).to_be_in_viewport()


def test_a_line_that_is_long_is_cut_and_can_be_seen_whole(view):
    page = view(LINE + str(98 * 80)).page
    line = page.locator('[data-key="attempts/2/rank-5.log:7840"]')
    expect(line).to_contain_text("9.99 MB left out")
    assert len(line.text_content()) < 4_300
    line.get_by_role("button", name="all 10,000 characters").click()
    assert len(line.text_content()) > 10_000
    assert HOSTILE[48] == "x" * 10_000
