"""`holdfast check`: is this machine, or are these nodes, fit for a training. Looks, and changes nothing."""

import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from holdfast.checks.baseline_store import (
    BaselineUnusable,
    baseline_path,
    change_baseline,
    read_baseline,
)
from holdfast.checks.last_good import read_last_good
from holdfast.checks.registry import chosen
from holdfast.checks.remote import SRUN, SSH, BadVia, check_nodes
from holdfast.checks.runner import SuiteRun
from holdfast.checks.scene import scene_for
from holdfast.cli.check_formats import EXITS, exported
from holdfast.cli.check_plot import NotDrawn, draw, read_nodes, refused_plot
from holdfast.cli.check_report import baseline_lines, document, listed, listing, report
from holdfast.cli.languages import Lang, Language, chosen_language, put_plain
from holdfast.cli.output import put_json, say
from holdfast.cli.report_lines import for_terminal
from holdfast.cli.settings import SettingsRefused, state_root
from holdfast.cli.times import NotATime, seconds
from holdfast.core.checks.judged import judged
from holdfast.core.checks.learning import forgotten, learned
from holdfast.core.checks.peers import compared
from holdfast.model.checks import (
    BOOT,
    CONTEXTS,
    FAIL,
    MANUAL,
    ON_FAILURE,
    SUITES,
    Baseline,
    NodeChecks,
    Outcome,
    Scene,
    Spec,
)

FAILED = 1
TIMEOUTS_S = {"boot": 60.0, "troubleshoot": 120.0, "bench": 600.0, "all": 900.0}
QUICK_S = 5.0
REACH_S = 15.0  # to get to another node and to start there
NODES_MAX = 4096
FORMATS = ("text", *EXITS)
BASELINES = ("show", "reset")
_CONTEXT_OF = {"boot": BOOT, "troubleshoot": ON_FAILURE}
WIPE = "\r\x1b[K"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(context_settings={"allow_interspersed_args": False})
def check(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND...", help="The training it is to be fit for.", show_default=False),
    ] = None,
    suite: Annotated[
        str, typer.Option("--suite", metavar="boot|troubleshoot|bench|all", help="Which checks.")
    ] = "boot",
    quick: Annotated[bool, typer.Option("--quick", help="Only what is done within 5 s.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="NAME", help="Only this check, or area; may be given again.", show_default=False
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option("--nodes", metavar="A,B,...", help="On these nodes instead.", show_default=False),
    ] = None,
    via: Annotated[
        str | None,
        typer.Option(
            "--via",
            metavar="WORDS",
            help="What starts a program on {node}; else srun or ssh.",
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="DIR", help="Where checkpoints go.", show_default=False),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option("--ranks", help="Ranks on each node.", min=1, max=1 << 16, show_default=False),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="CHECK.KEY=VALUE",
            help="Of a single check; may be given again.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Draw the numbers too, into FILE.html or FILE.png.",
            show_default=False,
        ),
    ] = None,
    drawn_from: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE.json",
            help="With --plot: draw this answer of --json, and run nothing; may be given again.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="For all of it.", show_default=False)
    ] = None,
    context: Annotated[
        str | None,
        typer.Option("--context", metavar="|".join(CONTEXTS), help="On what occasion.", show_default=False),
    ] = None,
    training: Annotated[
        bool, typer.Option("--training", help="A job runs here: only what is passive.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Which checks there are, and run none.")] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", metavar="show|reset", help="What was learned of this node.", show_default=False
        ),
    ] = None,
    format_: Annotated[
        str,
        typer.Option("--format", metavar="|".join(FORMATS), help="Line and exit code for other programs."),
    ] = "text",
    as_node: Annotated[bool, typer.Option("--as-node", hidden=True)] = False,
    lang: Lang = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document instead.")] = False,
    state_dir: Annotated[
        str | None, typer.Option("--state-dir", help="Folder of all jobs, and of what was learned.")
    ] = None,
) -> None:
    """Says whether nodes are fit for a training. Exits with 1 where a check failed, 0 otherwise."""
    _refuse(suite, context, baseline, format_, nodes)
    _refuse_plot(plot, drawn_from)
    language = chosen_language(lang, os.environ, json=json)
    try:
        specs = chosen(suite, quick=quick, only=only or (), training=training)
        root = Path(state_root(state_dir, os.environ))
        store = baseline_path(root, socket.gethostname())
        limit_s = seconds(timeout) if timeout else QUICK_S if quick else TIMEOUTS_S[suite]
        options = _options(option or ())
    except (LookupError, SettingsRefused, NotATime) as error:
        raise typer.BadParameter(str(error)) from error
    if list_:
        _list(specs, language, json=json)
        return
    if baseline:
        _baseline(baseline, store, json=json)
        return
    if plot and drawn_from:
        _draw(Path(plot), drawn_from=drawn_from)
        return
    began_s = time.monotonic()
    if nodes:
        arguments = _arguments(
            suite, quick, only, checkpoint, ranks, option, limit_s, context, training, command
        )
        try:
            answers = compared(
                check_nodes(
                    _names(nodes),
                    via or _via(),
                    arguments,
                    limit_s + min(REACH_S, limit_s + 2.0),
                    _progress(),
                )
            )
        except BadVia as error:
            raise typer.BadParameter(str(error), param_hint="--via") from error
    else:
        known = _known(store)
        scene = scene_for(
            command or (),
            context=context or _CONTEXT_OF.get(suite, MANUAL),
            quick=quick,
            training=training,
            baseline=known,
            good_s=read_last_good(root, socket.gethostname()),
            folders={"checkpoint": os.path.abspath(checkpoint)} if checkpoint else {},
            ranks=ranks,
            options=options,
            read_scripts=True,
        )
        answers = (_here(specs, scene, limit_s),)
        _learn(store, answers[0])
    _clear()
    if as_node:
        put_json(answers[0])
        return
    if plot:
        _draw(Path(plot), answers, None if nodes else known)
    verdict = judged(answers)
    if format_ != "text":
        code, text = exported(format_, answers)
        put_plain(text)
        raise typer.Exit(code)
    if json:
        put_json(document(suite, answers, verdict, specs, time.monotonic() - began_s))
    else:
        for line in for_terminal(report(answers, verdict, language, time.monotonic() - began_s)):
            put_plain(line)
    raise typer.Exit(FAILED if verdict.status == FAIL else 0)


