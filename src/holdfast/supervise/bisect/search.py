"""Searches for the commit, node or environment variable that makes a run bad, with one run after another."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from holdfast.core.bisect.commits import FoundCommit, RefusedEnd, ends, next_commit, next_end
from holdfast.core.bisect.condition import Condition, Judged, Judgement
from holdfast.core.bisect.subsets import Isolated, Needed, Refused, search
from holdfast.core.plurals import counted
from holdfast.model.step_forms import StepForm
from holdfast.supervise.bisect.probe import Order, run
from holdfast.supervise.bisect.record import BisectRecord
from holdfast.supervise.bisect.worktree import GitFailed, Worktree

FOUND, NOT_FOUND = 0, 1
NODES, COUNT = "{nodes}", "{nnodes}"
NODES_ENV, PART_ENV = "HOLDFAST_BISECT_NODES", "HOLDFAST_BISECT"


class Plan(Struct, frozen=True, kw_only=True):
    """Settings that all test runs of a bisection have in common. `repeats`: runs of each commit or set of nodes; one
    bad run makes it bad.
    """

    condition: Condition
    command: tuple[str, ...]
    repeats: int
    limit_s: float
    forms: tuple[StepForm, ...]


class Result(Struct, frozen=True):
    """Result of a bisection. `lines`: for users. `found`: commits or names; empty means nothing was found."""

    code: int
    lines: tuple[str, ...]
    found: tuple[str, ...] = ()


class Runner:
    """Runner of the test runs of one bisection. `say`: receives one line for each run."""

    def __init__(self, plan: Plan, record: BisectRecord, say: Callable[[str], None]) -> None:
        self.plan, self.record, self._say = plan, record, say

    def judged(self, place: str, name: str, cwd: str, env: Mapping[str, str], command: Sequence[str]) -> None:
        """Runs the command on a commit, node set or variable set until its judgement is certain. `name`: its name for
        users.
        """
        for _ in range(self.plan.repeats - self._runs_of(place)):
            order = Order(
                command=tuple(command),
                cwd=cwd,
                env={**env, PART_ENV: place},
                folder=self.record.begin(),
                limit_s=self.plan.limit_s,
            )
            found, seconds = run(order, self.plan.condition, self.plan.forms)
            self.record.judged(place, name, found, seconds)
            self._say(
                f"{len(self.record.runs):>3}  {found.judgement:<8} {name}  {found.why}  ({seconds:.1f} s)"
            )
            if found.judgement == "bad":
                return

    def answers(self) -> dict[str, Judgement]:
        """Returns the judgement of each tested commit, node set or variable set that has enough runs.

        It is bad if one run was bad, and unknown if no run was good or bad.
        """
        said: dict[str, list[Judgement]] = {}
        for one in self.record.runs:
            said.setdefault(one.place, []).append(one.judgement)
        found: dict[str, Judgement] = {}
        for place, judgements in said.items():
            if "bad" in judgements:
                found[place] = "bad"
            elif len(judgements) >= self.plan.repeats:
                found[place] = "good" if "good" in judgements else "unknown"
        return found

    def why(self, place: str) -> str:
        """Returns the reason for the judgement on the last run of `place`, a commit, node set or variable set."""
        return next((one.why for one in reversed(self.record.runs) if one.place == place), "")

    def _runs_of(self, place: str) -> int:
        return sum(one.place == place for one in self.record.runs)


def search_commit(runner: Runner, tree: Worktree, good: str, bad: str) -> Result:
    """Searches the first bad commit. Raises GitFailed."""
    while True:
        answers = runner.answers()
        end = next_end(bad, good, answers)
        if isinstance(end, RefusedEnd):
            return _refused_commit(runner, tree, end)
        if end is not None:
            _run_commit(runner, tree, end)
            continue
        order = [place for place in answers if place not in (bad, good)]
        known = ends(bad, good, order, answers)
        chosen = next_commit(known, tree.candidates(known.bad, known.good))
        if isinstance(chosen, FoundCommit):
            return _found_commit(runner, tree, chosen)
        _run_commit(runner, tree, chosen)


def search_nodes(runner: Runner, nodes: Sequence[str], least: int, cwd: Path) -> Result:
    """Searches the node, or the smallest set of nodes, with which the command fails."""

    def prepared(part: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        named = ",".join(part)
        env = dict(os.environ) | {NODES_ENV: named}
        return env, [
            word.replace(NODES, named).replace(COUNT, str(len(part))) for word in runner.plan.command
        ]

    return _search_part(runner, nodes, least, cwd, prepared, "node", has_empty=False)


def search_settings(
    runner: Runner, good: Mapping[str, str | None], bad: Mapping[str, str | None], cwd: Path
) -> Result:
    """Searches the environment variable, or the smallest set of them, whose values make the run bad.

    In `good` and `bad`, a value of None means that the variable is unset.
    """
    names = sorted(name for name in {*good, *bad} if good.get(name) != bad.get(name))

    def prepared(part: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        values = {name: bad.get(name) if name in part else good.get(name) for name in {*good, *bad}}
        env = {name: value for name, value in os.environ.items() if name not in values}
        return env | {name: value for name, value in values.items() if value is not None}, list(
            runner.plan.command
        )

    return _search_part(runner, names, 1, cwd, prepared, "variable", has_empty=True)


def _search_part(
    runner: Runner,
    items: Sequence[str],
    least: int,
    cwd: Path,
    prepared: Callable[[Sequence[str]], tuple[dict[str, str], list[str]]],
    kind: str,
    *,
    has_empty: bool,
) -> Result:
    while True:
        answers = {tuple(filter(None, place.split(","))): said for place, said in runner.answers().items()}
        step = search(items, answers, least=least, has_empty=has_empty)
        match step:
            case Needed(part=part):
                env, command = prepared(part)
                name = ", ".join(part) or "none of them"
                runner.judged(",".join(part), name, str(cwd), env, command)
            case Refused(end=end, judgement=judgement):
                part = tuple(items) if end == "bad" else ()
                what = f"all {counted(len(items), kind)}" if end == "bad" else f"no bad {kind}"
                return _refused(f"with {what} the run", end, judgement, runner.why(",".join(part)))
            case Isolated(part=part, unsure=unsure):
                names = ", ".join(part)
                lines = [f"the {kind} that makes the run bad: {names}"]
                if len(part) > 1:
                    lines = [f"the run is bad only with these {counted(len(part), kind)} together: {names}"]
                lines.append(f"seen: {runner.why(','.join(part))}")
                if unsure:
                    lines.append(f"{counted(len(unsure), 'part')} could not be judged and counted as not bad")
                return Result(FOUND, tuple(lines), part)


def _run_commit(runner: Runner, tree: Worktree, commit: str) -> None:
    title = tree.title(commit)
    try:
        tree.check_out(commit)
    except GitFailed as error:
        runner.record.begin()
        runner.record.judged(commit, title, Judged("unknown", str(error)), 0.0)
        return
    runner.judged(commit, title, str(tree.folder), os.environ, runner.plan.command)


def _found_commit(runner: Runner, tree: Worktree, found: FoundCommit) -> Result:
    titles = [tree.title(commit) for commit in found.commits]
    seen = f"seen: {runner.why(found.commits[0])}"
    if len(titles) == 1:
        return Result(FOUND, (f"the first bad commit: {titles[0]}", seen), found.commits)
    lines = (
        f"the first bad commit is one of these {len(titles)}; the others could not be judged:",
        *titles,
        seen,
    )
    return Result(NOT_FOUND, lines, found.commits)


def _refused_commit(runner: Runner, tree: Worktree, end: RefusedEnd) -> Result:
    return _refused(
        f"the {end.end} commit {tree.title(end.commit)}", end.end, end.judgement, runner.why(end.commit)
    )


def _refused(what: str, end: str, judgement: Judgement, why: str) -> Result:
    if judgement == "unknown":
        text = f"{what} cannot be judged: {why}"
    else:
        text = f"{what} is {judgement}: {why}"
    advice = {
        "bad": "check the condition, or give --repeats if the failure does not occur in every run",
        "good": "give an older good commit, or check the condition",
    }[end]
    return Result(NOT_FOUND, (f"{text}: {advice}",))
