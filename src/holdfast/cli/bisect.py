"""`holdfast bisect`: finds the commit, node or environment variable that makes a training fail, by short
test runs.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Struct

from holdfast.cli.line.flags import App, Argument, BadParameter, Exit, Option
from holdfast.cli.line.output import put, put_json, say
from holdfast.cli.line.step_pattern import StepPattern, forms_of
from holdfast.core.bisect.condition import BadCondition, parsed
from holdfast.core.plurals import counted
from holdfast.journal.jobdir import BadJobName, JobExists, JobInUse, StateUnwritable
from holdfast.journal.store import JournalUnusable
from holdfast.parsers.env_files import BadEnvFile, env_file
from holdfast.settings.read import SettingsRefused, state_root
from holdfast.settings.times import NotATime, seconds
from holdfast.supervise.bisect.record import BisectRecord, OtherPlan, opened
from holdfast.supervise.bisect.search import (
    Plan,
    Result,
    Runner,
    search_commit,
    search_nodes,
    search_settings,
)
from holdfast.supervise.bisect.worktree import GitFailed, Worktree

FAILED, REFUSED, INTERRUPTED = 1, 2, 130
REPEATS_MAX = 100
TREE = "tree"  # folder of the worktree, in the job's folder

app = App()


@app.command(context_settings={"allow_interspersed_args": False})
def bisect(
    command: Annotated[
        list[str] | None,
        Argument("-- COMMAND", help="Short training run, which --until judges as good or bad."),
    ] = None,
    until: Annotated[
        str | None,
        Option(
            "--until",
            metavar="CONDITION",
            help="What makes a run bad: exit!=0, nan, timeout, loss>2.3@50, step_s>0.2; join several with `or`.",
        ),
    ] = None,
    good: Annotated[
        str | None,
        Option("--good", metavar="REV|FILE", help="A good revision; with --settings a file of variables."),
    ] = None,
    bad: Annotated[
        str | None,
        Option("--bad", metavar="REV|FILE", help="A bad revision; with --settings a file of variables."),
    ] = None,
    nodes: Annotated[
        str | None,
        Option(
            "--nodes",
            metavar="A,B,...",
            help="Search these nodes. The ones to test replace {nodes} in COMMAND and are in HOLDFAST_BISECT_NODES.",
        ),
    ] = None,
    min_nodes: Annotated[
        int, Option("--min-nodes", min=1, max=1024, help="The smallest number of nodes that COMMAND can use.")
    ] = 1,
    settings: Annotated[
        bool,
        Option("--settings", help="Search the variables that differ between the files --good and --bad."),
    ] = False,
    repeats: Annotated[
        int,
        Option(
            "--repeats",
            min=1,
            max=REPEATS_MAX,
            help="Runs of each commit or node, for failures that do not occur in every run.",
        ),
    ] = 1,
    timeout: Annotated[str, Option("--timeout", metavar="TIME", help="Time limit of one run.")] = "30min",
    step_pattern: StepPattern = None,
    job: Annotated[
        str | None,
        Option(
            "--job",
            metavar="NAME",
            help="Name of the job that records this search; the name of an interrupted search continues that search.",
        ),
    ] = None,
    json: Annotated[bool, Option("--json", help="One JSON document instead.")] = False,
    state_dir: Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")] = None,
) -> None:
    """Finds the commit, the node or the environment variable that makes a run bad."""
    plan = _plan(command or [], until, repeats, timeout, step_pattern)
    asked = _asked(nodes, good, bad, settings=settings, min_nodes=min_nodes)
    record = _record(state_dir, job, {**asked.described(), **_described(plan)}, plan.command)
    name = record.job.name
    say(f"job {name}; if it is interrupted, the same command with --job {name} resumes it")
    result = _searched(Runner(plan, record, say), asked)
    record.end(result.lines[0], result.code)
    _print(result, record, json=json)
    raise Exit(result.code)


class Asked(Struct, frozen=True, kw_only=True):
    """What `holdfast bisect` searches: commits between a good and a bad one, variables that differ between two files,
    or nodes.
    """

    good: str = ""
    bad: str = ""
    good_variables: Mapping[str, str | None] = {}
    bad_variables: Mapping[str, str | None] = {}
    nodes: tuple[str, ...] = ()
    min_nodes: int = 1

    def described(self) -> dict[str, object]:
        """Returns the search as JSON, for the record of the job: an interrupted search is resumed only by the same
        one.
        """
        return dict(msgspec.to_builtins(self))


def _described(plan: Plan) -> dict[str, object]:
    return {
        "until": plan.condition.text,
        "repeats": plan.repeats,
        "cwd": os.getcwd(),
        "command": list(plan.command),
    }


def _searched(runner: Runner, asked: Asked) -> Result:
    """Searches, and leaves a record that can be resumed if it is interrupted. raises: Exit"""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    record = runner.record
    try:
        if asked.nodes:
            return search_nodes(runner, asked.nodes, asked.min_nodes, Path.cwd())
        if asked.good_variables or asked.bad_variables:
            return search_settings(runner, asked.good_variables, asked.bad_variables, Path.cwd())
        return _commit(runner, asked.good, asked.bad)
    except KeyboardInterrupt:
        record.close()
        say(f"interrupted after {counted(len(record.runs), 'run')}; --job {record.job.name} resumes it")
        raise Exit(INTERRUPTED) from None
    except GitFailed as error:
        record.close()
        say(str(error))
        raise Exit(FAILED) from error


def _print(result: Result, record: BisectRecord, *, json: bool) -> None:
    if not json:
        for line in result.lines:
            put(line)
        put(f"{counted(len(record.runs), 'run')}; holdfast log {record.job.name} has each")
        return
    put_json(
        {
            "job": record.job.name,
            "found": list(result.found) if result.code == 0 else [],
            "candidates": list(result.found),
            "text": list(result.lines),
            "runs": [{"place": one.place, "judgement": one.judgement, "why": one.why} for one in record.runs],
        }
    )


def _plan(
    command: Sequence[str], until: str | None, repeats: int, timeout: str, step_pattern: str | None
) -> Plan:
    """Returns the settings common to all test runs. Raises BadParameter."""
    if not command:
        raise BadParameter("give the command after --", param_hint="COMMAND")
    if until is None:
        raise BadParameter("say what makes a run bad, such as --until 'exit!=0'", param_hint="--until")
    try:
        return Plan(
            condition=parsed(until),
            command=tuple(command),
            repeats=repeats,
            limit_s=seconds(timeout),
            forms=forms_of(step_pattern),
        )
    except BadCondition as error:
        raise BadParameter(str(error), param_hint="--until") from error
    except NotATime as error:
        raise BadParameter(str(error), param_hint="--timeout") from error


def _asked(nodes: str | None, good: str | None, bad: str | None, *, settings: bool, min_nodes: int) -> Asked:
    """raises: BadParameter"""
    if nodes is not None:
        if settings or good is not None or bad is not None:
            raise BadParameter(
                "--nodes has no --good, --bad or --settings: the search starts from all nodes as bad",
                param_hint="--nodes",
            )
        names = _names(nodes)
        if len(names) < 2:
            raise BadParameter("name at least two nodes, with commas between", param_hint="--nodes")
        return Asked(nodes=tuple(names), min_nodes=min_nodes)
    if good is None or bad is None:
        raise BadParameter("give both --good and --bad", param_hint="--good")
    if not settings:
        return Asked(good=good, bad=bad)
    ours, theirs = _variables(good), _variables(bad)
    if ours == theirs:
        raise BadParameter(f"{good} and {bad} have the same variables", param_hint="--settings")
    return Asked(good=good, bad=bad, good_variables=ours, bad_variables=theirs)


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))


def _variables(path: str) -> dict[str, str | None]:
    """Returns the environment variables from a file; a value of None means unset. Raises BadParameter."""
    try:
        return dict(env_file(Path(path).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, BadEnvFile) as error:
        raise BadParameter(f"{path}: {error}", param_hint="--settings") from error


def _record(
    state_dir: str | None, job: str | None, plan: dict[str, object], command: Sequence[str]
) -> BisectRecord:
    """Returns the open record of the bisection. Raises BadParameter, Exit."""
    try:
        return opened(state_root(state_dir, os.environ), job, plan, command)
    except (BadJobName, SettingsRefused) as error:
        raise BadParameter(str(error), param_hint="--job") from error
    except (OtherPlan, JobExists, JobInUse, StateUnwritable, JournalUnusable) as error:
        say(str(error))
        raise Exit(REFUSED) from error


def _commit(runner: Runner, good: str, bad: str) -> Result:
    """Searches the first bad commit and returns the result. Raises GitFailed."""
    tree = Worktree(Path.cwd(), runner.record.job.path / TREE)
    ends = {}
    for name, revision in (("good", good), ("bad", bad)):
        try:
            ends[name] = tree.commit_of(revision)
        except GitFailed as error:
            raise GitFailed(
                f"--{name} {revision!r} is not a commit of the repository in {Path.cwd()}"
            ) from error
    if not tree.is_ancestor(ends["good"], ends["bad"]):
        why = f"{good} is no ancestor of {bad}: give a good commit from which the bad one descends"
        if tree.is_ancestor(ends["bad"], ends["good"]):
            why = f"{bad} is older than {good}: exchange --good and --bad and invert the condition, to find the commit that fixed the failure"
        raise GitFailed(why)
    try:
        return search_commit(runner, tree, ends["good"], ends["bad"])
    finally:
        tree.remove()