def _refuse(suite: str, context: str | None, baseline: str | None, format_: str, nodes: str | None) -> None:
    """raises: typer.BadParameter"""
    for value, known, hint in (
        (suite, SUITES, "--suite"),
        (context, CONTEXTS, "--context"),
        (baseline, BASELINES, "--baseline"),
        (format_, FORMATS, "--format"),
    ):
        if value is not None and value not in known:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}", param_hint=hint)
    if nodes and len(nodes.split(",")) > NODES_MAX:
        raise typer.BadParameter(f"more than {NODES_MAX} nodes", param_hint="--nodes")


def _refuse_plot(plot: str | None, drawn_from: Sequence[str] | None) -> None:
    """raises: typer.BadParameter"""
    if plot is not None and (why := refused_plot(plot)):
        raise typer.BadParameter(why, param_hint="--plot")
    if drawn_from and plot is None:
        raise typer.BadParameter("--plot says where to draw it", param_hint="--from")


def _draw(
    path: Path,
    nodes: Sequence[NodeChecks] = (),
    known: Baseline | None = None,
    *,
    drawn_from: Sequence[str] = (),
) -> None:
    """raises: typer.Exit"""
    try:
        draw(path, nodes or read_nodes([Path(name) for name in drawn_from]), known)
    except NotDrawn as error:
        say(str(error))
        raise typer.Exit(FAILED) from error


def _options(texts: Sequence[str]) -> dict[str, str]:
    """raises: typer.BadParameter"""
    pairs = {}
    for text in texts:
        name, has_value, value = text.partition("=")
        if not has_value or "." not in name:
            raise typer.BadParameter(f"{text!r} is not CHECK.KEY=VALUE", param_hint="--option")
        pairs[name] = value
    return pairs


def _here(specs: Sequence[Spec], scene: Scene, limit_s: float) -> NodeChecks:
    began_s = time.monotonic()
    show = _progress()
    done = 0

    def told(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        show(NodeChecks(node=f"{done}/{len(specs)} {outcome.check}"))

    run = SuiteRun(specs, scene, began_s + limit_s, child=None)  # this process has no threads
    try:
        outcomes = run.wait(told)
    finally:
        run.close()
    order = {spec.name: place for place, spec in enumerate(specs)}
    outcomes.sort(key=lambda outcome: order[outcome.check])
    return NodeChecks(
        node=scene.host, outcomes=tuple(outcomes), seconds=time.monotonic() - began_s, at_s=scene.now_s
    )


def _known(store: Path) -> Baseline:
    try:
        return read_baseline(store)
    except BaselineUnusable as error:
        say(str(error))
        return Baseline()


def _learn(store: Path, node: NodeChecks) -> None:
    """A state folder that cannot be written costs the memory, not the answer."""
    try:
        change_baseline(store, lambda before: learned(before, node.outcomes, node.at_s))
    except OSError as error:
        say(f"what was learned cannot be kept: {error}")


def _baseline(what: str, store: Path, *, json: bool) -> None:
    try:
        if what == "reset":
            with suppress(BaselineUnusable):
                read_baseline(store)
            store.unlink(missing_ok=True)
            known = forgotten(Baseline())
            say("what was learned of this node is forgotten; the next good check learns anew")
        else:
            known = read_baseline(store)
    except OSError as error:
        say(str(error))
        raise typer.Exit(FAILED) from error
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


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _via() -> str:
    return SRUN if "SLURM_JOB_ID" in os.environ else SSH


def _arguments(
    suite: str,
    quick: bool,
    only: Sequence[str] | None,
    checkpoint: str | None,
    ranks: int | None,
    option: Sequence[str] | None,
    limit_s: float,
    context: str | None,
    training: bool,
    command: Sequence[str] | None,
) -> list[str]:
    """The same question, for another node."""
    words = ["holdfast", "check", "--as-node", "--suite", suite, "--timeout", f"{limit_s:g}s"]
    words += ["--quick"] * quick + ["--training"] * training
    for name in only or ():
        words += ["--only", name]
    for text in option or ():
        words += ["--option", text]
    for flag, value in (("--checkpoint", checkpoint), ("--ranks", ranks), ("--context", context)):
        if value is not None:
            words += [flag, str(value)]
    return [*words, "--", *command] if command else words


class _Progress:
    """One line on a terminal, from the second second on."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def __call__(self, node: NodeChecks) -> None:
        if sys.stderr.isatty() and time.monotonic() - self._began_s > 1.0:
            sys.stderr.write(f"{WIPE}{node.node}")
            sys.stderr.flush()


def _progress() -> _Progress:
    return _Progress()


def _clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write(WIPE)
