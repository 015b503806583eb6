"""Writes the page's HTML: the shell that a server sends, and the file that is saved for a ticket.

The sentence stands in both before any script runs. Text is escaped; the policy of a saved file allows its own
script and style and nothing else.
"""

import base64
import hashlib
from collections.abc import Mapping
from html import escape

import msgspec
from msgspec import Struct

from holdfast import __version__
from holdfast.model.documents.common import Tone
from holdfast.model.signatures import Words
from holdfast.views.page import assets

# The policy that the shell needs of a server: nothing inline, nothing from another host.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# All that could end a script element, or be read as markup by a parser that does not know JSON.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})  # fmt: skip


class Shell(Struct, frozen=True, kw_only=True):
    """`root`: the sub-path of the server, without a slash at its end. `assets`: the address of the folder of assets.

    `documents`: what the view needs first, by the path and query that it would be fetched with, as JSON.
    """

    title: str
    sentence: Words | None = None
    tone: Tone = "neutral"
    language: str = "en"
    root: str = ""
    assets: str = "/assets/"
    documents: Mapping[str, bytes] = {}


def shell_html(shell: Shell) -> str:
    """The page as a server sends it: app.js and app.css are in the folder of assets, beside assets.ON_DEMAND."""
    folder = escape(shell.assets.rstrip("/") + "/")
    head = (
        f'<meta name="holdfast-root" content="{escape(shell.root)}">\n'
        f'<meta name="holdfast-assets" content="{folder}">\n'
        f'<link rel="stylesheet" href="{folder}app.css">\n<script src="{folder}app.js" defer></script>\n'
    )
    return _html(shell, head, tail="")


def saved_html(shell: Shell, *, start: str, saved_at_s: float, with_charts: bool = True) -> str:
    """One file that needs no server. `start`: the path of the view that it opens with, "/jobs/7/incidents/1"."""
    styles, scripts = [assets.style()], [assets.script()]
    if with_charts:
        styles.append(assets.text("uplot/uPlot.min.css"))
        scripts.insert(0, assets.text("uplot/uPlot.iife.min.js"))
    policy = (
        f"default-src 'none'; style-src {' '.join(map(_hash, styles))}; script-src {' '.join(map(_hash, scripts))}; "
        "base-uri 'none'; form-action 'none'"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="holdfast-saved" content="{saved_at_s:.0f}">\n'
        f'<meta name="holdfast-start" content="{escape(start)}">\n'
        + "".join(f"<style>{style}</style>\n" for style in styles)
    )
    return _html(shell, head, tail="".join(f"<script>{script}</script>\n" for script in scripts))


def _html(shell: Shell, head: str, tail: str) -> str:
    sentence = "" if shell.sentence is None else _in(shell.language, shell.sentence)
    language = "zh-CN" if shell.language == "zh" else "en"
    tone = "" if shell.tone == "neutral" else f" {shell.tone}"
    return (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="same-origin">\n'
        f'<meta name="holdfast-version" content="{escape(__version__)}">\n'
        f"<title>{escape(shell.title)}</title>\n{head}</head>\n<body>\n"
        f'<div id="app"><main><h1 class="headline{tone}">{escape(sentence)}</h1></main></div>\n'
        f'<script type="application/json" id="documents">{_data(shell.documents)}</script>\n'
        f"{tail}</body>\n</html>\n"
    )


def _in(language: str, words: Words) -> str:
    return words.zh if language == "zh" and words.zh else words.en


def _data(documents: Mapping[str, bytes]) -> str:
    parts = (f"{_quoted(path)}:{body.decode()}" for path, body in documents.items())
    return "{" + ",".join(parts).translate(_IN_SCRIPT) + "}"


def _quoted(path: str) -> str:
    return msgspec.json.encode(path).decode()


def _hash(inline: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"
