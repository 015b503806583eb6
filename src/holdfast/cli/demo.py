"""Implements `holdfast demo`: runs a small training, injects four faults, and prints how each was handled.

The same training runs twice: alone without faults, for its time and loss, then under Holdfast with the
faults. Every number in the table comes from the two runs and the job's journal.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from holdfast.cli.line.flags import App, Exit, Option
from holdfast.cli.line.output import say
from holdfast.controller.loop import decisions
from holdfast.core.job.story import IncidentStory, Story, Summary
from holdfast.core.plurals import counted
from holdfast.journal.jobdir import StateDir
from holdfast.journal.store import open_reader
from holdfast.model.policy import Policy
from holdfast.settings.read import SettingsRefused, state_root

TRAIN = Path(__file__).parents[1] / "demo" / "train.py"
RANKS = 4
STEPS = 1200
STEP_S = 0.02
FAULTS = ("283:1:kill", "547:2:exception", "811:3:stop", "1075:1:deadlock")
NAMES = {
    "kill": "kill -9 of rank {rank}",
    "exception": "exception in rank {rank}",
    "stop": "SIGSTOP of rank {rank}",
    "deadlock": "deadlock in rank {rank}'s own code",
}
LOSS_TOLERANCE = 1e-5  # float32 sums in the same order: the two runs differ by rounding at most
UNDISTURBED_LIMIT_S = 600  # far beyond half a minute: a machine may be busy
LAUNCHER_ENDS_S = 60  # it ends its ranks first
WIDTH = 132  # where there is no terminal to ask

REFUSED = 2

app = App()


@app.command()
def demo(
    keep: Annotated[bool, Option("--keep", help="Keep the demo's files.")] = False,
    state_dir: Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")] = None,
) -> None:
    """Trains a small model on this machine, injects faults, and shows how Holdfast handles them. Needs no GPU."""
    try:
        root = state_root(state_dir, os.environ)
    except SettingsRefused as error:
        say(str(error))
        raise Exit(REFUSED) from error
    raise Exit(run_demo(keep, str(root)))


class Result(Struct, frozen=True):
    """The result file that the demo's training writes: last step and loss."""

    step: int
    loss: float


class Struck(Struct, frozen=True):
    """A fault that the demo injected, and its time, as the training recorded it."""

    fault: str
    time: float


def run_demo(keep: bool, state_dir: str) -> int:
    """Runs the demo. Returns 0 if the training survived all faults with the same loss as without faults."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    if importlib.util.find_spec("torch") is None:
        say("the demo needs PyTorch: pip install 'holdfast[demo]'")
        return REFUSED
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        return _demo(console, folder, Path(state_dir) if keep else folder / "state")
    finally:
        if keep:
            console.print(f"kept: {folder}; the job is in: {state_dir}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _demo(console: Console, folder: Path, state_dir: Path) -> int:
    console.rule(f"1. {RANKS} ranks, {STEPS} steps, without Holdfast and without faults")
    plain, plain_s = _undisturbed(folder / "undisturbed")
    if plain is None:
        console.print(
            "the training fails on this machine even without Holdfast and without faults, or takes longer than "
            f"{UNDISTURBED_LIMIT_S} s; its output is above"
        )
        return 1
    console.print(f"loss {plain.loss:.6f} after {plain_s:.1f} s")
    console.rule(f"2. the same training under Holdfast, with {len(FAULTS)} injected faults")
    work = folder / "supervised"
    work.mkdir()
    begun_s = time.monotonic()
    code = subprocess.run(_supervised(work, state_dir), check=False).returncode
    took_s = time.monotonic() - begun_s
    result = _result(work)
    summary = _summary(state_dir)
    console.rule("3. what happened")
    lost = _steps_lost(work)
    console.print(_table(summary, _struck(work), lost))
    same = result is not None and abs(result.loss - plain.loss) <= LOSS_TOLERANCE
    console.print(_verdict(code, result, plain, same))
    console.print(
        f"{took_s:.1f} s with {len(FAULTS)} faults, {plain_s:.1f} s without any: "
        f"goodput {plain_s / took_s:.0%}; {counted(sum(lost), 'step was', 'steps were')} repeated"
    )
    return 0 if code == 0 and same else 1


def _command(folder: Path, *more: str) -> list[str]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    steps = ["--folder", str(folder), "--steps", str(STEPS), "--step-s", str(STEP_S)]
    return [*launch, str(TRAIN), *steps, *more]


def _supervised(folder: Path, state_dir: Path) -> list[str]:
    faults = [word for fault in FAULTS for word in ("--fault", fault)]
    flags = ["--policy", "holdfast", "--state-dir", str(state_dir)]
    return [sys.executable, "-m", "holdfast", "run", *flags, "--", *_command(folder, *faults)]


def _undisturbed(folder: Path) -> tuple[Result | None, float]:
    folder.mkdir()
    begun_s = time.monotonic()
    with subprocess.Popen(_command(folder), stdout=subprocess.DEVNULL) as launcher:
        try:
            with suppress(subprocess.TimeoutExpired):
                launcher.wait(UNDISTURBED_LIMIT_S)
        finally:
            _end(launcher)
    return _result(folder), time.monotonic() - begun_s


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """Terminates the launcher with its ranks if it still runs; killed at once, it would leave them
    running.
    """
    try:
        launcher.terminate()
        launcher.wait(LAUNCHER_ENDS_S)
    except subprocess.TimeoutExpired:
        launcher.kill()


def _result(folder: Path) -> Result | None:
    try:
        return msgspec.json.decode((folder / "result.json").read_bytes(), type=Result)
    except (OSError, msgspec.MsgspecError):
        return None


def _struck(folder: Path) -> dict[str, float]:
    """Returns the time of each injected fault, by the training's clock."""
    files = [msgspec.json.decode(path.read_bytes(), type=Struck) for path in folder.glob("fault-*")]
    return {one.fault: one.time for one in files}


