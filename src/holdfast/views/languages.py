"""The two languages of reports."""

from typing import Literal, TypeAlias

from holdfast.model.signatures import Words

LANGUAGES = ("en", "zh")

Language: TypeAlias = Literal["en", "zh"]


def said(words: Words, language: Language) -> str:
    """The text in one language."""
    return words.zh if language == "zh" else words.en
