"""Implements `holdfast check`: tests whether this node, or other nodes, can be used for training.

Only reads.
"""

import importlib
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from msgspec.structs import replace

from holdfast.checks.baseline_store import BaselineUnusable, baseline_path, read_baseline
from holdfast.checks.registry import chosen
from holdfast.cli.checking.asking import Question, answers_to, known_of
from holdfast.cli.checking.notes import note_checks
from holdfast.cli.line.check_flags import (
    FORMATS,
    AsNode,
    BaselineFlag,
    Checkpoint,
    Command,
    Context,
    DrawnFrom,
    Format,
    Json,
    List,
    Nodes,
    OfCheck,
    Only,
    Plot,
    Quick,
    Ranks,
    State,
    Suite,
    Timeout,
    Training,
    Via,
)
from holdfast.cli.line.flags import App, BadParameter, Exit
from holdfast.cli.line.languages import Lang, chosen_language, put_plain
from holdfast.cli.line.output import put_json, say
from holdfast.cli.line.plots import check_plot
from holdfast.core.checks.judged import judged
from holdfast.core.checks.learning import forgotten
from holdfast.model.checks import CONTEXTS, FAIL, SUITES, Baseline, NodeChecks, Spec
from holdfast.settings.read import SettingsRefused, fleet_root, state_root
from holdfast.settings.times import NotATime, seconds
from holdfast.views.checks.formats import exported
from holdfast.views.checks.report import baseline_lines, document, listed, listing, report
from holdfast.views.languages import Language
from holdfast.views.lines import for_terminal

FAILED = 1
TIMEOUTS_S = {"boot": 60.0, "troubleshoot": 120.0, "bench": 600.0, "all": 900.0}
QUICK_S = 5.0
NODES_MAX = 4096
BASELINES = ("show", "reset")

app = App()


@app.command(context_settings={"allow_interspersed_args": False})
def check(
    command: Command = None,
    suite: Suite = "boot",
    quick: Quick = False,
    only: Only = None,
    nodes: Nodes = None,
    via: Via = None,
    checkpoint: Checkpoint = None,
    ranks: Ranks = None,
    option: OfCheck = None,
    plot: Plot = None,
    drawn_from: DrawnFrom = None,
    timeout: Timeout = None,
    context: Context = None,
    training: Training = False,
    list_: List = False,
    baseline: BaselineFlag = None,
    format_: Format = "text",
    as_node: AsNode = False,
    lang: Lang = None,
    json: Json = False,
    state_dir: State = None,
) -> None:
    """Checks whether nodes can be used for training. Exits with 1 if a check failed, 0 otherwise."""
    _refuse(suite, context, baseline, format_, nodes)
    _refuse_plot(plot, drawn_from)
    language = chosen_language(lang, os.environ, json=json)
    try:
        question = Question(
            specs=chosen(suite, quick=quick, only=only or (), training=training),
            suite=suite,
            state=Path(state_root(state_dir, os.environ)),
            limit_s=seconds(timeout) if timeout else QUICK_S if quick else TIMEOUTS_S[suite],
            quick=quick,
            training=training,
            only=tuple(only or ()),
            nodes=tuple(dict.fromkeys(name.strip() for name in (nodes or "").split(",") if name.strip())),
            via=via,
            checkpoint=checkpoint,
            ranks=ranks,
            context=context,
            options=_options(option or ()),
            command=tuple(command or ()),
        )
    except (LookupError, SettingsRefused, NotATime) as error:
        raise BadParameter(str(error)) from error
    if list_:
        _list(question.specs, language, json=json)
    elif baseline:
        _baseline(baseline, baseline_path(question.state, socket.gethostname()), json=json)
    elif plot and drawn_from:
        _draw(Path(plot), drawn_from=drawn_from)
    else:
        raise Exit(_asked(question, language, json=json, as_node=as_node, format_=format_, plot=plot))


