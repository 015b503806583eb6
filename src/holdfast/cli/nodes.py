"""Implements `holdfast nodes`: shows the nodes of the fleet over all jobs; isolates and releases them."""

import os
import pwd
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Annotated, TypeVar

from msgspec.structs import asdict

from holdfast.cli.job.named import opened
from holdfast.cli.line.flags import App, Argument, BadParameter, Context, Exit, Option
from holdfast.cli.line.languages import Lang, chosen_language, put_plain
from holdfast.cli.line.output import put, put_json, say
from holdfast.core.nodes.lemon_evidence import WINDOW_DAYS, observed
from holdfast.core.nodes.lemons import Judged, judge
from holdfast.journal.nodes.book import NodeBook
from holdfast.journal.nodes.file import NodeBookUnusable
from holdfast.model.nodes.book import (
    AnyLine,
    CheckLine,
    DeviceLine,
    IncidentLine,
    Isolation,
    ReleaseLine,
    RepairLine,
)
from holdfast.settings.read import SettingsRefused, fleet_folder, fleet_root
from holdfast.views.lines import Line, for_terminal
from holdfast.views.nodes import lemon_list, node_list, node_page, node_rows

FAILED, REFUSED = 1, 2
DAY_S = 86_400.0
_Answer = TypeVar("_Answer")

app = App()

FleetDir = Annotated[
    str | None,
    Option("--fleet-dir", metavar="DIR", help="Folder of the node book. [HOLDFAST_FLEET_DIR]"),
]
StateFolder = Annotated[
    str | None,
    Option(
        "--state-dir", metavar="DIR", help="Folder of all jobs; the node book is in its subfolder `fleet`."
    ),
]
OfJob = Annotated[
    str | None,
    Option("--job", metavar="JOB", help="The node book that this job writes, also of a job on a cluster."),
]
# The same before a subcommand: for `holdfast nodes` alone, which lists.
EarlyFleetDir = Annotated[str | None, Option("--fleet-dir", metavar="DIR", hidden=True)]
EarlyStateDir = Annotated[str | None, Option("--state-dir", metavar="DIR", hidden=True)]
EarlyJob = Annotated[str | None, Option("--job", metavar="JOB", hidden=True)]
Days = Annotated[
    float, Option("--days", metavar="N", min=1, max=120, help="Number of days in which failures count.")
]
Json = Annotated[bool, Option("--json", help="One JSON document instead.")]
All = Annotated[bool, Option("--all", help="Also list nodes without findings.")]
Node = Annotated[str, Argument("NODE")]


def _complete_isolated(incomplete: str) -> list[str]:
    return [name for name in _names(isolated=True) if name.startswith(incomplete)]


def _complete_known(incomplete: str) -> list[str]:
    return [name for name in _names(isolated=False) if name.startswith(incomplete)]


KnownNode = Annotated[str, Argument("NODE", completed=_complete_known)]
IsolatedNode = Annotated[str, Argument("NODE", completed=_complete_isolated)]


@app.callback(invoke_without_command=True)
def nodes(
    context: Context,
    fleet_dir: EarlyFleetDir = None,
    state_dir: EarlyStateDir = None,
    job: EarlyJob = None,
) -> None:
    """Lists nodes over all jobs. Subcommands: list, show, isolate, release, lemons."""
    if context.invoked_subcommand is None:
        list_(fleet_dir=fleet_dir, state_dir=state_dir, job=job)
        return
    given = (("--fleet-dir DIR", fleet_dir), ("--state-dir DIR", state_dir), ("--job JOB", job))
    for flag, value in given:
        if value is not None:
            raise BadParameter(
                f"give it after the subcommand: holdfast nodes {context.invoked_subcommand} {flag}",
                param_hint=flag.partition(" ")[0],
            )


@app.command("list")
def list_(
    every: All = False,
    days: Days = WINDOW_DAYS,
    fleet_dir: FleetDir = None,
    state_dir: StateFolder = None,
    job: OfJob = None,
    lang: Lang = None,
    json: Json = False,
) -> None:
    """Lists all nodes: isolation, lemon score, failures, hours of use, last event."""
    language = chosen_language(lang, os.environ, json=json)
    book, now_s = _reader(fleet_dir, state_dir, job), time.time()

    def read() -> tuple[Judged, dict[str, Isolation], dict[str, float], list[AnyLine]]:
        lines = book.lines()
        return _judged(book, lines, now_s, days), book.isolated(), book.nodes(), lines

    judged, isolated, known, lines = _asked(read)
    rows = node_rows(known, isolated, judged, lines)
    if json:
        found = [{**asdict(row), "isolation": isolated.get(row.node)} for row in rows]
        put_json({"folder": str(book.folder), "days": days, "nodes": found})
        return
    _put(node_list(rows, language, now_s=now_s, days=days, folder=str(book.folder), every=every))


