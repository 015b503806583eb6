"""Implements `holdfast explain`: explains an error code or a few words of a message, without a log.

Only reads.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import Struct

from holdfast.cli.line.flags import App, Argument, BadParameter, Exit, Option
from holdfast.cli.line.languages import Lang, chosen_language, put_plain
from holdfast.cli.line.output import put_json, say
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.pasted import NAMED, explained
from holdfast.core.phrases.meanings import Found, meanings_of
from holdfast.model.diagnoses import Diagnosis
from holdfast.model.signatures import Words
from holdfast.observe.search.code_store import package_tables
from holdfast.observe.search.phrase_store import package_index
from holdfast.observe.search.rule_store import all_knowledge
from holdfast.observe.search.signature_store import package_signatures
from holdfast.parsers.signature_files import SignatureError
from holdfast.settings.read import SettingsRefused, cache_dir, site_signatures
from holdfast.views.diagnosis.report import WIDTH_MAX, Line
from holdfast.views.languages import Language, said
from holdfast.views.wrapping import shown, wrapped

NOT_KNOWN = 1
REFUSED = 2
MEANINGS_MAX = 6  # one answer, and what is near
SAME_LEVEL = 0.02  # codes that may mean several things are all answers
NEAR_OF_CODE = 0.6  # beside a code, only what is near to its own words
INDENT = "  "
_ADVICE = Words(en="What to do", zh="处理建议")
_SOURCE = Words(en="Source", zh="来源")
_NEAR = Words(en="Near", zh="相近")
_ACTION = Words(en="action", zh="动作")
_NOTHING = Words(
    en="no known code or message is similar; if you have the log, run: holdfast diagnose FILE",
    zh="没有与之相近的已知代码或信息；若有日志：holdfast diagnose FILE",
)

app = App()


class Meaning(Struct, frozen=True):
    """One possible meaning of the given code or words: the known phrase that matched, and what is known about it."""

    found: Found
    answer: Diagnosis
    source: str


@app.command()
def explain(
    words: Annotated[
        list[str],
        Argument(
            "CODE|WORDS...",
            help="Error code or words as written in the log: Xid 79, exit code 137, 80C98002, SIGBUS.",
        ),
    ],
    json: Annotated[bool, Option("--json", help="One JSON document instead.")] = False,
    lang: Lang = None,
    signatures: Annotated[
        str | None,
        Option(
            "--signatures",
            metavar="DIR",
            help="Folder with signatures of your site, which are added to Holdfast's or replace them.",
        ),
    ] = None,
) -> None:
    """Explains a code or a few words of a message, says what to do, and lists similar ones.

    Exits with 1 if nothing is known.
    """
    language = chosen_language(lang, os.environ, json=json)
    text = " ".join(words).strip()
    if not text:
        raise BadParameter("give a code or a few words of a message", param_hint="CODE|WORDS")
    meanings = _meanings(text, signatures)
    is_known = bool(meanings) and meanings[0].found.score >= NAMED
    if json:
        put_json(
            {
                "query": text,
                "known": is_known,
                "meanings": [_document(one, language) for one in meanings],
            }
        )
    else:
        width = min(shutil.get_terminal_size((WIDTH_MAX, 24)).columns, WIDTH_MAX)
        for line in _page(meanings, language, width, is_known=is_known):
            put_plain(line.text)
    if not is_known:
        raise Exit(NOT_KNOWN)


def _meanings(text: str, folder: str | None) -> list[Meaning]:
    cache = cache_dir(os.environ)
    try:
        site = site_signatures(folder, os.environ)
        package = package_signatures(cache)
        known = all_knowledge(site, cache, say)
    except (SettingsRefused, SignatureError) as error:
        say(str(error))
        raise Exit(REFUSED) from error
    index, tables = package_index(package, cache), package_tables()
    every = KnowledgeBase({**index.own, **known}.values(), known.rules)
    found = meanings_of([text], index, every, tables)[:MEANINGS_MAX]
    return [
        Meaning(one, explained(one, "", every, tables), every[one.near.signature].source) for one in found
    ]


def _document(meaning: Meaning, language: Language) -> dict[str, Any]:
    answer = meaning.answer
    return {
        "id": meaning.found.near.signature,
        "score": round(min(1.0, meaning.found.score), 2),
        "category": answer.category,
        "class": answer.class_,
        "action": answer.action,
        "title": said(answer.title, language),
        "explanation": said(answer.explanation, language),
        "advice": said(answer.advice, language),
        "source": meaning.source,
        "like": meaning.found.near.phrase,
    }


def _page(meanings: Sequence[Meaning], language: Language, width: int, *, is_known: bool) -> Iterator[Line]:
    first = meanings[0].found.score if is_known else 0.0
    answers = [
        one
        for one in meanings
        if is_known and one.found.score >= first - SAME_LEVEL and one.found.by == "code"
    ]
    answers = answers or list(meanings[:1] if is_known else ())
    for number, meaning in enumerate(answers):
        if number:
            yield Line()
        yield from _answer(meaning, language, width)
    if not answers:
        yield from map(Line, wrapped(said(_NOTHING, language), width))
    least = NEAR_OF_CODE if answers and answers[0].found.by == "code" else 0.0
    rest = [one for one in meanings if one not in answers and one.found.score >= least]
    if rest:
        yield Line()
        yield Line(said(_NEAR, language))
    for meaning in rest:
        title = shown(said(meaning.answer.title, language))
        yield Line(f"{INDENT}- {title} ({meaning.answer.category}, {min(1.0, meaning.found.score):.0%})")


def _answer(meaning: Meaning, language: Language, width: int) -> Iterator[Line]:
    answer = meaning.answer
    title, explanation = said(answer.title, language), said(answer.explanation, language)
    yield from map(Line, wrapped(shown(title), width))
    yield Line(f"{answer.category} · {said(_ACTION, language)} {answer.action}")
    if explanation and explanation.strip(".。").lower() not in title.lower():
        yield from map(Line, wrapped(shown(explanation), width))
    yield Line()
    yield Line(said(_ADVICE, language))
    yield from (
        Line(INDENT + line) for line in wrapped(shown(said(answer.advice, language)), width - len(INDENT))
    )
    yield Line()
    yield from map(Line, wrapped(f"{said(_SOURCE, language)}  {meaning.source}", width))
