"""Defines all routes of the API: path, role, query, body, result.

Server and OpenAPI document are built from it.
"""

from typing import Any, Literal

from msgspec import Struct

from holdfast.model.documents import actions
from holdfast.model.documents.actions import ActionResult, Role
from holdfast.model.documents.incidents import CheckRow, EvidenceRow, IncidentDocument
from holdfast.model.documents.jobs import HeatMap, JobDocument, JobsPage, LogPage, StepSeries
from holdfast.model.documents.nodes import DeviceRow, NodeDocument, NodesPage
from holdfast.model.documents.output import OutputFile, OutputPage
from holdfast.web.api import queries
from holdfast.web.api.queries import NoQuery, Query

PREFIX = "/api/v1"
Media = Literal["application/json", "text/markdown", "application/zstd", "text/event-stream"]


class Route(Struct, frozen=True, kw_only=True):
    """One route of the API. `name`: name of the operation and of its handler.

    `answer`: type of the result; None if the result is not JSON. `role`: role that a user needs; None means that the
    route is public. `is_action`: the route changes something, must be confirmed, and is audited. `by_token`: for
    programs, which send a token in the header instead of a cookie. `statuses`: error statuses besides the usual ones.
    """

    method: str
    path: str
    name: str
    summary: str
    role: Role | None = "viewer"
    query: type[Query] = NoQuery
    body: type[actions.Body] | None = None
    answer: Any = None
    media: Media = "application/json"
    is_action: bool = False
    by_token: bool = False
    statuses: tuple[int, ...] = ()


_JOB = (404, 410)
_ACTION = (404, 409, 410)


def _get(path: str, name: str, summary: str, answer: Any, query: type[Query] = NoQuery, **more: Any) -> Route:
    return Route(method="GET", path=path, name=name, summary=summary, answer=answer, query=query, **more)


def _act(
    path: str, name: str, summary: str, body: type[actions.Body], answer: Any = ActionResult, **more: Any
) -> Route:
    return Route(
        method="POST",
        path=path,
        name=name,
        summary=summary,
        body=body,
        answer=answer,
        role="operator",
        is_action=True,
        statuses=_ACTION,
        **more,
    )


_INCIDENT = "/jobs/{job}/incidents/{number}"

ROUTES: tuple[Route, ...] = (
    _get(
        "/jobs",
        "jobs",
        "Jobs, newest first; group=cause also returns groups of jobs with the same cause",
        JobsPage,
        queries.JobsQuery,
    ),
    _get("/jobs/{job}", "job", "One job", JobDocument, statuses=_JOB),
    _get(_INCIDENT, "incident", "One incident of a job", IncidentDocument, statuses=_JOB),
    _get(
        _INCIDENT + "/evidence/{evidence}",
        "evidence",
        "One piece of evidence, with the lines around it",
        EvidenceRow,
        statuses=_JOB,
    ),
    _get(
        _INCIDENT + "/bundle",
        "bundle",
        "The file with all evidence of an incident",
        None,
        media="application/zstd",
        statuses=_JOB,
    ),
    _get(
        _INCIDENT + "/markdown",
        "markdown",
        "The incident as Markdown, for a ticket",
        None,
        queries.MarkdownQuery,
        media="text/markdown",
        statuses=_JOB,
    ),
    _get(
        "/jobs/{job}/log",
        "log",
        "Log of the job: restarts, findings, verdicts, actions",
        LogPage,
        queries.LogQuery,
        statuses=_JOB,
    ),
    _get("/jobs/{job}/steps", "steps", "Step times", StepSeries, queries.StepsQuery, statuses=_JOB),
    _get(
        "/jobs/{job}/heat",
        "heat",
        "A metric by rank and time (heat map)",
        HeatMap,
        queries.HeatQuery,
        statuses=_JOB,
    ),
    _get("/jobs/{job}/files", "files", "Output files of the training", list[OutputFile], statuses=_JOB),
    _get(
        "/jobs/{job}/output",
        "output",
        "Lines of the training's output",
        OutputPage,
        queries.OutputQuery,
        statuses=_JOB,
    ),
    _get("/jobs/{job}/checks", "checks", "Results of node checks", list[CheckRow], statuses=_JOB),
    _get("/nodes", "nodes", "Nodes of the fleet", NodesPage, queries.NodesQuery),
    _get("/nodes/{node}", "node", "One node", NodeDocument, statuses=(404,)),
    _get("/devices/{serial}", "device", "One device, by its serial number", DeviceRow, statuses=(404,)),
    _get(
        "/events",
        "events",
        "Changes as server-sent events; resumes after Last-Event-ID",
        None,
        queries.EventsQuery,
        media="text/event-stream",
        statuses=_JOB,
    ),
    _get("/me", "me", "Who asks", actions.Me),
    _get(
        "/audit",
        "audit",
        "The newest lines of the audit log",
        list[actions.AuditLine],
        queries.AuditQuery,
        role="admin",
    ),
    _get("/health", "health", "Health of the server", actions.Health, role=None),
    Route(
        method="POST",
        path="/login",
        name="login",
        summary="Log in: start a session and set its cookie (HttpOnly)",
        role=None,
        body=actions.Login,
        answer=actions.Me,
        statuses=(401,),
    ),
    Route(
        method="POST",
        path="/alerts",
        name="alerts",
        summary="Record alerts of Alertmanager in the running jobs on their nodes",
        role="reporter",
        body=actions.AlertWebhook,
        answer=ActionResult,
        by_token=True,
    ),
    Route(
        method="POST", path="/logout", name="logout", summary="Log out: end the session", answer=ActionResult
    ),
    _act("/jobs/{job}/stop", "stop", "Stop a running job", actions.StopJob),
    _act(
        "/jobs/{job}/restart",
        "restart",
        "Restart a job: stop the current attempt and start the next",
        actions.RestartJob,
    ),
    _act("/jobs/{job}/exec", "exec", "Run a command on workers", actions.ExecCommand, actions.ExecResult),
    _act(
        _INCIDENT + "/acknowledge",
        "acknowledge",
        "Acknowledge an incident: a user is handling it",
        actions.Acknowledge,
    ),
    _act(_INCIDENT + "/correct", "correct", "Correct a verdict", actions.Correct),
    _act("/nodes/{node}/isolate", "isolate", "Isolate a node: jobs no longer use it", actions.NodeReason),
    _act("/nodes/{node}/release", "release", "Release an isolated node", actions.NodeReason),
)
BY_NAME = {route.name: route for route in ROUTES}
# Not under PREFIX: the address that a scraper asks by default.
METRICS = _get("/metrics", "metrics", "Metrics for Prometheus", None)
SHELL_PATH = "/jobs/{job}/shell"
LINK_PATH = "/link"  # of jobs elsewhere that report themselves
