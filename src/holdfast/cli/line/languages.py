"""Selects the language of a command's output, and prints text in any terminal encoding."""

import sys
from collections.abc import Mapping
from typing import Annotated, cast

from holdfast.cli.line.flags import BadParameter, Option
from holdfast.cli.line.output import put
from holdfast.views.languages import LANGUAGES, Language

Lang = Annotated[
    str | None,
    Option(
        "--lang", metavar="en|zh", help="Language of the output; default: that of $LANG, English for JSON."
    ),
]


def chosen_language(flag: str | None, environ: Mapping[str, str], *, json: bool) -> Language:
    """Returns the output language: that of the flag, else (except for JSON) of the locale, else English.

    Raises BadParameter.
    """
    if flag is not None:
        if flag not in LANGUAGES:
            raise BadParameter(f"{flag!r} is not one of {', '.join(LANGUAGES)}", param_hint="--lang")
        return cast(Language, flag)
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    locale = next((environ[name] for name in names if environ.get(name)), "")
    return "zh" if locale.lower().startswith("zh") and not json else "en"


def put_plain(text: str) -> None:
    """Prints a line; characters that the encoding lacks become question marks."""
    encoding = sys.stdout.encoding or "utf-8"
    put(text.encode(encoding, "replace").decode(encoding, "replace"))
