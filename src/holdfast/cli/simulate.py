"""Implements `holdfast simulate`: runs the real decision rules on a virtual cluster: a scenario, a random cluster, or
months of a fleet.
"""

from pathlib import Path
from typing import Annotated

from msgspec.structs import replace

from holdfast.cli.line.flags import App, Argument, BadParameter, Exit, Option
from holdfast.cli.line.languages import put_plain
from holdfast.cli.line.output import put, put_json, say
from holdfast.cli.line.plots import check_plot
from holdfast.settings.times import length
from holdfast.sim.months.compare import compare
from holdfast.sim.months.plan import PlanRefused
from holdfast.sim.months.plan import read as read_plan
from holdfast.sim.run import Answer, check_expect, run_file
from holdfast.sim.scenario import ScenarioRefused, read
from holdfast.sim.seeds import run_seed
from holdfast.views.fleet.comparison import picture, report
from holdfast.views.fleet.png import NotDrawn, draw
from holdfast.views.lines import for_terminal

REFUSED = 2
NOT_AS_EXPECTED = 1

app = App()


@app.command()
def simulate(
    scenario: Annotated[
        Path | None, Argument("[SCENARIO.yaml]", help="File with a cluster, a policy and faults.")
    ] = None,
    seed: Annotated[
        int | None,
        Option(
            "--seed",
            help="Random seed; without a scenario: simulate a random cluster with random faults of this seed.",
        ),
    ] = None,
    fleet: Annotated[
        Path | None,
        Option("--fleet", metavar="FLEET.yaml", help="Plan of a large job over months, to compare policies."),
    ] = None,
    plot: Annotated[
        str | None,
        Option(
            "--plot", metavar="FILE", help="Also draw a chart of the comparison, into FILE.html or FILE.png."
        ),
    ] = None,
    json: Annotated[bool, Option("--json", help="Print one JSON document instead.")] = False,
) -> None:
    """Runs a scenario, a random cluster or a fleet. Exits with 1 if an expectation does not hold."""
    check_plot(plot)
    if plot is not None and fleet is None:
        raise BadParameter("--plot needs --fleet", param_hint="--plot")
    if fleet is not None:
        if scenario is not None:
            raise BadParameter("give a SCENARIO.yaml or --fleet, not both", param_hint="--fleet")
        _run_fleet(fleet, seed, plot, json=json)
    elif scenario is not None:
        _run_scenario(scenario, seed or 0, json=json)
    elif seed is not None:
        _run_world(seed, json=json)
    else:
        raise BadParameter(
            "give a SCENARIO.yaml, or --seed N for a random cluster", param_hint="SCENARIO.yaml"
        )


def _run_scenario(path: Path, seed: int, *, json: bool) -> None:
    try:
        expect = read(path).expect
        answer = run_file(path, seed)
    except ScenarioRefused as error:
        say(str(error))
        raise Exit(REFUSED) from error
    if json:
        put_json(answer)
    else:
        for line in answer_lines(answer):
            put(line)
    wrong = check_expect(answer, expect)
    for text in wrong:
        say(f"expectation not met: {text}")
    if wrong:
        raise Exit(NOT_AS_EXPECTED)


def _run_fleet(path: Path, seed: int | None, plot: str | None, *, json: bool) -> None:
    """Simulates a fleet and prints the comparison of policies. `seed`: replaces the one in the plan."""
    try:
        world = read_plan(path)
    except PlanRefused as error:
        say(str(error))
        raise Exit(REFUSED) from error
    if seed is not None:
        world = replace(world, plan=replace(world.plan, seed=seed))
    found = compare(world)
    title = f"{found.gpus:,} GPUs on {found.nodes:,} nodes with {found.spares} spares, {found.days:g} days, {found.runs} runs"
    said = [f"one interruption in {length(round(found.mean_s))}, in bursts (Weibull shape {found.shape:.2f})"]
    said += found.notes
    if json:
        put_json(found)
    else:
        for text in for_terminal(report(title, said, found.results)):
            put_plain(text)
    if plot is not None:
        try:
            draw(Path(plot), picture(title, said, found.results))
        except NotDrawn as error:
            say(str(error))
            raise Exit(NOT_AS_EXPECTED) from error


def _run_world(seed: int, *, json: bool) -> None:
    report = run_seed(seed)
    if json:
        put_json(report)
    else:
        for line in (*report.story, *answer_lines(report.answer)):
            put(line)
    for text in report.violations:
        say(f"seed {seed}: {text}")
    if not report.ok:
        raise Exit(NOT_AS_EXPECTED)


def answer_lines(answer: Answer) -> list[str]:
    """Returns the result of a simulation as lines of text: each decision, then the outcome."""
    lines = [
        f"{decided.at_s:>10.1f} s  incident {decided.incident}: {decided.rung}: {decided.why}"
        for decided in answer.decisions
    ]
    reason = f": {answer.reason}" if answer.reason else ""
    counters = (
        f"restarts: {answer.restarts}; reschedules caused by hardware: {answer.hardware_reschedules}; "
        f"isolated: {', '.join(answer.isolated) or 'none'}; goodput: {answer.goodput:.1%}"
    )
    return [*lines, f"{answer.outcome}{reason}", counters]
