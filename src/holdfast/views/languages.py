"""Selects the language of a text: English or Chinese."""

from typing import Literal, TypeAlias

from holdfast.model.signatures import Words

LANGUAGES = ("en", "zh")

Language: TypeAlias = Literal["en", "zh"]


def said(words: Words, language: Language) -> str:
    """Returns the text in the given language."""
    return words.zh if language == "zh" else words.en
