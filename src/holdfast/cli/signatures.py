"""Implements `holdfast signatures`: lists known failures, shows one, and tests signatures."""

import difflib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.cells import set_cell_size

from holdfast.cli.line.flags import App, Argument, Exit, Option
from holdfast.cli.line.languages import Lang, chosen_language, put_plain
from holdfast.cli.line.output import put, put_json, say
from holdfast.core.verdict.categories import ACTIONS, KINDS
from holdfast.model.signatures import Signature, Words
from holdfast.observe.search.agreement import disagreements
from holdfast.observe.search.rule_store import package_rules, site_rules
from holdfast.observe.search.signature_store import (
    all_signatures,
    folder_signatures,
    package_signatures,
    usable,
)
from holdfast.parsers.rule_files import complaints as rule_complaints
from holdfast.parsers.rule_files import joined, unknown_tags
from holdfast.parsers.signature_files import SignatureError, complaints, overridden
from holdfast.settings.read import SettingsRefused, cache_dir, site_signatures
from holdfast.views.languages import Language, said

REFUSED = 2
NOT_PROVEN = 1
NEAR_MAX = 3

app = App()

SiteFolder = Annotated[
    str | None,
    Option(
        "--signatures",
        metavar="DIR",
        help="Folder with signatures of your site, which are added to Holdfast's or replace them.",
    ),
]
Json = Annotated[bool, Option("--json", help="One JSON document instead.")]


@app.callback()
def signatures() -> None:
    """Lists known failures, shows one, or tests a folder of signatures."""


@app.command("list")
def list_(
    category: Annotated[
        str | None,
        Option("--category", metavar="C", help="Only this category, or class of categories."),
    ] = None,
    area: Annotated[
        str | None,
        Option(
            "--area",
            metavar="A",
            help="Only this kind of log: worker, kernel, scheduler, npu, fabric or tool.",
        ),
    ] = None,
    folder: SiteFolder = None,
    lang: Lang = None,
    json: Json = False,
) -> None:
    """Lists all signatures: id, category, role, severity, title."""
    language = chosen_language(lang, os.environ, json=json)
    chosen = [
        one
        for one in _known(folder)
        if (area is None or one.area == area) and (category is None or category in _categories(one))
    ]
    if json:
        put_json([_summary(one, language) for one in chosen])
        return
    if not chosen:
        say("no signature matches")
    rows = [(one.id, one.category, one.role, one.severity, said(one.title, language)) for one in chosen]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    for row in rows:
        cells = [set_cell_size(text, width) for text, width in zip(row, widths, strict=False)]
        put_plain("  ".join((*cells, row[4])))


