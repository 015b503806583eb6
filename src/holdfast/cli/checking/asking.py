"""Runs the checks of `holdfast check` on this node or on others, and stores new baseline values."""

import importlib
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from holdfast.checks.baseline_store import BaselineUnusable, baseline_path, change_baseline, read_baseline
from holdfast.checks.last_good import read_last_good
from holdfast.checks.remote import SRUN, SSH, BadVia, check_nodes
from holdfast.checks.runner import AT_ONCE, SuiteRun
from holdfast.checks.scene import scene_for
from holdfast.cli.line.flags import BadParameter
from holdfast.cli.line.output import say
from holdfast.core.checks.clocks import clocks_compared
from holdfast.core.checks.learning import learned
from holdfast.core.checks.peers import compared
from holdfast.model.checks import BOOT, MANUAL, ON_FAILURE, Baseline, NodeChecks, Outcome, Scene, Spec

REACH_S = 15.0  # to get to another node and to start there
PAIRS = "holdfast.cli.checking.pairs"
WIPE = "\r\x1b[K"
_CONTEXT_OF = {"boot": BOOT, "troubleshoot": ON_FAILURE}


class Question(Struct, frozen=True, kw_only=True):
    """The checks to run, and the nodes to run them on. `nodes`: empty means this node.

    `options`: options of single checks, by name.
    """

    specs: tuple[Spec, ...]
    suite: str
    state: Path
    limit_s: float
    quick: bool = False
    training: bool = False
    only: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    via: str | None = None
    checkpoint: str | None = None
    ranks: int | None = None
    context: str | None = None
    options: dict[str, str] = {}
    command: tuple[str, ...] = ()


def answers_to(question: Question) -> tuple[NodeChecks, ...]:
    """Runs the checks, and returns the results in the order of the nodes. Raises BadParameter."""
    try:
        return _elsewhere(question) if question.nodes else (_here(question),)
    except BadVia as error:
        raise BadParameter(str(error), param_hint="--via") from error
    finally:
        if sys.stderr.isatty():
            sys.stderr.write(WIPE)


def known_of(state: Path) -> Baseline:
    """Returns the stored baseline of this node; a file that cannot be read is reported and counts as
    empty.
    """
    try:
        return read_baseline(_store(state))
    except BaselineUnusable as error:
        say(str(error))
        return Baseline()


def _elsewhere(question: Question) -> tuple[NodeChecks, ...]:
    """Runs the checks on other nodes. Raises BadVia and BadParameter."""
    pairs_of = importlib.import_module(
        PAIRS
    )  # a tenth of the memory, which a look at this node alone does not need
    via = question.via or (SRUN if "SLURM_JOB_ID" in os.environ else SSH)
    answers: tuple[NodeChecks, ...] = ()
    if not pairs_of.wants_only_pairs(question.only):
        within_s = question.limit_s + min(REACH_S, question.limit_s + 2.0)
        answers = check_nodes(question.nodes, via, _words(question), within_s, _Progress())
        answers = clocks_compared(compared(answers))
    if pairs_of.wants_pairs(question.specs):
        known = known_of(question.state)
        try:
            pairs = pairs_of.check_pairs(
                question.nodes, via, question.limit_s, question.options, known, _Progress()
            )
        except pairs_of.BadOption as error:
            raise BadParameter(str(error), param_hint="--option") from error
        answers = pairs_of.with_pairs(answers, pairs)
        _learn(question.state, pairs[0])
    return answers


def _here(question: Question) -> NodeChecks:
    scene = scene_for(
        question.command,
        context=question.context or _CONTEXT_OF.get(question.suite, MANUAL),
        quick=question.quick,
        training=question.training,
        baseline=known_of(question.state),
        good_s=read_last_good(question.state, socket.gethostname()),
        folders={"checkpoint": os.path.abspath(question.checkpoint)} if question.checkpoint else {},
        ranks=question.ranks,
        options=question.options,
        read_scripts=True,
    )
    node = _looked(question.specs, scene, question.limit_s)
    _learn(question.state, node)
    return node


def _looked(specs: Sequence[Spec], scene: Scene, limit_s: float) -> NodeChecks:
    began_s = time.monotonic()
    show, done = _Progress(), 0

    def show_progress(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        show(NodeChecks(node=f"{done}/{len(specs)} {outcome.check}"))

    # Copies of this process, which has no threads; one for quick checks, whose memory is limited.
    run = SuiteRun(specs, scene, began_s + limit_s, child=None, at_once=1 if scene.quick else AT_ONCE)
    try:
        outcomes = run.wait(show_progress)
    finally:
        run.close()
    order = {spec.name: place for place, spec in enumerate(specs)}
    outcomes.sort(key=lambda outcome: order[outcome.check])
    return NodeChecks(
        node=scene.host, outcomes=tuple(outcomes), seconds=time.monotonic() - began_s, at_s=scene.now_s
    )


def _store(state: Path) -> Path:
    return baseline_path(state, socket.gethostname())


def _learn(state: Path, node: NodeChecks) -> None:
    """Adds new values to the stored baseline; a folder that cannot be written is only reported."""
    try:
        change_baseline(_store(state), lambda before: learned(before, node.outcomes, node.at_s))
    except OSError as error:
        say(f"the baseline cannot be written: {error}")


def _words(question: Question) -> list[str]:
    """Returns the command line that runs the same checks on another node."""
    words = ["holdfast", "check", "--as-node", "--suite", question.suite]
    words += ["--timeout", f"{question.limit_s:g}s"]
    words += ["--quick"] * question.quick + ["--training"] * question.training
    for name in question.only:
        words += ["--only", name]
    for name, value in question.options.items():
        words += ["--option", f"{name}={value}"]
    for flag, given in (
        ("--checkpoint", question.checkpoint),
        ("--ranks", question.ranks),
        ("--context", question.context),
    ):
        if given is not None:
            words += [flag, str(given)]
    return [*words, "--", *question.command] if question.command else words


class _Progress:
    """A progress line on the terminal, shown after a second."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def __call__(self, node: NodeChecks) -> None:
        if sys.stderr.isatty() and time.monotonic() - self._began_s > 1.0:
            sys.stderr.write(f"{WIPE}{node.node}")
            sys.stderr.flush()