def _steps_lost(folder: Path) -> list[int]:
    """Returns for each fault, in order, the step at which it was injected minus the step from which the
    training resumed.
    """
    try:
        resumed = [int(line) for line in (folder / "resumed").read_text().split()]
    except OSError:
        return []
    return [int(fault.split(":")[0]) - step for fault, step in zip(FAULTS, resumed, strict=False)]


def _summary(state_dir: Path) -> Summary:
    job = StateDir(state_dir).jobs()[0]
    reader = open_reader(job.journal_path)
    try:
        policy = msgspec.json.decode(reader.meta("policy") or b"{}", type=Policy)
        story = Story(policy)
        for event, decision in decisions(reader.read_raw(), policy):
            story.hear(event, decision)
        return story.summary()
    finally:
        reader.close()


def _table(summary: Summary, struck: dict[str, float], lost: list[int]) -> Table:
    table = Table(show_lines=True)
    for heading in ("fault", "found\nafter", "training\nagain after", "steps\nlost", "rung"):
        table.add_column(heading, no_wrap=True)
    table.add_column("verdict", ratio=1)
    for index, fault in enumerate(FAULTS):
        _, rank, kind = fault.split(":")
        name = NAMES[kind].format(rank=rank)
        at_s = struck.get(fault)
        incident = _incident_of(summary, at_s)
        steps = str(lost[index]) if index < len(lost) else ""
        table.add_row(name, *_cells(incident, at_s, steps))
    return table


def _incident_of(summary: Summary, struck_s: float | None) -> IncidentStory | None:
    """Returns the first incident found after a fault; None if there is none."""
    later = [one for one in summary.incidents if struck_s is not None and one.found_at_s >= struck_s - 0.5]
    return min(later, key=lambda one: one.found_at_s, default=None)


def _cells(incident: IncidentStory | None, struck_s: float | None, steps_lost: str) -> tuple[str, ...]:
    if incident is None or struck_s is None:
        return ("not found" if struck_s else "did not happen", "", "", "", "")
    verdict = incident.verdict
    rungs = ", ".join(rung.rung for rung in incident.rungs)
    found_s = incident.found_at_s - struck_s
    again = f"{found_s + incident.took_s:.1f} s" if incident.took_s is not None else "never"
    title = f"{verdict.category}: {verdict.title}" if verdict else "none"
    return (f"{found_s:.2f} s", again, steps_lost, rungs, title)


def _verdict(code: int, result: Result | None, plain: Result, same: bool) -> str:
    if code == 0 and same and result is not None:
        return f"[bold]success: step {result.step}, loss {result.loss:.6f}, as without faults[/bold]"
    found = json.dumps(msgspec.to_builtins(result)) if result else "nothing"
    return (
        f"[bold]unexpected result: exit code {code}, result {found}, loss without faults {plain.loss}[/bold]"
    )