@app.command()
def show(
    node: KnownNode,
    days: Days = WINDOW_DAYS,
    fleet_dir: FleetDir = None,
    state_dir: StateFolder = None,
    job: OfJob = None,
    lang: Lang = None,
    json: Json = False,
) -> None:
    """Shows one node, or one device by its serial number: isolation, lemon score with its factors,
    history.
    """
    language = chosen_language(lang, os.environ, json=json)
    book, now_s = _reader(fleet_dir, state_dir, job), time.time()

    def read() -> tuple[Judged, dict[str, Isolation], bool, list[AnyLine], list[DeviceLine]]:
        lines = book.lines()
        devices = [one for one in book.devices().values() if node in (one.node, one.serial)]
        own = _with_devices(book.lines(node), lines, devices)
        ran = {(one.run, one.attempt) for one in book.attempts() if node in one.nodes}
        shared = [line for line in lines if _is_shared(line, node, ran)]
        history = sorted([*own, *shared], key=lambda line: line.at_s)
        known = node in book.nodes() or node in book.isolated() or bool(own)
        return _judged(book, lines, now_s, days), book.isolated(), known, history, devices

    judged, isolated, known, history, devices = _asked(read)
    if not known:
        say(f"there is no node or device {node} in {book.folder}: see holdfast nodes list --all")
        raise Exit(REFUSED)
    if json:
        score = next((one for one in judged.scores if one.node == node), None)
        put_json(
            {
                "node": node,
                "isolation": isolated.get(node),
                "lemon": score,
                "fleet": judged.learned,
                "devices": devices,
                "lines": history,
            }
        )
        return
    _put(node_page(node, isolated.get(node), judged, history, language, devices))


@app.command()
def lemons(
    every: All = False,
    days: Days = WINDOW_DAYS,
    fleet_dir: FleetDir = None,
    state_dir: StateFolder = None,
    job: OfJob = None,
    lang: Lang = None,
    json: Json = False,
) -> None:
    """Lists lemons: nodes that fail many times as often as the rest of the fleet."""
    language = chosen_language(lang, os.environ, json=json)
    book, now_s = _reader(fleet_dir, state_dir, job), time.time()
    judged = _asked(lambda: _judged(book, book.lines(since_s=now_s - days * DAY_S), now_s, days))
    if json:
        put_json({"folder": str(book.folder), "days": days, "fleet": judged.learned, "nodes": judged.scores})
        return
    _put(lemon_list(judged, language, every=every))


@app.command()
def isolate(
    node: KnownNode,
    reason: Annotated[str, Option("--reason", metavar="TEXT", help="Reason; it is recorded and shown.")],
    fleet_dir: FleetDir = None,
    state_dir: StateFolder = None,
    job: OfJob = None,
    json: Json = False,
) -> None:
    """Isolates a node: no job uses it until it is released."""
    if not reason.strip():
        raise BadParameter("a reason is required; other users will see it", param_hint="--reason")
    book = _writer(fleet_dir, state_dir, job)
    wanted = Isolation(node=_name(node), since_s=time.time(), reason=reason.strip(), by=_who())

    def write() -> tuple[bool, Isolation]:
        before = book.isolated().get(node)
        book.isolate(wanted)
        return before is None, book.isolated()[node]

    new, isolation = _asked(write)
    _say_notes(book)
    if json:
        put_json({"isolation": isolation, "changed": new})
    elif new:
        put(f"{node} is isolated: jobs will not place workers on it from now on")
    else:
        put(f"{node} is already isolated, by {isolation.by}: {isolation.reason}")


@app.command()
def release(
    node: IsolatedNode,
    reason: Annotated[
        str | None, Option("--reason", metavar="TEXT", help="Reason for the release; it is recorded.")
    ] = None,
    repaired: Annotated[
        str | None,
        Option(
            "--repaired",
            metavar="TEXT",
            help="What was repaired or replaced: earlier failures no longer count.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        Option(
            "--device",
            metavar="SERIAL",
            help="With --repaired: serial number of the repaired device.",
        ),
    ] = None,
    fleet_dir: FleetDir = None,
    state_dir: StateFolder = None,
    job: OfJob = None,
    json: Json = False,
) -> None:
    """Releases an isolated node. Needs a reason, a repair, or a check that the node has passed since."""
    if device and not repaired:
        raise BadParameter(
            "--device needs --repaired TEXT: what was repaired or replaced", param_hint="--device"
        )
    book, now_s, by = _writer(fleet_dir, state_dir, job), time.time(), _who()
    isolation = _asked(book.isolated).get(node)
    if isolation is None:
        say(f"{node} is not isolated in {book.folder}: see holdfast nodes list")
        raise Exit(REFUSED)
    why = (reason or repaired or "").strip()
    if not why:
        passed = _passed_since(_asked(lambda: book.lines(node, kinds=("check",))), isolation.since_s)
        if passed is None:
            say(
                f"{node} is isolated for {isolation.reason}: give the reason why it can be used again (--reason, --repaired), "
                "or run a check first that it passes"
            )
            raise Exit(REFUSED)
        why = f"it has passed its check: {passed.text}"
    if repaired:
        repair = RepairLine(
            at_s=now_s, node=node, serial=(device or "").strip(), text=repaired.strip(), by=by
        )
        _asked(lambda: book.note([(f"repair/{node}/{now_s!r}", repair)]))
    changed = _asked(lambda: book.release(ReleaseLine(at_s=now_s, node=node, reason=why, by=by)))
    _say_notes(book)
    if json:
        put_json({"node": node, "released": changed, "reason": why, "by": by})
    else:
        put(f"{node} may be used again: {why}")


