"""Implements `holdfast diagnose`: finds why a job stopped, from its logs and other files. Only reads."""

import importlib
import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
from msgspec.structs import replace

from holdfast.cli.diagnosed_job import is_job, job_named, place_of
from holdfast.cli.line.flags import App, Argument, BadParameter, Exit, Option
from holdfast.cli.line.languages import Lang, chosen_language, put_plain
from holdfast.cli.line.output import put_json, say
from holdfast.core.diagnosis.diagnose import diagnose as reasoned
from holdfast.core.diagnosis.excerpt import is_loose_text
from holdfast.core.diagnosis.flights import with_flights
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.live import joined
from holdfast.core.diagnosis.pasted import is_calm_line, is_open, of_pasted
from holdfast.core.diagnosis.words.missing import NOTHING_READ, is_empty, not_found
from holdfast.core.diagnosis.words.telling import speaks_of_trouble
from holdfast.core.diagnosis.words.verdict_zh import diagnosis_zh
from holdfast.core.phrases.meanings import LINES_MAX, meanings_of
from holdfast.core.verdict.first import first_verdict
from holdfast.journal.jobdir import JobDir
from holdfast.model.diagnoses import Diagnosis, FirstError
from holdfast.model.failures import Failure
from holdfast.model.flight.scenes import FlightScene
from holdfast.model.matches import Search
from holdfast.observe.logs.bundles import FAILURE, read_member
from holdfast.observe.logs.line_numbers import line_of
from holdfast.observe.logs.surroundings import with_surroundings
from holdfast.observe.processes.flight_files import SceneReader
from holdfast.observe.search.code_store import package_tables, tables_for
from holdfast.observe.search.phrase_store import package_index
from holdfast.observe.search.rule_store import all_knowledge
from holdfast.observe.search.scan import search
from holdfast.parsers.signature_files import SignatureError
from holdfast.settings.read import SettingsRefused, cache_dir, prometheus_url, site_signatures
from holdfast.views.diagnosis.document import Scanned, document, scanned
from holdfast.views.diagnosis.report import WIDTH_MAX, Line, report
from holdfast.views.languages import Language

REFUSED = 2
BUNDLE = ".tar.zst"
STDIN = "-"
NO_RECORDS = FlightScene()
_STYLES = {"strong": "\x1b[1m", "error": "\x1b[1;31m", "quiet": "\x1b[2m"}

app = App()

SignatureFolder = Annotated[
    str | None,
    Option(
        "--signatures",
        metavar="DIR",
        help="Folder with signatures of your site, which are added to Holdfast's or replace them.",
    ),
]


@app.command()
def diagnose(
    paths: Annotated[
        list[str] | None,
        Argument(
            "PATH...",
            help="Folders, files, archives, evidence bundles, names of jobs; - for stdin.",
        ),
    ] = None,
    json: Annotated[bool, Option("--json", help="Print one JSON document instead of text.")] = False,
    lang: Lang = None,
    text: Annotated[
        str | None,
        Option("--text", metavar="TEXT", help="A few log lines or an error code, instead of a file."),
    ] = None,
    signatures: SignatureFolder = None,
    everything: Annotated[bool, Option("--all", help="Do not shorten lists and lines.")] = False,
    state_dir: Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")] = None,
    prometheus: Annotated[
        str | None,
        Option(
            "--prometheus",
            metavar="URL",
            help="URL of the Prometheus server with metrics of the nodes' devices. [HOLDFAST_PROMETHEUS]",
        ),
    ] = None,
) -> None:
    """Finds why a job stopped: the first failure, its culprit, what to do.

    Exits with 0 if it has an answer.
    """
    language = chosen_language(lang, os.environ, json=json)
    jobs: list[JobDir] = []
    places, stdin = ([], _as_file(text)) if text is not None else _places(paths or [], state_dir, jobs)
    if text is not None and paths:
        raise BadParameter("give either --text or paths, not both", param_hint="--text")
    cache = cache_dir(os.environ)
    try:
        asked = prometheus_url(prometheus, os.environ)
        known = all_knowledge(site_signatures(signatures, os.environ), cache, say)
        started_s = time.monotonic()
        beside = SceneReader()
        found = search(places, tuple(known.values()), stdin=stdin, cache=cache, beside=beside.take)
    except (SettingsRefused, SignatureError) as error:
        say(str(error))
        raise Exit(REFUSED) from error
    scene = beside.scene()
    answer = answered(found, known, places, scene)
    if not scene.digests and (text is not None or is_loose_text(found.sources)):
        answer = read_loosely(answer, found, known, cache, is_asked=text is not None)
    if asked is not None:
        # By its name: HTTP is imported for those who ask.
        answer = importlib.import_module("holdfast.cli.device_metrics").with_prometheus(
            answer, found, jobs, asked
        )
    if language == "zh":
        answer = diagnosis_zh(answer)
    read = scanned(found, time.monotonic() - started_s, scene)
    if json:
        put_json(document(answer, read, language))
    else:
        _print(answer, read, language, everything=everything)


