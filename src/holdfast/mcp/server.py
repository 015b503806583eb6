"""Implements the MCP server over stdin and stdout: defines its tools and reads their data."""

import functools
import json
from collections.abc import Callable
from typing import Annotated

from mcp.server import MCPServer
from mcp.types import ToolAnnotations
from pydantic import Field

from holdfast import __version__
from holdfast.archive.job import Reading, read
from holdfast.archive.output.read import read_output
from holdfast.core.replay.deciding import UnknownSetting, changed
from holdfast.jobs.record import RecordUnreadable, open_record
from holdfast.journal.jobdir import BadJobName, JobDir, NoSuchJob, StateDir
from holdfast.mcp import comparing, texts
from holdfast.mcp.what_if import what_if
from holdfast.model.documents.output import OutputWanted
from holdfast.model.documents.parts import JOB_STATES
from holdfast.model.policy import Policy

JOBS_MAX = 200  # the newest jobs, which the tools read
AROUND = 8  # lines on each side of a piece of evidence
INSTRUCTIONS = (
    "Holdfast restarts failed training runs and records why they stopped. Start with `jobs`, then "
    "`why`. Every claim carries the "
    "id of its evidence in brackets, such as [3.12]: fetch it with `evidence` before you rely on it. Everything is read-only."
)
READ_ONLY = ToolAnnotations(read_only_hint=True, open_world_hint=False)

Job = Annotated[str, Field(description="Name of the job, from `jobs`.")]
Incident = Annotated[int | None, Field(description="Number of the incident; default: the last one.")]


class Tools:
    """The tools of the MCP server.

    Each returns a text; a request that fails returns the reason as its text.
    """

    def __init__(self, state: StateDir) -> None:
        self._state = state

    def jobs(
        self,
        state: Annotated[
            str, Field(description=f"Only jobs in this state: {', '.join(JOB_STATES)}; empty: all.")
        ] = "",
    ) -> str:
        """Lists jobs, newest first: state, step, restarts, and one sentence about what happened."""
        readings = (self._try_read(job) for job in self._state.jobs()[:JOBS_MAX])
        rows = [reading.row() for reading in readings if reading is not None]
        return texts.jobs_text([row for row in rows if state in ("", row.state)])

    def why(self, job: Job, incident: Incident = None) -> str:
        """Explains why a job stopped or was interrupted: verdict, culprits, actions taken, advice, evidence ids."""
        reading = self._read(job)
        document = reading.incident(incident)
        if document is None:
            return texts.job_text(reading.document())
        return texts.why_text(document)

    def incidents(self, job: Job) -> str:
        """Summarizes one job with all its incidents."""
        return texts.job_text(self._read(job).document())

    def evidence(
        self, job: Job, id: Annotated[str, Field(description="Id of the evidence, such as 3.12.")]
    ) -> str:
        """Returns one piece of evidence with the lines around it."""
        reading = self._read(job)
        number = id.partition(".")[0]
        document = reading.incident(int(number)) if number.isdigit() else None
        row = next((one for one in document.evidence if one.id == id), None) if document else None
        if row is None:
            return f"There is no evidence {id!r} in job {job}: `why` lists valid ids."
        around = None
        if row.place is not None and row.place.offset is not None:
            wanted = OutputWanted(
                file=row.place.file, offset=row.place.offset, direction="around", limit=2 * AROUND
            )
            around = read_output(reading.job, wanted)
        return texts.evidence_text(row, around)

    def log(
        self,
        job: Job,
        pattern: Annotated[
            str, Field(description="Only lines that match this regular expression; empty: the last lines.")
        ] = "",
        rank: Annotated[int | None, Field(description="Only output of this rank.", ge=0)] = None,
    ) -> str:
        """Reads the training's output: the last lines, or the first lines that match a pattern."""
        ranks = () if rank is None else (rank,)
        wanted = OutputWanted(pattern=pattern, ranks=ranks, limit=20)
        page = read_output(self._read(job).job, wanted)
        if not page.lines:
            return f"Job {job} has no matching output."
        return texts.fitted(
            f"[{line.place.file}@{line.place.offset}] {texts.quoted(line.text)}" for line in page.lines
        )

    def compare(self, job: Job) -> str:
        """Compares a job with the last successful run of the same script."""
        reading = self._read(job)
        readings = (self._try_read(one) for one in self._state.jobs()[:JOBS_MAX])
        good = comparing.last_good(reading.row(), [one.row() for one in readings if one is not None])
        if good is None:
            script = comparing.script_of(reading.row().command)
            return f"No earlier job ran {script or 'the same command'} successfully."
        here, there = reading.document(), self._read(good.name).document()
        return texts.compared_text(here, there, comparing.differences(here, there))

    def what_if(
        self,
        job: Job,
        settings: Annotated[
            str,
            Field(
                description='JSON object of policy settings, such as {"max_restarts": 8, "hang_restart": true}.'
            ),
        ],
        incident: Incident = None,
    ) -> str:
        """Replays an incident with other settings, and returns the action that would be taken."""
        reading = self._read(job)
        story = reading.story_of(incident)
        if story is None:
            return f"Job {job} had no {'incident' if incident is None else f'incident {incident}'}."
        policy = reading.policy
        record = open_record(reading.job)
        try:
            rows = record.reader.read_raw()
            answer = what_if(rows, policy, _changed(policy, settings), story.number)
        except UnknownSetting as error:
            return str(error)
        finally:
            record.close()
        was, would_be = (
            f"{one.rung}: {texts.quoted(one.why)}" if one is not None else "no action"
            for one in (answer.was, answer.would_be)
        )
        head = f"incident {story.number} of {job}: {texts.quoted(story.found)}"
        return texts.fitted([head, f"was: {was}", f"with {texts.quoted(settings)}: {would_be}"])

    def _read(self, name: str) -> Reading:
        """Reads a job. Raises ValueError with a message for the caller."""
        try:
            return read(self._state.job(name))
        except (NoSuchJob, BadJobName, RecordUnreadable) as error:
            raise ValueError(f"{error}; `jobs` lists all jobs") from error

    def _try_read(self, job: JobDir) -> Reading | None:
        try:
            return read(job)
        except RecordUnreadable:
            return None


def _changed(policy: Policy, settings: str) -> Policy:
    """Returns the policy with other settings. Raises UnknownSetting."""
    try:
        wanted = json.loads(settings)
    except ValueError as error:
        raise UnknownSetting(f"the settings are not valid JSON: {error}") from error
    if not isinstance(wanted, dict):
        raise UnknownSetting("the settings must be a JSON object of names and values")
    return changed(policy, wanted)


def server(state: StateDir) -> MCPServer:
    made: MCPServer = MCPServer(
        "holdfast", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    tools = Tools(state)
    every: tuple[Callable[..., str], ...] = (
        tools.jobs,
        tools.why,
        tools.incidents,
        tools.evidence,
        tools.log,
        tools.compare,
        tools.what_if,
    )
    for tool in every:
        made.tool(annotations=READ_ONLY, structured_output=False)(_explaining(tool))
    return made


def _explaining(tool: Callable[..., str]) -> Callable[..., str]:
    """Wraps a tool so that an expected error becomes the text of its result."""

    @functools.wraps(tool)
    def answer(*args: object, **kwargs: object) -> str:
        try:
            return tool(*args, **kwargs)
        except (ValueError, OSError) as error:
            return texts.fitted([texts.quoted(str(error), 1_000)])

    return answer


def serve(state: StateDir) -> None:
    """Runs the server until stdin closes."""
    server(state).run("stdio")
