"""Implements the asyncio client of the server's API: the methods of `Client` as coroutines."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from holdfast.client import calls
from holdfast.client.calls import Call, Parameter, Some
from holdfast.client.errors import ApiError
from holdfast.client.events import RECONNECT_S, RECONNECT_S_MAX, SILENCE_S, Live, Parser
from holdfast.client.requests import COMMAND_S, TIMEOUT_S, answer, base, built, headers, not_reached
from holdfast.model.documents.actions import (
    ActionResult,
    AlertWebhook,
    AuditLine,
    ExecCommand,
    ExecResult,
    Health,
    Me,
)
from holdfast.model.documents.incidents import CheckRow, EvidenceRow, IncidentDocument
from holdfast.model.documents.jobs import HeatMap, JobDocument, JobRow, JobsPage, LogPage, StepSeries
from holdfast.model.documents.live import StreamEnded
from holdfast.model.documents.nodes import DeviceRow, NodeDocument, NodesPage
from holdfast.model.documents.output import OutputFile, OutputPage
from holdfast.model.documents.parts import JobState

Answer = TypeVar("Answer")


class AsyncClient:
    """An asyncio client of one server.

    `url`: of the server, including its sub-path. `token`: empty for a server of the same user on this machine. Every
    method raises ApiError with the server's message, and NotReached. Use it in one event loop.
    """

    def __init__(
        self, url: str, token: str = "", *, timeout_s: float = TIMEOUT_S, **httpx_options: Any
    ) -> None:
        """Creates a client. `httpx_options`: such as `verify` or `proxy`."""
        self.url = base(url)
        self._timeout_s, self._has_token = timeout_s, bool(token)
        self._csrf: str | None = None
        self._http = httpx.AsyncClient(base_url=self.url, headers=headers(token), **httpx_options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    # Jobs -----------------------------------------------------------------------------------------------------

    async def jobs(
        self,
        *,
        state: Iterable[JobState] = (),
        category: str = "",
        search: str = "",
        label: Iterable[str] = (),
        since_s: float | None = None,
        group: str = "",
        cursor: str = "",
        limit: int = 100,
    ) -> JobsPage:
        """Returns a page of jobs, newest first.

        `label`: "key:value". `group`: "cause". `cursor`: `next` of the previous page.
        """
        return await self._call(
            calls.jobs(
                state=state,
                category=category,
                search=search,
                label=label,
                since_s=since_s,
                group=group,
                cursor=cursor,
                limit=limit,
            )
        )

    async def all_jobs(self, **filters: Any) -> AsyncIterator[JobRow]:
        """Yields all jobs that match the filters of `jobs`, page by page."""
        cursor = ""
        while True:
            page = await self.jobs(cursor=cursor, **filters)
            for row in page.jobs:
                yield row
            cursor = page.next
            if not cursor:
                return

    async def job(self, job: str) -> JobDocument:
        return await self._call(calls.job(job))

    async def incident(self, job: str, number: int) -> IncidentDocument:
        return await self._call(calls.incident(job, number))

    async def evidence(self, job: str, evidence: str) -> EvidenceRow:
        """Returns one piece of evidence. `evidence`: its id, such as "3.12"."""
        return await self._call(calls.evidence(job, evidence))

    async def bundle(self, job: str, number: int) -> bytes:
        """Returns the evidence bundle of an incident."""
        return await self._call(calls.bundle(job, number))

    async def markdown(self, job: str, number: int, lang: str = "en") -> str:
        return (await self._call(calls.markdown(job, number, lang))).decode()

    async def log(self, job: str, *, after: int = 0, limit: int = 200, kind: Iterable[str] = ()) -> LogPage:
        return await self._call(calls.log(job, after=after, limit=limit, kind=kind))

    async def steps(
        self, job: str, *, from_s: float | None = None, to_s: float | None = None, points: int = 800
    ) -> StepSeries:
        return await self._call(calls.steps(job, from_s=from_s, to_s=to_s, points=points))

    async def heat(
        self,
        job: str,
        *,
        metric: str = "utilisation",
        from_s: float | None = None,
        to_s: float | None = None,
        columns: int = 240,
    ) -> HeatMap:
        return await self._call(calls.heat(job, metric=metric, from_s=from_s, to_s=to_s, columns=columns))

    async def files(self, job: str) -> list[OutputFile]:
        return await self._call(calls.files(job))

    async def output(
        self,
        job: str,
        *,
        file: str = "",
        worker: Iterable[int] = (),
        rank: Iterable[int] = (),
        attempt: int | None = None,
        at_s: float | None = None,
        line: int | None = None,
        pattern: str = "",
        cursor: str = "",
        direction: str = "",
        limit: int = 200,
    ) -> OutputPage:
        """Returns lines of a job's output: the last ones, or those around a position. `line`: an offset in bytes in
        the single `file`.
        """
        return await self._call(
            calls.output(
                job,
                file=file,
                worker=worker,
                rank=rank,
                attempt=attempt,
                at_s=at_s,
                line=line,
                pattern=pattern,
                cursor=cursor,
                direction=direction,
                limit=limit,
            )
        )

    async def checks(self, job: str) -> list[CheckRow]:
        return await self._call(calls.checks(job))

    # Nodes, the server ---------------------------------------------------------------------------------------------

    async def nodes(
        self, *, search: str = "", isolated: bool | None = None, cursor: str = "", limit: int = 200
    ) -> NodesPage:
        return await self._call(calls.nodes(search=search, isolated=isolated, cursor=cursor, limit=limit))

    async def node(self, node: str) -> NodeDocument:
        return await self._call(calls.node(node))

    async def device(self, serial: str) -> DeviceRow:
        return await self._call(calls.device(serial))

    async def me(self) -> Me:
        return await self._call(calls.me())

    async def health(self) -> Health:
        return await self._call(calls.health())

    async def audit(self, limit: int = 100) -> list[AuditLine]:
        return await self._call(calls.audit(limit))

    # Actions: recorded in the journal and the audit log ---------------------------------------------------------

    async def stop(self, job: str, *, reason: str = "", force: bool = False) -> ActionResult:
        return await self._call(calls.stop(job, reason, force=force))

    async def restart(self, job: str, *, reason: str = "") -> ActionResult:
        return await self._call(calls.restart(job, reason))

    async def acknowledge(self, job: str, number: int, text: str = "") -> ActionResult:
        return await self._call(calls.acknowledge(job, number, text))

    async def correct(self, job: str, number: int, category: str, text: str = "") -> ActionResult:
        return await self._call(calls.correct(job, number, category, text))

    async def alerts(self, webhook: AlertWebhook) -> ActionResult:
        """Records alerts in the running jobs on their nodes, as Alertmanager's webhook does. Needs a token."""
        return await self._call(calls.alerts(webhook))

    async def isolate(self, node: str, reason: str) -> ActionResult:
        return await self._call(calls.isolate(node, reason))

    async def release(self, node: str, reason: str) -> ActionResult:
        return await self._call(calls.release(node, reason))

    async def exec(
        self,
        job: str,
        command: Iterable[str],
        *,
        workers: Iterable[int] | None = None,
        limit_s: float = 30.0,
        loose: bool = False,
    ) -> ExecResult:
        """Runs a command on workers (None: on all), and groups equal results."""
        chosen = None if workers is None else tuple(workers)
        body = ExecCommand(command=tuple(command), workers=chosen, limit_s=limit_s, loose=loose)
        return await self._call(calls.exec_(job, body), limit_s + COMMAND_S)

    # Events ----------------------------------------------------------------------------------------------------------

    async def events(
        self,
        job: str = "",
        *,
        worker: Some = None,
        rank: Some = None,
        output: bool = False,
        reconnect: bool = True,
    ) -> AsyncIterator[Live]:
        """Yields changes until the caller stops. Reconnects at the last event, so that no event is lost.

        `worker`, `rank`: also yields lines of their output; `output`: of all ranks.
        """
        parser, wait_s = Parser(), RECONNECT_S
        while True:
            try:
                async for event in self._events(parser, job, worker=worker, rank=rank, output=output or None):
                    wait_s = RECONNECT_S
                    yield event
                    if isinstance(event, StreamEnded):
                        break
            except httpx.HTTPError as error:
                if not reconnect:
                    raise not_reached(self.url, error) from error
            if not reconnect:
                return
            await asyncio.sleep(wait_s)
            wait_s = min(RECONNECT_S_MAX, wait_s * 2)

    async def _events(self, parser: Parser, job: str, **wanted: Parameter) -> AsyncIterator[Live]:
        parameters = calls.pairs({"job": job, **wanted})
        path = (calls.PREFIX + "/events").removeprefix("/")
        last = {"Last-Event-ID": parser.last_id} if parser.last_id else {}
        timeout = httpx.Timeout(self._timeout_s, read=SILENCE_S)
        async with self._http.stream(
            "GET", path, params=list(parameters), headers=last, timeout=timeout
        ) as response:
            if response.status_code != 200:
                await response.aread()
                answer(calls.me(), response)
            async for line in response.aiter_lines():
                event = parser.feed(line)
                if event is not None:
                    yield event

    # Inside ----------------------------------------------------------------------------------------------------------

    async def _call(self, call: Call[Answer], timeout_s: float | None = None) -> Answer:
        try:
            csrf = await self._csrf_for(call)
            response = await self._http.send(built(self._http, call, csrf, timeout_s or self._timeout_s))
        except httpx.HTTPError as error:
            raise not_reached(self.url, error) from error
        try:
            return answer(call, response)
        except ApiError as error:
            if error.status == 403:
                self._csrf = None  # a restarted server has a new one
            raise

    async def _csrf_for(self, call: Call[Answer]) -> str:
        """Returns the CSRF token. Needed without an API token, if the connection itself identifies the user."""
        if call.body is None or self._has_token:
            return ""
        if self._csrf is None:
            self._csrf = (await self.me()).csrf
        return self._csrf
