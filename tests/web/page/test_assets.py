"""The page's files: small, without a way to make markup of text, all texts in both languages, all in the package."""

import gzip
import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from holdfast.views.page import assets

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "src" / "holdfast" / "page_assets"
MODULES = sorted((FOLDER / "app").rglob("*.js"))
PAGE_BYTES_MAX = 60_000  # compressed, besides uPlot and the terminal, which are loaded on demand
MODULE_LINES_MAX = 500


def test_the_page_is_small():
    size = sum(len(gzip.compress(text.encode(), 9)) for text in (assets.script(), assets.style()))
    assert size <= PAGE_BYTES_MAX


def test_no_module_makes_markup_or_code_of_text():
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|\beval\(|new Function|srcdoc|DOMParser"
    found = [f"{path.name}: {hit}" for path in MODULES for hit in re.findall(forbidden, path.read_text())]
    assert not found


def test_modules_are_short_and_say_what_they_do():
    texts = {path.name: path.read_text() for path in MODULES}
    assert [name for name, text in texts.items() if len(text.splitlines()) > MODULE_LINES_MAX] == []
    assert [name for name, text in texts.items() if not re.match(r"// [A-Z]", text)] == []


def _asked() -> set[str]:
    """The texts that t() and tn() are called with."""
    found = set()
    for path in MODULES:
        text = path.read_text()
        for call in re.finditer(r"(?<![\w.])tn?\(", text):
            found |= set(_strings(text, call.end()))
    return found


def _strings(text, at):
    """The strings of a call whose arguments begin at `at`, outside of any inner bracket."""
    depth, string = 1, re.compile(r'"((?:[^"\\]|\\.)*)"')
    while depth:
        if text[at] == '"':
            hit = string.match(text, at)
            if depth == 1:
                yield hit[1]
            at = hit.end()
            continue
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[at], 0)
        at += 1


def _chinese() -> dict[str, str]:
    table = (FOLDER / "app" / "texts.js").read_text()
    return dict(re.findall(r'^  "((?:[^"\\]|\\.)*)": "((?:[^"\\]|\\.)*)",$', table, re.MULTILINE))


def test_every_text_is_there_in_chinese():
    asked = _asked()
    assert len(asked) > 300
    assert asked - set(_chinese()) == set()


def test_every_chinese_text_is_used():
    source = "".join(path.read_text() for path in MODULES if path.name != "texts.js")
    # Words of documents: kinds of the log, results of checks, roles. They are looked up by their value.
    words = {"verdict", "rung", "recovered", "hardware", "news", "request", "end", "finding", "isolated", "released", "incident", "check", "attempt", "job", "pass", "warn", "fail", "skip", "viewer", "operator", "admin"}  # fmt: skip
    unused = [text for text in _chinese() if f'"{text}"' not in source and text not in words and not re.search(rf"\b{re.escape(text)}:", source)]  # fmt: skip
    assert unused == []


def test_what_is_filled_in_is_the_same_in_both_languages():
    slots = lambda text: sorted(re.findall(r"\{\w+\}", text))  # noqa: E731
    assert [text for text, chinese in _chinese().items() if slots(text) != slots(chinese)] == []


@pytest.mark.parametrize("folder", ("vendor", "terminal", "uplot"))
def test_vendored_files_are_as_their_page_says(folder):
    listed = dict(
        re.findall(
            r"^\| `(\S+)` \| `([0-9a-f]{64})` \|$", (FOLDER / folder / "README.md").read_text(), re.MULTILINE
        )
    )
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (FOLDER / folder).iterdir() if path.name != "README.md"}  # fmt: skip
    assert listed == there


def test_every_file_of_the_page_is_in_the_package():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "holdfast"
    ]
    package = FOLDER.parent
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    assert [str(path) for path in FOLDER.rglob("*") if path.is_file() and path not in packed] == []


def test_modules_that_import_in_a_ring_are_refused():
    text = {"app/main.js": 'import { a } from "./b.js";\n', "app/b.js": 'import { b } from "./main.js";\n'}
    with pytest.raises(assets.ModuleRefused, match="app/main.js imports app/b.js imports app/main.js"):
        assets.joined("app/main.js", text.__getitem__)


def test_an_export_that_cannot_be_joined_is_refused_with_its_place():
    with pytest.raises(assets.ModuleRefused, match=r"app/main.js: .*export default 1"):
        assets.joined("app/main.js", {"app/main.js": "export default 1;\n"}.__getitem__)
