"""Formats notifications for senders: texts in the language of a channel, short enough for the receiver."""

from typing import Literal

from msgspec import Struct

from holdfast.model.documents.notices import Notice
from holdfast.model.signatures import Words

Tongue = Literal["en", "zh", "both"]
OPEN = Words(en="Open", zh="查看详情")
ELLIPSIS = "…"
COLON = {"en": ": ", "zh": "：", "both": ": "}


class Shown(Struct, frozen=True, kw_only=True):
    """The texts of a notification in one language.

    `facts`: pairs of name and text. `button`: label of the link. `link`: URL of the server's page; empty if
    there is none.
    """

    title: str
    sentence: str
    facts: tuple[tuple[str, str], ...]
    link: str
    button: str
    colon: str

    @property
    def lines(self) -> list[str]:
        """Returns the plain text as lines, without the title and the link."""
        return [self.sentence, *(f"{name}{self.colon}{text}" for name, text in self.facts)]

    @property
    def text(self) -> str:
        """Returns everything as plain text."""
        return "\n".join([self.title, *self.lines, *([self.link] if self.link else [])])


def shown(notice: Notice, language: Tongue) -> Shown:
    return Shown(
        title=in_language(notice.title, language, " / "),
        sentence=in_language(notice.sentence.text, language, "\n"),
        facts=tuple(
            (in_language(name, language, " / "), in_language(text, language, "\n"))
            for name, text in notice.facts
        ),
        link=notice.link,
        button=in_language(OPEN, language, " / "),
        colon=COLON[language],
    )


def in_language(words: Words, language: Tongue, between: str = " / ") -> str:
    if language == "both" and words.en != words.zh:
        return f"{words.en}{between}{words.zh}"
    return words.zh if language == "zh" else words.en


def cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else text[: characters_max - 1] + ELLIPSIS


def cut_bytes(text: str, bytes_max: int) -> str:
    """Shortens a text to at most `bytes_max` bytes of UTF-8."""
    raw = text.encode()
    if len(raw) <= bytes_max:
        return text
    return raw[: bytes_max - len(ELLIPSIS.encode())].decode(errors="ignore") + ELLIPSIS


def is_resolved(notice: Notice) -> bool:
    """Returns whether the problem is gone. If a job fails, its incident ends, but it is not resolved."""
    return notice.is_over and notice.severity == "info"