def _asked(
    question: Question, language: Language, *, json: bool, as_node: bool, format_: str, plot: str | None
) -> int:
    """Runs the checks, prints the results and returns the exit code."""
    began_s = time.monotonic()
    known = known_of(question.state) if plot and not question.nodes else None  # before this look adds to it
    answers = answers_to(question)
    if as_node:
        put_json(replace(answers[0], at_s=time.time()))
        return 0
    if plot:
        _draw(Path(plot), answers, known)
    verdict = judged(answers)
    _note(question, answers)
    took_s = time.monotonic() - began_s
    if format_ != "text":
        code, text = exported(format_, answers)
        put_plain(text)
        return code
    if json:
        put_json(document(question.suite, answers, verdict, question.specs, took_s))
    else:
        for line in for_terminal(report(answers, verdict, language, took_s)):
            put_plain(line)
    return FAILED if verdict.status == FAIL else 0


def _note(question: Question, answers: Sequence[NodeChecks]) -> None:
    """Stores results in the node book; a state folder that was given has its own."""
    try:
        fleet = fleet_root(None, str(question.state), os.environ)
    except SettingsRefused as error:
        say(str(error))
        return
    note_checks(fleet, answers, time.time(), whole=not question.only)


def _refuse(suite: str, context: str | None, baseline: str | None, format_: str, nodes: str | None) -> None:
    """Raises BadParameter if a flag has an invalid value."""
    for value, known, hint in (
        (suite, SUITES, "--suite"),
        (context, CONTEXTS, "--context"),
        (baseline, BASELINES, "--baseline"),
        (format_, FORMATS, "--format"),
    ):
        if value is not None and value not in known:
            raise BadParameter(f"{value!r} is not one of {', '.join(known)}", param_hint=hint)
    if nodes and len(nodes.split(",")) > NODES_MAX:
        raise BadParameter(f"more than {NODES_MAX} nodes", param_hint="--nodes")


def _refuse_plot(plot: str | None, drawn_from: Sequence[str] | None) -> None:
    """Raises BadParameter if no chart can be written to the given file."""
    check_plot(plot)
    if drawn_from and plot is None:
        raise BadParameter("--plot FILE is required with --from", param_hint="--from")


def _plots() -> ModuleType:
    """Imports the module that draws charts, only when needed, because it takes much of the memory that a
    check may use.
    """
    return importlib.import_module("holdfast.views.checks.plot")


def _draw(
    path: Path,
    nodes: Sequence[NodeChecks] = (),
    known: Baseline | None = None,
    *,
    drawn_from: Sequence[str] = (),
) -> None:
    """Writes the chart. Raises Exit."""
    plots = _plots()
    try:
        plots.draw(path, nodes or plots.read_nodes([Path(name) for name in drawn_from]), known)
    except plots.NotDrawn as error:
        say(str(error))
        raise Exit(FAILED) from error


def _options(texts: Sequence[str]) -> dict[str, str]:
    """Parses options of the form CHECK.KEY=VALUE. Raises BadParameter."""
    pairs = {}
    for text in texts:
        name, has_value, value = text.partition("=")
        if not has_value or "." not in name:
            raise BadParameter(f"{text!r} is not CHECK.KEY=VALUE", param_hint="--option")
        pairs[name] = value
    return pairs


def _baseline(what: str, store: Path, *, json: bool) -> None:
    try:
        if what == "reset":
            with suppress(BaselineUnusable):
                read_baseline(store)
            store.unlink(missing_ok=True)
            known = forgotten(Baseline())
            say("the baseline of this node is deleted; the next passed check creates a new one")
        else:
            known = read_baseline(store)
    except OSError as error:
        say(str(error))
        raise Exit(FAILED) from error
    if json:
        put_json(known)
        return
    for line in baseline_lines(known):
        put_plain(line)


def _list(specs: Sequence[Spec], language: Language, *, json: bool) -> None:
    if json:
        put_json([listed(spec) for spec in specs])
        return
    for line in listing(specs, language):
        put_plain(line)
