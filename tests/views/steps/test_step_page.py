"""The page of step times: whole, closed, and nothing of a log in it as markup."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

from holdfast.model.steps import FirstLast, LossReport, StepReport
from holdfast.views.steps.page import ASSETS, html_page
from views.steps.step_values import EVIL, curve, heat_map, report, two_runs


class Page(HTMLParser):
    """What a browser would make of it: tags with their attributes, and the text of each element."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self._open = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        for tag in self._open[-1:]:
            self.texts.setdefault(tag, []).append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def data(self):
        return json.loads(next(text for text in self.texts["script"] if text.startswith('{"chart"')))

    @property
    def seen(self):
        """All that people read."""
        return " ".join(
            text for tag, texts in self.texts.items() if tag not in ("script", "style") for text in texts
        )


def test_what_people_read_is_there_without_scripts():
    page = Page(html_page(report(), two_runs(), heat_map(), "Step times of train.log"))
    for words in (
        "Step times of train.log", "Megatron-LM", "3.00 s", "1.75 GPU-hours", "steps 100 to 150", "1.40×",
        "3.00 s → 4.20 s", "time for data rose", "since step 500, run 2", "rank 5 is slow", "checkpoint", "24.0 s",
        "10.3×", "not explained", "At step 320 the loss went from 2.6 to 7.", "12 records have no time", "2.5",
    ):  # fmt: skip
        assert words in page.seen, words
    assert page.texts["title"] == ["Step times of train.log"]
    assert page.all("html") == [{"lang": "en"}]


def test_it_loads_nothing():
    text = html_page(report(), two_runs(), heat_map(), "t")
    page = Page(text)
    assert not [attrs for _, attrs in page.tags if {"src", "href", "action", "srcset"} & set(attrs)]
    assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
    assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|EventSource|importScripts", text)
    assert not {"link", "iframe", "object", "embed", "img"} & {tag for tag, _ in page.tags}


def test_only_its_own_scripts_may_run():
    text = html_page(report(), two_runs(), None, "t")
    page = Page(text)
    (policy,) = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for script in re.findall(r"<script>(.*?)</script>", text, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert len(page.all("script")) == 3
    assert page.all("script")[0] == {"type": "application/json", "id": "data"}


def test_nothing_of_a_log_becomes_markup():
    """Every text in the report, however deep, is one that wants out."""
    raw = msgspec.to_builtins(report())
    kinds = {"kind", "source"}

    def poisoned(value, name=""):
        if isinstance(value, str):
            return value if name in kinds else EVIL
        if isinstance(value, dict):
            return {key: poisoned(inner, key) for key, inner in value.items()}
        return [poisoned(inner, name) for inner in value] if isinstance(value, list | tuple) else value

    evil = msgspec.convert(poisoned(raw), StepReport)
    spikes = tuple(msgspec.structs.replace(spike, kind=EVIL) for spike in evil.spikes)
    evil = msgspec.structs.replace(evil, spikes=spikes)
    plain, page = (
        Page(html_page(one, two_runs(), heat_map(), title)) for one, title in ((report(), "t"), (evil, EVIL))
    )
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert page.texts["h1"] == [EVIL]
    assert page.seen.count(EVIL) >= 8
    assert page.data["chart"]["spikes"][0]["label"].endswith(EVIL)


def test_the_heat_map_travels_whole():
    heat = Page(html_page(report(), [], heat_map(16, 10), "t")).data["heat"]
    raw = base64.b64decode(heat["ratios"])
    values = [int.from_bytes(raw[i : i + 2], "little") for i in range(0, len(raw), 2)]
    assert len(values) == 16 * 10
    assert values[3 * 10 + 5] == 0
    assert values[5 * 10 + 9] == pytest.approx(1200, abs=30)
    assert heat["marked"] == [5]


def test_a_page_of_nothing_says_so():
    page = Page(html_page(StepReport(), [], None, ""))
    assert "There are no step times to draw." in page.seen
    assert "framework not recognised" in page.seen
    assert page.data == {"chart": page.data["chart"], "heat": None}


def test_numbers_that_json_lacks():
    odd = report(
        loss=LossReport(last=None, nan_at=7),
        first=FirstLast(step=None, step_time_s=float("nan")),
        median_step_time_s=float("inf"),
    )
    page = Page(html_page(odd, curve(3), None, "t"))
    assert "NaN or infinite from step 7" in page.seen
    assert page.data["chart"]["curve"]


def test_a_page_of_1024_ranks_is_no_burden():
    text = html_page(
        report(), [point for run in range(40) for point in curve(25, run=run)], heat_map(1024, 512), "t"
    )
    assert len(text) < 2_500_000


def test_the_files_of_uplot_are_those_that_are_noted():
    noted = dict(
        re.findall(r"^\| `(\S+)` \| `([0-9a-f]{64})` \|$", (ASSETS / "uplot/README.md").read_text(), re.M)
    )
    assert set(noted) == {"LICENSE", "uPlot.iife.min.js", "uPlot.min.css"}
    for name, digest in noted.items():
        assert hashlib.sha256((ASSETS / "uplot" / name).read_bytes()).hexdigest() == digest
