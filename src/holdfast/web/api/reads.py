"""Implements the handlers of API routes that change something, and of those for logging in and out."""

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from holdfast import __version__
from holdfast.model.documents.actions import Health, Me
from holdfast.web.access.identity import Identity
from holdfast.web.api import answers
from holdfast.web.api.queries import EventsQuery
from holdfast.web.data import Data
from holdfast.web.live.stream import EventStream
from holdfast.web.live.tails import TailWanted
from holdfast.web.refusals import bad_request
from holdfast.web.server_parts import Caller, ServerParts

# From the data, the parts of the path and the query to the document.
Read = Callable[[Data, dict[str, Any], Any], object]

READS: dict[str, Read] = {
    "jobs": lambda data, at, query: data.jobs(query),
    "job": lambda data, at, query: data.job(at["job"]),
    "incident": lambda data, at, query: data.incident(at["job"], at["number"]),
    "evidence": lambda data, at, query: data.evidence(at["job"], at["number"], at["evidence"]),
    "log": lambda data, at, query: data.log(at["job"], query),
    "steps": lambda data, at, query: data.steps(at["job"], query),
    "heat": lambda data, at, query: data.heat(at["job"], query),
    "files": lambda data, at, query: data.files(at["job"]),
    "output": lambda data, at, query: data.output(at["job"], query),
    "checks": lambda data, at, query: data.checks(at["job"]),
    "nodes": lambda data, at, query: data.nodes(query),
    "node": lambda data, at, query: data.node(at["node"]),
    "device": lambda data, at, query: data.device(at["serial"]),
}


async def read(parts: ServerParts, name: str, request: Request, at: dict[str, Any], query: Any) -> Response:
    found = await parts.reads.run(lambda: READS[name](parts.data, at, query))
    return answers.document(found, request.headers.get("if-none-match", ""))


async def markdown(parts: ServerParts, request: Request, at: dict[str, Any], query: Any) -> Response:
    text = await parts.reads.run(lambda: parts.data.markdown(at["job"], at["number"], query.lang))
    return Response(text, media_type="text/markdown", headers={"Cache-Control": "no-cache, private"})


async def bundle(parts: ServerParts, at: dict[str, Any]) -> Response:
    path = await parts.reads.run(lambda: parts.data.bundle(at["job"], at["number"]))
    name = f"{at['job']}-incident-{at['number']}.tar.zst".replace("~", "-")
    return FileResponse(path, media_type="application/zstd", filename=name)


async def events(parts: ServerParts, request: Request, asking: Caller, query: EventsQuery) -> Response:
    tail = None
    if query.worker or query.rank or query.output:
        if not query.job:
            raise bad_request("worker, rank and output need job=, the job whose output to send")
        tail = TailWanted(query.job, query.worker, query.rank, query.attempt)
    last = request.headers.get("last-event-id", "") or query.last_event_id
    viewer, missed = parts.feed.join(query.job, last)

    def leave() -> None:
        parts.feed.leave(viewer)
        if tail is not None:
            parts.tails.leave(tail, viewer)

    try:
        if query.job:  # what comes after this answer began is sent, nothing is missed in between
            await parts.reads.run(lambda: parts.data.follow(query.job))
        if tail is not None:
            await parts.tails.join(tail, viewer)
    except BaseException:
        leave()
        raise
    return EventStream(viewer, missed, lambda: parts.access.stands(asking.who), leave)


def me(who: Identity) -> Me:
    return Me(name=who.name, role=who.role, by=who.by, csrf=who.csrf, expires_at_s=who.expires_at_s)


async def health(parts: ServerParts, asking: Caller) -> Response:
    """Returns the health of the server: with details for known users; for others, such as a load balancer, only that
    the server runs.
    """
    jobs, warnings = await parts.reads.run(parts.data.health)
    is_known = bool(asking.who.name)
    found = Health(
        status="degraded" if warnings else "ok",
        version=__version__,
        jobs=jobs if is_known else 0,
        viewers=parts.feed.viewers if is_known else 0,
        warnings=warnings if is_known else (),
    )
    return answers.action(found)
