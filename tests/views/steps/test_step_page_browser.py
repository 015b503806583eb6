"""The page of step times in a real browser: it draws, answers mouse and keys, and loads nothing."""

import re

import msgspec
import pytest

from holdfast.model.steps import StepReport
from holdfast.views.steps.page import html_page
from views.steps.browser import NEEDED, Browser, browser_path
from views.steps.step_values import EVIL, curve, heat_map, report, two_runs

pytestmark = [
    pytest.mark.skipif(browser_path() is None, reason=NEEDED),
]
# How much of a canvas is neither empty nor of one colour: the number of its colours.
COLOURS = """(() => {
  const sheet = document.querySelector("#%s canvas"), pen = sheet.getContext("2d");
  return new Set(new Uint32Array(pen.getImageData(0, 0, sheet.width, sheet.height).data.buffer)).size;
})()"""
FOCUSED = "document.activeElement.id || document.activeElement.className || document.activeElement.name"


@pytest.fixture(scope="module")
def browser():
    one = Browser(browser_path())
    yield one
    one.close()


@pytest.fixture
def shown(browser, tmp_path):
    def show(*values, title="t", **how):
        path = tmp_path / "steps.html"
        path.write_text(html_page(*values, title), encoding="utf-8")
        browser.open(path, **how)
        return browser

    yield show
    assert browser.problems == []
    assert [url for url in browser.requests if not url.startswith("file:")] == []


def read_at_three_quarters(page):
    page.point("curve", 0.75, 0.5)
    return page.text("read-curve")


def full(**changed):
    return report(**changed), two_runs(), heat_map()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_curve_and_heat_map_are_drawn(shown, dark):
    page = shown(*full(), dark=dark)
    assert page.run(COLOURS % "curve") > 20
    assert page.run(COLOURS % "heat") > 20
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(19, 20, 22)") is dark
    assert "slowdown, with its ratio" in page.text("legend")


def test_pointing_at_the_curve_gives_its_numbers_and_the_slowdown(shown):
    page = shown(*full())
    assert "Point at the curve" in page.text("read-curve")
    page.point("curve", 0.06 + 0.93 * 125 / 700, 0.5)
    read = page.text("read-curve")
    assert "of run 1 · median 3." in read
    assert "slowdown 1.40× steps 100 to 150 (3.00 s → 4.20 s), cost 0.5 GPU-hours: time for data rose" in read
    assert page.run("document.querySelector('tr.here').id") == "slowdown-0"


def test_the_scale_is_cut_until_asked_otherwise(shown):
    page = shown(*full())
    assert page.run("document.querySelector('#scales input:checked').value") == "cut"
    assert "longer than the scale shows (7, up to 300 s)" in page.text("scales")
    before = page.run("document.querySelector('#curve canvas').toDataURL()")
    for mode in ("all", "log"):
        page.run(f"document.querySelector('#scales input[value={mode}]').click()")
        after = page.run("document.querySelector('#curve canvas').toDataURL()")
        assert after != before
        assert page.run(COLOURS % "curve") > 20
        before = after


def test_everything_can_be_done_with_keys(shown):
    page = shown(*full())
    seen = []
    for _ in range(12):
        page.press("Tab")
        seen.append(page.run(FOCUSED))
        if seen[-1] == "heat":
            break
    assert {"scale", "curve", "table", "heat"} <= set(seen)
    page.press("ArrowRight")
    assert page.text("read-heat").startswith("rank 0, steps 0 to 9: 3.")
    for _ in range(5):
        page.press("ArrowDown")
    for _ in range(39):
        page.press("ArrowRight")
    assert page.text("read-heat").startswith("rank 5, from step 390: 3.")
    page.run("document.getElementById('curve').focus()")
    page.press("Home")
    assert page.text("read-curve").startswith("steps 0 to 9 of run 1")
    page.press("ArrowRight")
    assert page.text("read-curve").startswith("steps 10 to 19 of run 1")
    read = [read_at_three_quarters(page)]
    for key in "+0":
        page.run("document.getElementById('curve').focus()")
        page.press("Home")
        page.press(key, text=key)
        read.append(read_at_three_quarters(page))
    assert read[0] == read[2] != read[1]
    page.press("End")
    assert "of run 2" in page.text("read-curve")


def test_a_slow_rank_of_a_thousand_is_seen_and_found(shown):
    page = shown(report(), curve(10), heat_map(1024, 100, slow=513))
    page.point("heat", 0.9, (22 + 513 * 640 / 1024 + 1) / 702)
    assert "rank 513, " in page.text("read-heat")
    assert float(re.search(r"([\d.]+)×", page.text("read-heat"))[1]) == pytest.approx(1.2, abs=0.03)
    assert "Where ranks share a line" in page.text("heat-legend")


@pytest.mark.parametrize("width", [320, 390, 1600])
def test_the_page_fits_a_phone_and_a_desk(shown, width):
    page = shown(*full(), width=width, height=800, title="a" * 300)
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.querySelector('#curve canvas').clientWidth") <= width


def test_it_is_drawn_anew_when_width_or_colours_change(shown):
    page = shown(*full(), width=1200)
    wide = page.run("document.querySelector('#curve canvas').clientWidth")
    page.resize(500, 800)
    page.wait(f"document.querySelector('#curve canvas').clientWidth < {wide}")
    page.wait("document.querySelector('#heat canvas').clientWidth < 500")
    page.run("window.light = document.querySelector('#curve canvas').toDataURL()")
    page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.wait("document.querySelector('#curve canvas').toDataURL() !== window.light")


def test_a_log_that_wants_to_run_a_script_does_not(shown):
    evil = msgspec.structs.replace(
        report(framework=EVIL, notes=(EVIL,)),
        slowdowns=tuple(
            msgspec.structs.replace(one, explanation=EVIL, what=EVIL) for one in report().slowdowns
        ),
        spikes=tuple(msgspec.structs.replace(one, kind=EVIL) for one in report().spikes),
    )
    page = shown(evil, two_runs(), heat_map(), title=EVIL)
    page.point("curve", 0.06 + 0.93 * 125 / 700, 0.5)
    page.point("curve", 0.06 + 0.93 * 250 / 700, 0.5)
    assert page.run("document.title").startswith("</script><script>document.title=")
    assert page.run("document.images.length") == 0
    assert page.run("document.scripts.length") == 3


@pytest.mark.parametrize(
    "points", [[], curve(1, width=1), curve(2, base_s=0.0), curve(50, base_s=1e-5), curve(20, base_s=9000.0)],
    ids=["none", "one", "zero", "microseconds", "hours"],
)  # fmt: skip
def test_odd_amounts_of_data(shown, points):
    page = shown(StepReport(), points, None)
    if not points:
        assert "There are no step times to draw." in page.run("document.body.textContent")
        return
    assert page.run(COLOURS % "curve") > 5
    page.run("document.querySelector('#scales input[value=log]').click()")
    assert page.run(COLOURS % "curve") > 1
