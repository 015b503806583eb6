"""Chromium for the tests of the page: one browser for a module, and in it one page for each language of a reader.

A page of its own for each view would be a process of its own for each: most of the CPU of a view.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Dialog, Page, expect, sync_playwright

# Without a sandbox, for CI runs as root; without anything that would ask the network. Each view has a process of its own that
# lives for a second: compilers that optimise its scripts cost more than they gain.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--js-flags=--no-turbofan --no-maglev",
]  # fmt: skip
ANSWER_MS = 60_000  # a guard, for a busy machine
AXE = (Path(__file__).parent / "axe.min.js").read_text(encoding="utf-8")
# The rules of axe whose violations are never serious or critical, off: nobody reads what they find.
LESS = """Object.fromEntries(axe._audit.rules.filter((rule) => ["minor", "moderate"].includes(rule.impact))
  .map((rule) => [rule.id, { enabled: false }]))"""
# Of what the page says in its console, this is the browser's advice and nobody's error.
LOADING = re.compile("^(Loading|正在加载)")
ADVICE = ("Password forms should have",)
expect.set_options(timeout=ANSWER_MS)


class Chrome:
    def __init__(self, path: str) -> None:
        self._playwright = sync_playwright().start()
        self.browser = self._playwright.chromium.launch(executable_path=path, args=FLAGS)
        self._free: dict[str, list[Page]] = {}

    def take(self, locale: str) -> Page:
        """An empty page whose browser remembers nothing, until it is given back."""
        free = self._free.setdefault(locale, [])
        if free:
            return free.pop()
        context = self.browser.new_context(
            locale=locale, timezone_id="UTC", permissions=["clipboard-read", "clipboard-write"]
        )
        page = context.new_page()
        page.set_default_timeout(ANSWER_MS)
        return page

    def give_back(self, page: Page, locale: str) -> None:
        """Forgets what the view stored, its cookies, its script and where the mouse was."""
        page.evaluate("localStorage.clear(), sessionStorage.clear()")
        page.mouse.move(0, 0)
        page.goto("about:blank")
        page.context.clear_cookies()
        self._free[locale].append(page)

    def close(self) -> None:
        self.browser.close()
        self._playwright.stop()


class View:
    """One page, as if a reader had just started the browser. `problems`: what its console said and what it threw.
    `expected`: of them, what the test means to happen. `cookie`: sent with each request."""

    def __init__(
        self, chrome: Chrome, base: str, path: str, *, width: int = 1440, height: int = 900, dark: bool = False, chinese: bool = False,
        expected: tuple[str, ...] = (), cookie: str = "",
    ) -> None:  # fmt: skip
        self.base = base
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.expected: tuple[str, ...] = ADVICE + expected
        self._chrome, self._locale = chrome, "zh-CN" if chinese else "en-US"
        self.page = chrome.take(self._locale)
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self._heard: tuple[tuple[Any, Callable[..., None]], ...] = (
            ("console", lambda message: self._note(f"{message.text} {message.location['url']}")),
            ("pageerror", lambda error: self._note(str(error))),
            ("dialog", self._dismiss),
            ("request", lambda request: self.requests.append(request.url)),
        )
        for event, hear in self._heard:
            self.page.on(event, hear)
        if cookie:
            self.page.context.add_cookies([{"name": cookie, "value": "1", "url": base}])
        self.open(path)

    def _note(self, text: str) -> None:
        if not any(part in text for part in self.expected):
            self.problems.append(text)

    def _dismiss(self, dialog: Dialog) -> None:
        self._note("a dialog: " + dialog.message)
        dialog.dismiss()  # or the page would wait for ever

    def open(self, path: str) -> None:
        self.page.goto(self.base + path if path.startswith("/") else path)
        expect(self.page.locator("main h1")).to_have_count(1)
        expect(self.page.locator("main [role=status]").filter(has_text=LOADING)).to_have_count(0)

    def move(self, path: str, title: str) -> None:
        """To another view of the same page, as Forward leads there: nothing is loaded anew. `title`: of that view."""
        self.page.evaluate(
            "(to) => { history.pushState({}, '', to); dispatchEvent(new PopStateEvent('popstate')); }",
            self.base + path,
        )
        expect(self.page).to_have_title(f"{title} · Holdfast")
        expect(self.page.locator("main h1")).to_have_count(1)
        expect(self.page.locator("main [role=status]").filter(has_text=LOADING)).to_have_count(0)

    def resize(self, width: int, height: int = 900) -> None:
        """Returns once the page has been drawn at that size."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def wait(self, script: str) -> None:
        """Until it is true. Playwright's own wait_for_function compiles a text, which the page's policy forbids."""
        until_s = time.monotonic() + ANSWER_MS / 1000
        while not self.run(f"new Promise((done) => requestAnimationFrame(() => done({script})))"):
            assert time.monotonic() < until_s, f"not true: {script}"

    def run(self, script: str) -> object:
        return self.page.evaluate(script)

    def serious(self, *, contrast: bool = True) -> list[str]:
        """What axe finds that would keep somebody from reading the view.

        `contrast`: whether it also compares colours, which is two thirds of its work.
        """
        if not self.run("Boolean(globalThis.axe)"):
            self.page.evaluate(AXE)
        rules = f"{{ ...({LESS}), 'color-contrast': {{ enabled: {str(contrast).lower()} }} }}"
        found = self.run(
            f"axe.run(document, {{ resultTypes: ['violations'], preload: false, rules: {rules} }})"
        )
        return [
            f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]

    def close(self) -> None:
        for event, hear in self._heard:
            self.page.remove_listener(event, hear)
        self._chrome.give_back(self.page, self._locale)
