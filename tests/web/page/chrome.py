"""Chromium for the tests of the page: one browser for a module, a context of its own for each view."""

import re
import time
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

# Without a sandbox, for CI runs as root; without anything that would ask the network. Each view has a process of its own that
# lives for a second: compilers that optimise its scripts cost more than they gain.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--js-flags=--no-turbofan --no-maglev",
]  # fmt: skip
ANSWER_MS = 60_000  # a guard, for a busy machine
AXE = (Path(__file__).parent / "axe.min.js").read_text(encoding="utf-8")
# Of what the page says in its console, this is the browser's advice and nobody's error.
LOADING = re.compile("^(Loading|正在加载)")
ADVICE = ("Password forms should have",)
expect.set_options(timeout=ANSWER_MS)


class Chrome:
    def __init__(self, path: str) -> None:
        self._playwright = sync_playwright().start()
        self.browser = self._playwright.chromium.launch(executable_path=path, args=FLAGS)

    def close(self) -> None:
        self.browser.close()
        self._playwright.stop()


class View:
    """One page in a context of its own. `problems`: what its console said and what it threw. `expected`: of them, what
    the test means to happen."""

    def __init__(
        self, chrome: Chrome, base: str, path: str, *, width: int = 1440, height: int = 900, dark: bool = False, chinese: bool = False,
        expected: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.base = base
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.expected: tuple[str, ...] = ADVICE + expected
        self.context = chrome.browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light",
            locale="zh-CN" if chinese else "en-US", timezone_id="UTC", permissions=["clipboard-read", "clipboard-write"],
        )  # fmt: skip
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(ANSWER_MS)
        self.page.on("console", lambda message: self._note(f"{message.text} {message.location['url']}"))
        self.page.on("pageerror", lambda error: self._note(str(error)))
        self.page.on("dialog", lambda dialog: self._note("a dialog: " + dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.open(path)

    def _note(self, text: str) -> None:
        if not any(part in text for part in self.expected):
            self.problems.append(text)

    def open(self, path: str) -> None:
        self.page.goto(self.base + path if path.startswith("/") else path)
        expect(self.page.locator("main h1")).to_have_count(1)
        expect(self.page.locator("main [role=status]").filter(has_text=LOADING)).to_have_count(0)

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
        rules = f"{{ 'color-contrast': {{ enabled: {str(contrast).lower()} }} }}"
        found = self.run(
            f"axe.run(document, {{ resultTypes: ['violations'], preload: false, rules: {rules} }})"
        )
        return [
            f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]

    def close(self) -> None:
        self.context.close()