@app.command()
def show(
    id_: Annotated[str, Argument("ID")],
    folder: SiteFolder = None,
    lang: Lang = None,
    json: Json = False,
) -> None:
    """Shows one signature in full."""
    language = chosen_language(lang, os.environ, json=json)
    known = {one.id: one for one in _known(folder)}
    if id_ not in known:
        near = difflib.get_close_matches(id_, known, n=NEAR_MAX, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else "see holdfast signatures list"
        say(f"there is no signature {id_}: {hint}")
        raise Exit(REFUSED)
    if json:
        put_json(known[id_])
        return
    for name, text in [*_rows(known[id_], language), ("from", _place_of(id_, folder))]:
        put_plain(f"{name:<12} {text}".rstrip())


@app.command()
def test(
    folder: Annotated[
        Path | None,
        Argument("[DIR]", help="Your own folder; default: the signatures of the package."),
    ] = None,
    json: Json = False,
) -> None:
    """Tests that signatures match their examples and nothing else, and tests the diagnosis rules in
    DIR/rules.

    Exits with 1 if a test fails.
    """
    try:
        package = package_signatures()
        tested = package if folder is None else folder_signatures(folder)
        rules = package_rules(as_built=False)
        own = rules if folder is None else site_rules(folder)
    except SignatureError as error:
        for line in str(error).splitlines():
            say(line)
        raise Exit(REFUSED) from error
    rules_count = len(own.tag) + len(own.wording) + len(own.reading) + len(own.text)
    if not (tested or rules_count):
        say(f"{folder} contains no signatures: give a folder with *.toml files")
        raise Exit(REFUSED)
    known = overridden(package, tested)
    every = rules if folder is None else joined((rules, own))
    wrong = problems(tested, package)
    wrong += unknown_tags(((one.id, one.tags) for one in tested), {tag.id for tag in every.tag})
    wrong += rule_complaints(
        own, {one.id for one in known}, KINDS, ACTIONS, tags={tag.id for tag in every.tag}
    )
    if not wrong:  # an engine is asked for patterns that can be compiled
        wrong = disagreements(tested, cache_dir(os.environ))
    if json:
        put_json({"signatures": len(tested), "rules": rules_count, "complaints": wrong})
    else:
        for text in wrong:
            put_plain(text)
        counts = [_counted(len(tested), "signature")]
        counts += [_counted(rules_count, "rule")] if rules_count else []
        put(", ".join([*counts, _counted(len(wrong), "complaint")]))
    if wrong:
        raise Exit(NOT_PROVEN)


def problems(tested: Sequence[Signature], package: Sequence[Signature]) -> list[str]:
    """Returns a sentence for each failed test of the signatures `tested`, which may refer to those of the package and
    replace them.
    """
    ids = Counter(one.id for one in tested)
    twice = [f"{id_}: the id is defined {count} times" for id_, count in ids.items() if count > 1]
    found = complaints(overridden(package, tested), KINDS, ACTIONS)
    return [*twice, *(text for text in found if text.partition(":")[0] in ids)]


def _counted(count: int, word: str) -> str:
    return f"{count or 'no'} {word}{'' if count == 1 else 's'}"


def _known(folder: str | None) -> tuple[Signature, ...]:
    try:
        return all_signatures(site_signatures(folder, os.environ), cache_dir(os.environ), say)
    except (SettingsRefused, SignatureError) as error:
        say(str(error))
        raise Exit(REFUSED) from error


def _place_of(id_: str, folder: str | None) -> str:
    """Returns the file in which a signature is defined, and whether it replaces one of Holdfast."""
    site = site_signatures(folder, os.environ)
    own = {one.id: name for name, one in usable(site).signatures} if site else {}
    if id_ not in own:
        return "Holdfast"
    is_known = any(one.id == id_ for one in package_signatures(cache_dir(os.environ)))
    return own[id_] + (", in place of Holdfast's" if is_known else "")


def _categories(signature: Signature) -> tuple[str, ...]:
    """Returns the category of a signature, and the class of that category."""
    kind = KINDS.get(signature.category) or KINDS.get(signature.category.replace("{xid}", "N"))
    return (signature.category, kind[0]) if kind else (signature.category,)


def _summary(one: Signature, language: Language) -> dict[str, str]:
    return {
        "id": one.id,
        "category": one.category,
        "role": one.role,
        "severity": one.severity,
        "area": one.area,
        "title": said(one.title, language),
    }


def _rows(one: Signature, language: Language) -> list[tuple[str, str]]:
    words: list[tuple[str, Words]] = [
        ("title", one.title),
        ("explanation", one.explanation),
        ("advice", one.advice),
    ]
    rows = [
        ("id", one.id),
        ("category", one.category),
        ("role", f"{one.role}, {one.severity}"),
        ("area", one.area),
        *((name, said(text, language)) for name, text in words),
        ("action", one.action or "that of the category"),
        ("weight", f"{one.weight:g}"),
        ("explained by", ", ".join(one.explained_by) or "nothing"),
        ("explains", ", ".join(one.explains) or "nothing"),
        ("pattern", one.pattern),
        ("source", one.source),
    ]
    return [
        *rows,
        *(("matches", line) for line in one.matches),
        *(("misses", line) for line in one.misses),
    ]