def _with_devices(
    own: list[AnyLine], lines: Iterable[AnyLine], devices: Iterable[DeviceLine]
) -> list[AnyLine]:
    """Returns the node's entries, and those that its devices have from nodes in which they were before."""
    here = {one.serial: one.node for one in devices}
    brought = [line for line in lines if line.serial in here and line.node != here[line.serial]]
    return [*own, *(line for line in brought if line not in own)]


def _is_shared(line: AnyLine, node: str, ran: Collection[tuple[str, int]]) -> bool:
    """Returns True for an incident of an attempt on several nodes that this node may have caused."""
    return (
        isinstance(line, IncidentLine)
        and line.weighs == "shared"
        and (line.run, line.attempt) in ran
        and (not line.suspects or node in line.suspects)
    )


def _passed_since(lines: Iterable[AnyLine], since_s: float) -> CheckLine | None:
    """Returns the last check if the node passed it after `since_s`; otherwise None."""
    checks = [line for line in lines if isinstance(line, CheckLine) and line.at_s > since_s]
    last_s = max((line.at_s for line in checks), default=0.0)
    last = [line for line in checks if line.at_s == last_s]
    return last[0] if last and all(line.status == "pass" for line in last) else None


def _judged(book: NodeBook, lines: list[AnyLine], now_s: float, days: float) -> Judged:
    since_s = now_s - days * DAY_S
    return judge(observed(lines, book.attempts(since_s), since_s=since_s))


# The book ---------------------------------------------------------------------------------------------------


def _reader(fleet_dir: str | None, state_dir: str | None, job: str | None) -> NodeBook:
    return _book(fleet_dir, state_dir, job, read_only=True)


def _writer(fleet_dir: str | None, state_dir: str | None, job: str | None) -> NodeBook:
    return _book(fleet_dir, state_dir, job, read_only=False)


def _book(fleet_dir: str | None, state_dir: str | None, job: str | None, *, read_only: bool) -> NodeBook:
    """Opens the node book, of one job if it is named. Raises JobElsewhere for a job that may be on a cluster."""
    if job is not None and fleet_dir is not None:
        raise BadParameter(
            "--job already decides which folder of node records is read: leave --fleet-dir out",
            param_hint="--fleet-dir",
        )
    try:
        folder = fleet_root(fleet_dir, state_dir, os.environ) if job is None else _fleet_of(job, state_dir)
    except SettingsRefused as error:
        say(str(error))
        raise Exit(REFUSED) from error
    return NodeBook(folder, read_only=read_only)


def _fleet_of(job: str, state_dir: str | None) -> Path:
    """Returns the folder of the node book that a job writes."""
    record = opened(job, state_dir)
    settings = record.settings
    record.close()
    if settings is None:
        say(f"the record of job {record.job.name} does not have its settings: give --fleet-dir DIR instead")
        raise Exit(FAILED)
    return fleet_folder(settings)


def _asked(ask: Callable[[], _Answer]) -> _Answer:
    try:
        return ask()
    except NodeBookUnusable as error:
        say(str(error))
        raise Exit(FAILED) from error


def _names(*, isolated: bool) -> list[str]:
    """Returns node names for shell completion; none if the node book cannot be read."""
    try:
        book = NodeBook(fleet_root(None, None, os.environ), busy_s=0.2, read_only=True)
        return sorted(book.isolated() if isolated else book.nodes())
    except (SettingsRefused, NodeBookUnusable):
        return []


def _say_notes(book: NodeBook) -> None:
    for note in book.notes:
        say(note)


def _put(lines: Iterable[Line]) -> None:
    for text in for_terminal(lines):
        put_plain(text)


def _name(node: str) -> str:
    if not node.strip() or any(letter.isspace() or not letter.isprintable() for letter in node):
        raise BadParameter(f"{node!r} cannot be the name of a node", param_hint="NODE")
    return node


def _who() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"
