"""Fills the page's HTML document: its title, the sentence, and the document that the first view shows.

The template is `page_assets/app/shell.html`. `{{name}}` stands for a value; each is escaped for where it stands.
"""

import html
import re
from collections.abc import Mapping

import msgspec

_SLOT = re.compile(r"\{\{ *(\w+) *\}\}")
# In a data block a script's end could end it, and an escape of HTML would not be undone.
_IN_SCRIPT = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


class Data(str):
    """A value that is JSON already, for a data block."""


def filled(template: str, values: Mapping[str, str]) -> str:
    """raises: KeyError, for a slot without a value"""

    def value(found: re.Match[str]) -> str:
        one = values[found[1]]
        return str(one) if isinstance(one, Data) else html.escape(one, quote=True)

    return _SLOT.sub(value, template)


def data(value: object) -> Data:
    """As JSON that can stand in `<script type="application/json">`."""
    return Data(msgspec.json.encode(value).decode().translate(_IN_SCRIPT))
