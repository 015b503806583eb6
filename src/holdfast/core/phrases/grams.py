"""Splits text into character n-grams that tolerate the changes people make to a line before they paste it.

Pure.

Case, spaces, quotes, digits, full-width characters and placeholders are ignored; a typing error affects three
n-grams only. Latin letters are split into trigrams across word boundaries, Chinese characters into bigrams.
"""

import unicodedata

from holdfast.late_pattern import late

PLACEHOLDER = late(r"(?<![a-z])(?:x{2,}|y{2,}|z{3,})(?![a-z])|<[^<>]{0,40}>|\.{2,}|\u2026+|\*{2,}")
LATIN = late(r"[a-z]+")
# OCR errors: spaces between letters, 0 for o, 1 for l. Not at the end of a name: eth0, rank1.
SPACED = late(r"(?<!\S)(?:\S ){3,}\S(?!\S)")
ZERO = late(r"(?<=[a-z])0(?=[a-z])|(?<![a-z0-9])0(?=[a-wyz])")
ONES = late(r"(?<=[a-z])1{1,2}(?=[a-z])")
# Chinese characters; punctuation is left out.
HAN = late(r"[\u4e00-\u9fff]+")
GRAM = 3
# Stop words of questions; Chinese ones are removed from within the text.
FILLERS = frozenset(
    "a an and are at been by can did do does for from get got has have how i in is it its my of on or our so that the then there "
    "this to was we were what when which while why with you".split()
)
HAN_FILLERS = late(
    r"\u600e\u4e48\u529e|\u600e\u4e48|\u4e3a\u4ec0\u4e48|\u5982\u4f55|\u8bf7\u95ee|\u4e00\u76f4|\u8001\u662f|\u7a81\u7136|\u51fa\u73b0|\u63d0\u793a|\u62a5\u9519|\u89e3\u51b3"
    r"|[\u7684\u4e86\u5728\u662f\u6709\u548c\u5c31\u90fd\u7740\u4e2a\u8fd9\u90a3\u5417\u5462\u554a\u5427\u6211\u4f60\u4e00\u88ab\u628a\u5f88]"
)


def plain(text: str) -> str:
    """Returns the text in lower case, with full-width characters made half-width (NFKC) and without
    placeholders.
    """
    return PLACEHOLDER.sub(" ", unicodedata.normalize("NFKC", text).lower())


def without_ocr_errors(text: str) -> str:
    """Returns the normalized text with the usual errors of text recognition (OCR) corrected.

    These are spaces between the letters of a word, 0 for o, and 1 for l.
    """
    clean = SPACED.sub(lambda found: found[0].replace(" ", ""), plain(text))
    return ONES.sub(lambda found: "l" * len(found[0]), ZERO.sub("o", clean))


def grams(text: str) -> frozenset[str]:
    """Returns the set of n-grams of a text; empty if the text has neither Latin letters nor Chinese
    characters.
    """
    clean = without_ocr_errors(text)
    found: set[str] = set()
    letters = "".join(word for word in LATIN.findall(clean) if word not in FILLERS)
    found.update(letters[at : at + GRAM] for at in range(len(letters) - GRAM + 1))
    chinese = HAN_FILLERS.sub("", "".join(HAN.findall(clean)))
    found.update(chinese[at : at + 2] for at in range(max(1, len(chinese) - 1)) if chinese)
    return frozenset(found)
