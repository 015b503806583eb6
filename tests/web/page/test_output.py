"""The output: jumps to a line, a second, a pattern; several ranks on one time axis; reads on without a jump; copies bytes."""

import re
from datetime import UTC, datetime

import msgspec
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


@pytest.mark.parametrize(("hour", "minute"), ((12, 0), (0, 3), (0, 12)), ids=("noon", "00:03", "00:12"))
def test_the_bar_jumps_to_a_second_and_says_what_is_no_time(view, server, hour, minute):
    """The line is 500 s old. Shortly after midnight it is of the day before."""
    server.world.set_time(datetime(2026, 11, 24, hour, minute, 1, tzinfo=UTC).timestamp())
    page = view("/jobs/llama-70b/output?rank=5").page
    wanted = incidents.output_line(5, 99_000, server.world.now_s)
    second = f"{datetime.fromtimestamp(wanted.at_s, UTC):%H:%M:%S}"
    page.get_by_label("time").fill("half past nine")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("alert")).to_contain_text("half past nine is no time")
    page.get_by_label("time").fill(second)
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile(rf"at_s={int(wanted.at_s)}&rank=5"))
    expect(page.locator(".out.target .when")).to_contain_text(second)
    page.go_back()
    expect(page.locator(".out.target")).to_have_count(0)


@pytest.mark.parametrize(
    ("typed", "found"),
    (
        ("21:00", "2026-11-23T21:00:00Z"),  # not of the evening that comes
        ("13:00:00.5", "2026-11-24T13:00:00.500Z"),
        ("2026-11-22 3:04:05", "2026-11-22T03:04:05Z"),
        ("1764547200", "2025-12-01T00:00:00Z"),
    ),
)
def test_a_time_without_a_date_is_the_nearest_that_the_output_has(view, server, typed, found):
    server.world.set_time(datetime(2026, 11, 24, 14, tzinfo=UTC).timestamp())
    page = view("/jobs/llama-70b/output?rank=5").page
    expect(page.get_by_label("Lines of the output")).to_be_visible()
    page.get_by_label("time").fill(typed)
    page.get_by_role("button", name="Show").click()
    wanted = f"{datetime.fromisoformat(found).timestamp():.1f}".removesuffix(".0")
    expect(page).to_have_url(re.compile(rf"at_s={re.escape(wanted)}&"))


def test_what_is_typed_into_the_bar_stays_when_lines_come(view, server):
    page = view("/jobs/llama-70b/output?rank=5").page
    server.world.wait_for_stream()
    for name in ("ranks", "time", "pattern"):
        page.get_by_label(name).fill("7")
    server.world.tell("job", {"id": "llama-70b", "row": None})
    line = msgspec.to_builtins(incidents.output_line(5, 100_001, server.world.now_s))
    server.world.tell("output", {"job": "llama-70b", "rank": 5, "line": line})
    expect(page.get_by_role("button", name="1 new line")).to_be_visible()
    for name in ("ranks", "time", "pattern"):
        expect(page.get_by_label(name)).to_have_value("7")


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
