"""The address holds the state of a view; Back, keys, language and theme."""

import re

import pytest
from playwright.sync_api import expect


def test_filters_stand_in_the_address_and_back_undoes_them(view):
    page = view("/").page
    page.locator("h1 button", has_text="failed").click()
    expect(page).to_have_url(re.compile(r"/\?state=failed$"))
    expect(page.get_by_role("row").filter(has_text="llama-70b")).to_have_count(0)
    page.get_by_role("link", name="eval-7b").click()
    expect(page.locator("h1")).to_contain_text("ValueError")
    page.go_back()
    expect(page).to_have_url(re.compile(r"/\?state=failed$"))
    expect(page.locator("h1 button", has_text="failed")).to_have_attribute("aria-pressed", "true")
    page.go_back()
    expect(page.get_by_role("row").filter(has_text="llama-70b")).to_have_count(1)


def test_a_search_is_kept_over_a_reload_and_nothing_found_says_how_to_go_on(view):
    page = view("/").page
    page.get_by_role("searchbox").fill("qwen")
    expect(page).to_have_url(re.compile("search=qwen"))
    expect(page.locator(".row.job")).to_have_count(1)
    page.reload()
    expect(page.get_by_role("searchbox")).to_have_value("qwen")
    expect(page.locator(".row.job")).to_have_count(1)
    page.get_by_role("searchbox").fill("no such thing")
    expect(page.get_by_text("No job fits these filters.")).to_be_visible()
    page.get_by_role("link", name="Show all").click()
    expect(page.get_by_role("row").filter(has_text="llama-70b")).to_have_count(1)


def test_equal_causes_stand_together_and_open(view):
    page = view("/").page
    group = page.get_by_role("button", name="14 jobs ended of the same cause")
    expect(page.locator(".row.job", has_text="sweep-lr")).to_have_count(0)
    group.click()
    expect(page.locator(".row.job", has_text="sweep-lr")).to_have_count(14)
    expect(page).to_have_url(re.compile("open=port_in_use"))
    page.get_by_label("group equal causes").uncheck()
    expect(page).to_have_url(re.compile("group=no"))


def test_back_returns_to_the_place_in_a_list(view):
    page = view("/", height=500).page
    row = page.get_by_role("link", name="gemma-9b")
    row.scroll_into_view_if_needed()
    top = page.evaluate("scrollY")
    assert top > 0
    row.click()
    expect(page.locator("h1")).to_contain_text("has not answered")
    expect(page.locator("h1")).to_be_focused()
    assert page.evaluate("scrollY") == 0
    page.go_back()
    expect(page.get_by_role("link", name="gemma-9b")).to_be_visible()
    assert abs(page.evaluate("scrollY") - top) < 40


def test_keys_lead_through_rows_and_views(view):
    page = view("/").page
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="llama-70b")).to_be_focused()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="sft-qwen")).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("Rank 5")
    page.keyboard.press("u")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("jg")
    expect(page.get_by_role("searchbox")).to_have_value("jg")
    page.get_by_role("searchbox").blur()
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page.locator("h1")).to_contain_text("nodes are isolated")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


# Types a letter in the moment in which the field appears; returns what the field held, frame by frame, until the rows fit.
TYPED_AT_ONCE = """([address, letter]) => new Promise((done) => {
  const held = new Set(), field = () => document.getElementById("search");
  const look = () => {
    held.add(`${field()?.value} ${document.activeElement === field()}`);
    const settled = new URLSearchParams(location.search).get("search") && document.querySelector("main [data-row], main .empty");
    settled ? done([...held]) : requestAnimationFrame(look);
  };
  new MutationObserver((_, observer) => {
    if (!field()) return;
    observer.disconnect();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true, cancelable: true })); // as a reader focuses it
    field().value = letter;
    field().dispatchEvent(new InputEvent("input", { bubbles: true }));
    look();
  }).observe(document.body, { childList: true, subtree: true });
  document.querySelector(`nav a[href="${address}"]`).click();
})"""


@pytest.mark.parametrize(
    ("start", "address"), (("/nodes/gpu-03", "/sub/nodes"), ("/jobs/llama-70b", "/sub/"))
)
def test_no_letter_and_no_focus_is_lost_however_early_it_is_typed(view, start, address):
    assert view(start).page.evaluate(TYPED_AT_ONCE, [address, "g"]) == ["g true"]


def test_the_search_field_follows_the_address_only_where_another_has_changed_it(view):
    page = view("/").page
    field = page.get_by_role("searchbox")
    field.press_sequentially("sft ")
    expect(page).to_have_url(re.compile(r"search=sft$"))
    expect(field).to_have_value("sft ")
    expect(field).to_be_focused()
    page.keyboard.type("q")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"search=sft\+q$"))
    page.go_back()
    expect(page).to_have_url(re.compile(r"search=sft$"))
    expect(field).to_have_value("sft")


@pytest.mark.parametrize("chinese", (False, True), ids=("en", "zh"))
def test_language_is_the_readers_and_stays_as_chosen(view, chinese):
    page = view("/jobs/llama-70b", chinese=chinese).page
    first, other = (
        ("03:12:07 起 rank 5", "fell off the bus") if chinese else ("fell off the bus", "03:12:07 起 rank 5")
    )
    expect(page.locator("h1")).to_contain_text(first)
    page.get_by_role("button", name="English" if chinese else "中文").click()
    expect(page.locator("h1")).to_contain_text(other)
    expect(page.locator("html")).to_have_attribute("lang", "en" if chinese else "zh-CN")
    page.reload()
    expect(page.locator("h1")).to_contain_text(other)


def test_dark_and_light_follow_the_system_until_one_is_chosen(view):
    page = view("/", dark=True).page
    expect(page.locator("body")).to_have_css("background-color", "rgb(19, 20, 22)")
    page.get_by_role("button", name="light", exact=True).click()
    expect(page.locator("body")).to_have_css("background-color", "rgb(253, 253, 252)")
    page.reload()
    expect(page.locator("body")).to_have_css("background-color", "rgb(253, 253, 252)")


def test_a_part_of_the_chart_is_asked_of_the_server_in_detail(view):
    shown = view("/jobs/llama-70b")
    page, plot = shown.page, shown.page.locator(".u-over")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"from_s=\d+&to_s=\d+"))
    page.get_by_role("button", name="whole job").click()
    expect(page).not_to_have_url(re.compile("from_s"))
    asked = [url for url in shown.requests if "/steps?" in url]
    assert any("from_s=" in url for url in asked)
    page.get_by_role("group", name="Step time over time").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#chart-read")).to_contain_text("steps")
    page.keyboard.press("+")
    expect(page).to_have_url(re.compile(r"from_s=\d+"))


def test_the_map_of_ranks_can_be_read_with_keys_and_in_words(view):
    page = view("/jobs/llama-70b").page
    expect(page.locator("#heat-read")).to_contain_text("64 ranks, median 9")
    page.get_by_role("group", name="Ranks over time").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#heat-read")).to_contain_text("rank 1 ·")
    page.get_by_text("outliers as a table").click()
    expect(page.get_by_role("region", name="Outliers").get_by_role("row")).to_have_count(9)


def test_the_passport_of_a_device_is_in_the_address(view):
    page = view("/nodes/gpu-03").page
    page.get_by_role("button", name="1563221014405").click()
    expect(page.get_by_text("Passport of 1563221014405")).to_be_visible()
    expect(page).to_have_url(re.compile("serial=1563221014405"))
    page.get_by_role("link", name="gpu-30").click()
    expect(page.locator("h1")).to_contain_text("gpu-30")