def read_loosely(
    answer: Diagnosis,
    found: Search,
    signatures: KnowledgeBase,
    cache: Path | None,
    *,
    is_asked: bool = False,
) -> Diagnosis:
    """Returns the diagnosis of a few pasted lines by approximate matching, if the exact rules for whole logs give no
    answer.

    `is_asked`: the text was given with --text.
    """
    every_line = [line for source in found.sources for line in source.tail]
    if not every_line or not is_open(answer):
        return answer
    matched = [(one.text.strip(), is_calm_line(signatures[one.signature])) for one in found.matches]
    calm = {text for text, is_calm in matched if is_calm} - {text for text, is_calm in matched if not is_calm}
    # What is left out is blank: the numbers of the lines stay.
    lines = ["" if line.strip() in calm else line for line in every_line]
    index = package_index(signatures.values(), cache)
    known = KnowledgeBase({**index.own, **signatures}.values(), signatures.rules)
    tables = package_tables()
    if len(lines) > LINES_MAX:
        lines = [line if speaks_of_trouble(line, known) else "" for line in lines]
    meanings = meanings_of(lines, index, known, tables)
    is_calm = bool(calm) or any(
        source.is_finished or source.last_step_offset is not None for source in found.sources
    )
    loose = of_pasted(
        answer,
        found.sources[0].name,
        lines,
        meanings,
        known,
        tables,
        is_asked=is_asked,
        is_calm=is_calm,
    )
    says_the_same = loose.category == answer.category and answer.category not in ("none", "unknown")
    if says_the_same:
        return answer  # the exact reading says more: what its pattern captured
    return loose if loose.culprits else replace(loose, culprits=answer.culprits)


def answered(
    found: Search,
    signatures: KnowledgeBase,
    places: Sequence[Path],
    scene: FlightScene = NO_RECORDS,
) -> Diagnosis:
    """Returns the diagnosis of the searched logs, with the lines around the first error and a list of missing
    evidence.

    `scene`: flight records and stack dumps found beside the logs.
    """
    if is_empty(found) and not scene.digests:
        return with_flights(NOTHING_READ, found, scene, signatures)
    live = _failures(places)
    answer = reasoned(found, signatures, tables_for({one.category for one in found.matches}))
    for failure in live[:1]:
        answer = joined(first_verdict(failure), answer, signatures)
    answer = with_flights(answer, found, scene, signatures)
    first = answer.first_error
    return replace(
        answer,
        first_error=first and with_surroundings(_numbered(first, places), places),
        not_found=answer.not_found or not_found(found, signatures, answer.class_),
    )


def _numbered(first: FirstError, places: Sequence[Path]) -> FirstError:
    """Adds the line number of the first error; in large logs the search counts the lines of a few matches
    only.
    """
    if first.line is not None or first.source is None:
        return first
    return replace(first, line=line_of(places, first.file, first.offset))


def _failures(places: Sequence[Path]) -> list[Failure]:
    """Returns how ranks ended, as recorded in evidence bundles; no log contains it."""
    read = (
        read_member(place, FAILURE) for place in places if place.name.endswith(BUNDLE) and place.is_file()
    )
    found = []
    for content in read:
        with suppress(msgspec.MsgspecError):
            found += [msgspec.json.decode(content, type=Failure)] if content else []
    return found


def _places(
    paths: Sequence[str], state_dir: str | None, jobs: list[JobDir]
) -> tuple[list[Path], BinaryIO | None]:
    """Returns the paths to read, and stdin if it is named or nothing is. `jobs`: receives the jobs.

    Raises BadParameter.
    """
    if not paths and sys.stdin.isatty():
        raise BadParameter("give a folder or file with logs, a job, or - for stdin", param_hint="PATH")
    places = [_place(path, state_dir, jobs) for path in paths if path != STDIN]
    return places, sys.stdin.buffer if not paths or STDIN in paths else None


def _as_file(text: str) -> BinaryIO:
    return BytesIO(text.encode("utf-8", "surrogateescape"))


def _place(word: str, state_dir: str | None, jobs: list[JobDir]) -> Path:
    """Returns a path, or that of a job's files if there is no such file. Raises BadParameter."""
    path = Path(word)
    try:
        path.lstat()
    except OSError as error:
        if (job := job_named(word, state_dir)) is not None:
            jobs.append(job)
            return place_of(job)
        raise BadParameter(
            f"{word!r} cannot be read: {error.strerror or error}", param_hint="PATH"
        ) from error
    if not is_job(path):
        return path
    jobs.append(JobDir(path))
    return place_of(jobs[-1])


def _print(answer: Diagnosis, read: Scanned, language: Language, *, everything: bool) -> None:
    width = shutil.get_terminal_size((WIDTH_MAX, 24)).columns
    lines = report(answer, read, language, width, everything=everything)
    for text in coloured(lines) if _wants_colour() else (line.text for line in lines):
        put_plain(text)


def coloured(lines: Iterable[Line]) -> Iterable[str]:
    return (f"{_STYLES[line.style]}{line.text}\x1b[0m" if line.style else line.text for line in lines)


def _wants_colour() -> bool:
    """Returns whether to print colours. Source: no-color.org."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
