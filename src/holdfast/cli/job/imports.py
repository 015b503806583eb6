"""Implements `holdfast imports`: reports how long the imports of a job's script take, by package, as its last zygote
measured them. Only reads.
"""

import os
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from holdfast.agent.standby.imports_known import Known, LeftOut, file_of, load
from holdfast.cli.line.flags import App, Argument, Exit, Option
from holdfast.cli.line.languages import put_plain
from holdfast.cli.line.output import put_json, say
from holdfast.jobs.record import RecordUnreadable, named_job
from holdfast.settings.read import state_root
from holdfast.supervise.start import NO_RECORD, recorded
from holdfast.views.lines import Line, for_terminal

FAILED = 1
LISTED_MAX = 40

app = App()


class PackageCost(Struct, frozen=True):
    """Time that the imports of one package take. `modules`: number of its imports; a module that another one imported
    counts as part of that one.
    """

    package: str
    seconds: float
    modules: int


class ImportsReport(Struct, frozen=True):
    job: str
    total_s: float
    packages: tuple[PackageCost, ...]
    left_out: dict[str, LeftOut]


@app.command()
def imports(
    job: Annotated[str | None, Argument("[JOB]", help="Name of the job; default: the newest.")] = None,
    json: Annotated[bool, Option("--json", help="One JSON document instead.")] = False,
    state_dir: Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")] = None,
) -> None:
    """Reports how long the imports of a job's script take, the longest first, and which modules are not preloaded."""
    try:
        named = named_job(job, state_dir)
        settings, cwd, _ = recorded(named)
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error
    except NO_RECORD as error:
        say(f"how {named.name} was started cannot be read from its journal: {error!r}")
        raise Exit(FAILED) from error
    known = load(file_of(Path(state_root(state_dir, os.environ)), settings.command, cwd))
    if not known.cost_s:
        say(
            f"no imports of {named.name} have been measured: run it to its first step at least, with restarts allowed"
            " (--max-restarts) and neither --no-zygote nor --no-standby"
        )
        raise Exit(FAILED)
    found = report_of(named.name, known)
    if json:
        put_json(found)
        return
    for text in for_terminal(Line(one) for one in lines(found)):
        put_plain(text)


def report_of(job: str, known: Known) -> ImportsReport:
    """Returns the measured import times of a job, summed by package."""
    by_package: dict[str, list[float]] = {}
    for name, seconds in known.cost_s.items():
        by_package.setdefault(name.partition(".")[0], []).append(seconds)
    costs = [PackageCost(name, round(sum(times), 4), len(times)) for name, times in by_package.items()]
    costs.sort(key=lambda one: (-one.seconds, one.package))
    total_s = round(sum(one.seconds for one in costs), 4)
    return ImportsReport(job, total_s, tuple(costs), known.left_out)


def lines(found: ImportsReport) -> list[str]:
    """Returns the report on imports as lines of text."""
    text = [
        f"imports of {found.job}: {found.total_s:.2f} s, made once by its zygote, in the order of the script"
    ]
    for one in found.packages[:LISTED_MAX]:
        text.append(f"{one.seconds:9.3f} s  {one.package}")
    rest = found.packages[LISTED_MAX:]
    if rest:
        text.append(f"{sum(one.seconds for one in rest):9.3f} s  {len(rest)} more")
    for name, left in sorted(found.left_out.items()):
        text.append(f"not preloaded: {name} {left.version}: {left.why}")
    return text
