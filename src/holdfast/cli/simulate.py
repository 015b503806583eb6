"""`holdfast simulate`: runs the real decisions over a virtual cluster, from a scenario file or a seed."""

from pathlib import Path
from typing import Annotated

from holdfast.cli.line.flags import App, Argument, BadParameter, Exit, Option
from holdfast.cli.line.output import put, put_json, say
from holdfast.sim.run import Answer, check_expect, run_file
from holdfast.sim.scenario import ScenarioRefused, read
from holdfast.sim.seeds import run_seed

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
        Option("--seed", help="Random seed; without a scenario: simulate a random world of this seed."),
    ] = None,
    json: Annotated[bool, Option("--json", help="The answer as one JSON document.")] = False,
) -> None:
    """Runs a scenario, or a random world. Exits with 1 if an expectation does not hold."""
    if scenario is not None:
        _run_scenario(scenario, seed or 0, json=json)
    elif seed is not None:
        _run_world(seed, json=json)
    else:
        raise BadParameter("give a SCENARIO.yaml, or --seed N for a random world", param_hint="SCENARIO.yaml")


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
        for line in told(answer):
            put(line)
    wrong = check_expect(answer, expect)
    for text in wrong:
        say(f"not as expected: {text}")
    if wrong:
        raise Exit(NOT_AS_EXPECTED)


def _run_world(seed: int, *, json: bool) -> None:
    report = run_seed(seed)
    if json:
        put_json(report)
    else:
        for line in (*report.story, *told(report.answer)):
            put(line)
    for text in report.violations:
        say(f"seed {seed}: {text}")
    if not report.ok:
        raise Exit(NOT_AS_EXPECTED)


def told(answer: Answer) -> list[str]:
    """The result for people: each decision, then the outcome."""
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
