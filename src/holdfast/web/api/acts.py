"""Handles the API routes that change something, and those for logging in and out."""

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.model.documents.actions import ActionResult, AlertWebhook, AuditLine, ExecCommand, Login, Me
from holdfast.web.access.access import cookie_name
from holdfast.web.actions import command, jobs, nodes
from holdfast.web.actions.alerts import Alerts
from holdfast.web.actions.audit import AuditUnwritable
from holdfast.web.actions.doing import by, doing
from holdfast.web.api import answers
from holdfast.web.refusals import unavailable
from holdfast.web.server_parts import Caller, ServerParts

Do = Callable[[ServerParts, Caller, dict[str, Any], Any], object]

ACTIONS: dict[str, Do] = {
    "stop": lambda parts, who, at, body: jobs.stop(parts.data, at["job"], body, by(who)),
    "restart": lambda parts, who, at, body: jobs.restart(parts.data, at["job"], body, by(who)),
    "acknowledge": lambda parts, who, at, body: jobs.acknowledge(
        parts.data, at["job"], at["number"], body, by(who), parts.clock()
    ),
    "correct": lambda parts, who, at, body: jobs.correct(
        parts.data, at["job"], at["number"], body, by(who), parts.clock()
    ),
    "isolate": lambda parts, who, at, body: nodes.isolate(
        parts.settings.fleet_dir, at["node"], body.reason, by(who), parts.clock()
    ),
    "release": lambda parts, who, at, body: nodes.release(
        parts.settings.fleet_dir, at["node"], body.reason, by(who), parts.clock()
    ),
    "exec": lambda parts, who, at, body: command.run(parts.data, at["job"], body, by(who)),
}


async def act(parts: ServerParts, name: str, asking: Caller, at: dict[str, Any], body: Any) -> Response:
    pool = parts.commands if name == "exec" else parts.acts
    do = partial(ACTIONS[name], parts, asking, at, body)
    target = "/".join(str(value) for value in at.values())
    text = " ".join(body.command) if isinstance(body, ExecCommand) else getattr(body, "reason", "") or ""
    return answers.action(await pool.run(partial(doing, parts.audit, asking, name, target, text, do)))


async def log_in(parts: ServerParts, asking: Caller, body: Login) -> Response:
    cookie, session, token = parts.access.log_in(body.token, asking.seen)
    await parts.acts.run(partial(_note, parts, asking, token.name, token.role, "login"))
    me = Me(
        name=token.name, role=token.role, by="cookie", csrf=session.csrf, expires_at_s=session.expires_at_s
    )
    answer = answers.action(me)
    answer.set_cookie(
        cookie_name(asking.seen.host),
        cookie,
        max_age=max(1, int(session.expires_at_s - parts.clock())),
        path=asking.seen.prefix or "/",
        secure=asking.seen.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


async def log_out(parts: ServerParts, request: Request, asking: Caller) -> Response:
    name = cookie_name(asking.seen.host)
    cookie = request.cookies.get(name, "")
    parts.access.sessions.end(cookie)
    answer = answers.action(
        ActionResult(
            done=bool(cookie), text="logged out" if cookie else "there was no browser session to end"
        )
    )
    answer.delete_cookie(name, path=asking.seen.prefix or "/", httponly=True, samesite="strict")
    return answer


async def record_alerts(
    parts: ServerParts, alerts: Alerts, asking: Caller, webhook: AlertWebhook
) -> Response:
    return answers.action(await parts.hooks.run(partial(alerts.receive, webhook, asking)))


async def audit(parts: ServerParts, limit: int) -> Response:
    found = await parts.reads.run(lambda: parts.audit.newest(limit))
    return answers.action(found)


def _note(parts: ServerParts, asking: Caller, name: str, role: Any, action: str) -> None:
    try:
        parts.audit.write(
            AuditLine(
                at_s=0.0, who=name, role=role, address=asking.seen.address, action=action, result="done"
            )
        )
    except AuditUnwritable as error:
        raise unavailable(f"{error}: no session was started") from error
