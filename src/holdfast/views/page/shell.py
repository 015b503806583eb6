"""Writes the HTML of the web page: the document that a server sends, and the self-contained file for a ticket.

Both contain the one-sentence summary, so that it is visible before any script runs. Text is escaped. The content
security policy of a saved file allows only its own scripts and styles.
"""

import base64
import hashlib
from collections.abc import Mapping
from html import escape

import msgspec
from msgspec import Struct

from holdfast import __version__
from holdfast.model.documents.parts import Tone
from holdfast.model.signatures import Words
from holdfast.views.page import assets

# Characters that can end a script element or be parsed as markup.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})  # fmt: skip


class First(Struct, frozen=True, kw_only=True):
    """The data that the HTML contains for the page's script.

    `base`: path prefix of the server. `assets`: path of the assets. `path`: API path of `document`. `documents`: the
    documents of a saved page, by API path. `saved_at_s`: when the page was saved; None for a server's page. `start`:
    first view of a saved page, such as "/jobs/7/incidents/1".
    """

    version: str = __version__
    base: str = ""
    assets: str = ""
    me: object = None
    path: str = ""
    document: object = None
    documents: Mapping[str, object] = {}
    saved_at_s: float | None = None
    start: str = ""


class Shell(Struct, frozen=True, kw_only=True):
    """The static part of the page's HTML. `sentence`: the one-sentence summary, its headline. `language`: "en" or
    "zh".
    """

    title: str
    first: First
    sentence: Words | None = None
    tone: Tone = "neutral"
    language: str = "en"


def shell_html(shell: Shell) -> str:
    """Returns the server's HTML document.

    It loads app.js, app.css and terminal.js from the assets folder, and ON_DEMAND.
    """
    folder = escape(shell.first.assets)
    head = f'<link rel="stylesheet" href="{folder}/app.css">\n<script src="{folder}/app.js" defer></script>\n'
    return _html(shell, head, tail="")


def saved_html(shell: Shell) -> str:
    """Returns one HTML file that contains all data and needs no server."""
    styles = [assets.text("uplot/uPlot.min.css"), assets.style()]
    scripts = [assets.text("uplot/uPlot.iife.min.js"), assets.script()]
    policy = (
        f"default-src 'none'; style-src {' '.join(map(_hash, styles))}; script-src {' '.join(map(_hash, scripts))}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n' + "".join(
        f"<style>{style}</style>\n" for style in styles
    )
    return _html(shell, head, tail="".join(f"<script>{script}</script>\n" for script in scripts))


def _html(shell: Shell, head: str, tail: str) -> str:
    sentence = "" if shell.sentence is None else _in(shell.language, shell.sentence)
    language = "zh-CN" if shell.language == "zh" else "en"
    tone = "" if shell.tone == "neutral" else f" {shell.tone}"
    return (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n<title>{escape(shell.title)}</title>\n{head}</head>\n<body>\n'
        f'<div id="app"><main><h1 class="headline{tone}">{escape(sentence)}</h1></main></div>\n'
        f'<script type="application/json" id="first">{_data(shell.first)}</script>\n{tail}</body>\n</html>\n'
    )


def _in(language: str, words: Words) -> str:
    return words.zh if language == "zh" and words.zh else words.en


def _data(first: First) -> str:
    return msgspec.json.encode(first).decode().translate(_IN_SCRIPT)


def _hash(inline: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"
