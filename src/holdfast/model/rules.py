r"""Defines the knowledge about logs beside the signatures: tags, wordings, readings, texts and weights. No behaviour.

One TOML file in the folder `rules` beside the signatures holds any of the five tables. A site's own folder
can have such files as well: they add to the package's.

A table `[parts]` holds parts of patterns by name; `(?&name)` stands for one in the patterns of the same file,
and in later parts.
"""

from msgspec import Struct

from holdfast.model.signatures import Words


class Tag(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A property of several signatures or categories, which rules of the diagnosis use.

    `signatures`: ids. `categories`: of the taxonomy. `tags`: anything with one of these has this tag as well.
    """

    id: str
    means: str
    signatures: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


class Wording(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pattern for the texts by which programs express one thing. `matches`, `misses`: its test texts.

    `pattern`: a Python regular expression. Several wordings with one id are alternatives. `source`: of a
    format that a program defines.
    """

    id: str
    means: str
    pattern: str
    matches: tuple[str, ...]
    misses: tuple[str, ...] = ()
    source: str = ""


class Reading(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of a table that maps texts to meanings; the first matching row counts.

    `pattern`: a Python regular expression to search in the text; or `values`: the exact texts. `category` and
    `action` are of the taxonomy; `id` names a row for rules; `says`: for people, the rule fills in `{name}`.
    """

    table: str
    pattern: str = ""
    values: tuple[str, ...] = ()
    id: str = ""
    category: str = ""
    action: str = ""
    says: Words | None = None
    matches: tuple[str, ...] = ()


class Text(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text of a rule for people, in English and Chinese; the rule fills in `{name}`."""

    id: str
    en: str
    zh: str


class Weight(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Points that a rival for the root cause gains or loses where the row applies (core/diagnosis/choice/scoring.py).

    It applies to the tags, and to the classes (of the taxonomy) with this severity; to all if both are empty. Of these
    only to lines of a log in which a rival of `log_area` stands, and to those at least `before_s` seconds before the
    end of the job.
    """

    id: str
    means: str
    points: int
    tags: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    severity: str = ""
    log_area: str = ""
    before_s: float = 0.0


class Rules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of one file of rules, or of all files together."""

    tag: tuple[Tag, ...] = ()
    wording: tuple[Wording, ...] = ()
    reading: tuple[Reading, ...] = ()
    text: tuple[Text, ...] = ()
    weight: tuple[Weight, ...] = ()
