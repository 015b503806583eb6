"""Builds the server's ASGI application: API routes, page, event stream and shell, all behind the request checks of
`guard`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import ASGIApp

from holdfast.model.documents.live import Change
from holdfast.model.monitoring.metrics import AnySample, Sample
from holdfast.web.actions.alerts import Alerts
from holdfast.web.api import acts, answers, openapi, reads, requests, sockets
from holdfast.web.api.metrics import ServerMetrics
from holdfast.web.api.queries import Query
from holdfast.web.api.route_table import LINK_PATH, METRICS, PREFIX, ROUTES, SHELL_PATH
from holdfast.web.api.route_table import Route as Declared
from holdfast.web.guard import Guard
from holdfast.web.live.pump import pump
from holdfast.web.page import pages
from holdfast.web.page.assets import Assets
from holdfast.web.server_parts import Caller, ServerParts, caller

GZIP_BYTES_MIN = 1_000

Handler = Callable[[Request, Caller, dict[str, Any], Any, Any], Awaitable[Response]]


def application(parts: ServerParts) -> ASGIApp:
    """Returns the ASGI application, for use in one event loop."""
    alerts = Alerts(parts.data, parts.audit)
    metrics = ServerMetrics(parts.data, lambda: _own_samples(parts, alerts), lambda: parts.faults)
    table = _handlers(parts, alerts)
    routes: list[BaseRoute] = [_api_route(parts, declared, table[declared.name]) for declared in ROUTES]
    document = openapi.encoded()
    routes.append(Route(METRICS.path, partial(_metrics, parts, metrics)))
    routes.append(Route("/openapi.json", partial(_openapi, document)))
    routes.append(WebSocketRoute(PREFIX + SHELL_PATH, partial(sockets.shell, parts)))
    routes.append(WebSocketRoute(PREFIX + LINK_PATH, partial(sockets.link, parts)))
    routes += _page_routes(parts)
    router = Router(routes, redirect_slashes=False, lifespan=partial(_lifespan, parts))
    zipped = GZipMiddleware(router, minimum_size=GZIP_BYTES_MIN, compresslevel=5)
    return Guard(zipped, parts.settings, parts.access, parts.failed)


def _api_route(parts: ServerParts, declared: Declared, handler: Handler) -> Route:
    async def endpoint(request: Request) -> Response:
        asking = caller(parts, request, declared)
        at = requests.path_parts(request.path_params)
        query: Query = requests.query(declared.query, request)
        body = None
        if declared.body is not None:
            content_type = request.headers.get("content-type", "")
            body = requests.decoded(await request.body(), declared.body, content_type)
        return await handler(request, asking, at, query, body)

    return Route(PREFIX + declared.path, endpoint, methods=[declared.method], name=declared.name)


def _handlers(parts: ServerParts, alerts: Alerts) -> dict[str, Handler]:
    """Returns the handlers of the API routes by name."""

    def reading(name: str) -> Handler:
        return lambda request, asking, at, query, body: reads.read(parts, name, request, at, query)

    def acting(name: str) -> Handler:
        return lambda request, asking, at, query, body: acts.act(parts, name, asking, at, body)

    async def me(request: Request, asking: Caller, at: dict[str, Any], query: Any, body: Any) -> Response:
        return answers.action(reads.me(asking.who))

    return {
        **{name: reading(name) for name in reads.READS},
        "markdown": lambda request, asking, at, query, body: reads.markdown(parts, request, at, query),
        "bundle": lambda request, asking, at, query, body: reads.bundle(parts, at),
        "events": lambda request, asking, at, query, body: reads.events(parts, request, asking, query),
        **{name: acting(name) for name in acts.ACTIONS},
        "alerts": lambda request, asking, at, query, body: acts.record_alerts(parts, alerts, asking, body),
        "login": lambda request, asking, at, query, body: acts.log_in(parts, asking, body),
        "logout": lambda request, asking, at, query, body: acts.log_out(parts, request, asking),
        "audit": lambda request, asking, at, query, body: acts.audit(parts, query.limit),
        "health": lambda request, asking, at, query, body: reads.health(parts, asking),
        "me": me,
    }


def _page_routes(parts: ServerParts) -> list[BaseRoute]:
    assets = Assets()

    def viewing(view: pages.View) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await pages.page(parts, assets, view, request)

        return endpoint

    async def asset(request: Request) -> Response:
        return pages.asset(assets, request)

    return [
        Route("/assets/{version}/{path:path}", asset),
        *(Route(view.path, viewing(view), name=f"page-{view.name}") for view in pages.VIEWS),
    ]


def _own_samples(parts: ServerParts, alerts: Alerts) -> list[AnySample]:
    return [Sample("holdfast_server_viewers", (), parts.feed.viewers), *alerts.samples()]


async def _metrics(parts: ServerParts, metrics: ServerMetrics, request: Request) -> Response:
    caller(parts, request, METRICS)
    accept = request.headers.get("accept", "")
    found = await parts.reads.run(lambda: metrics.answer(accept))
    return Response(found.body, media_type=found.content_type, headers={"Cache-Control": "no-store"})


async def _openapi(document: bytes, request: Request) -> Response:
    return Response(document, media_type=answers.JSON, headers={"Cache-Control": "no-cache"})


@asynccontextmanager
async def _lifespan(parts: ServerParts, app: object) -> AsyncIterator[None]:
    async def changes() -> Sequence[Change]:
        parts.data.watch(parts.feed.jobs)
        return await parts.changes.run(parts.data.changes)

    task = asyncio.create_task(pump(parts.feed, changes))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        parts.close()
