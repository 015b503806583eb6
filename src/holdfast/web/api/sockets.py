"""Handles the WebSockets of the API: a shell on a worker, and the connection over which a job on another host streams
its journal (uplink).
"""

import asyncio
from functools import partial
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from holdfast.model.documents.actions import AuditLine, ShellEnded, ShellSize
from holdfast.web.actions.audit import AuditUnwritable
from holdfast.web.actions.doing import by
from holdfast.web.actions.shell import TYPED_BYTES_MAX, Shell, Typing, sender
from holdfast.web.api import requests
from holdfast.web.api.queries import ShellQuery
from holdfast.web.refusals import not_allowed, unavailable
from holdfast.web.server_parts import Caller, ServerParts

FULL_S = 0.05
CHECK_S = 5.0  # a token that is revoked ends its shells
_encode = msgspec.json.Encoder().encode
_SIZE = msgspec.json.Decoder(ShellSize)


async def shell(parts: ServerParts, socket: WebSocket) -> None:
    """Runs a shell over a WebSocket. Raises Refusal before the connection is accepted."""
    seen = socket.state.seen
    asking = Caller(who=parts.access.check(socket.state.who, "operator"), seen=seen)
    at = requests.path_parts(socket.path_params)
    query: ShellQuery = requests.query(ShellQuery, socket)
    if parts.shells >= parts.settings.limits.shells:
        raise unavailable(f"{parts.shells} shells are open already: close one of them first")
    await parts.acts.run(lambda: parts.data.place(at["job"]))
    await parts.acts.run(partial(_note, parts, asking, at["job"], "asked"))
    await socket.accept()
    parts.shells += 1
    try:
        await _bridge(parts, socket, asking, at["job"], query)
    finally:
        parts.shells -= 1
        await parts.acts.run(partial(_note, parts, asking, at["job"], "done"))


async def link(parts: ServerParts, socket: WebSocket) -> None:
    """Receives the journal that a job on another host streams over a WebSocket. Raises Refusal before the connection
    is accepted.
    """
    who = parts.access.check(socket.state.who, "reporter")
    if who.role == "viewer":
        raise not_allowed(
            f"streaming a job needs a token with the role reporter, and {who.name} is {who.role}"
        )
    if parts.links >= parts.settings.limits.links:
        raise unavailable(f"{parts.links} jobs already stream to this server", 30.0)
    await socket.accept()
    parts.links += 1
    try:
        await parts.data.uplinks.serve(socket)
        await socket.close()
    except (WebSocketDisconnect, RuntimeError, KeyError):
        return  # the job's host is gone, or says what is no message of an uplink
    finally:
        parts.links -= 1


async def _bridge(parts: ServerParts, socket: WebSocket, asking: Caller, job: str, query: ShellQuery) -> None:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[ShellEnded] = loop.create_future()

    def ended(end: ShellEnded) -> None:
        loop.call_soon_threadsafe(lambda: None if over.done() else over.set_result(end))

    give = sender(loop, socket.send_bytes)
    one = Shell(lambda: parts.data.line(job), query, by(asking), give, ended)
    one.start()
    typing = asyncio.create_task(_type(socket, one))
    either: set[asyncio.Future[Any]] = {over, typing}
    try:
        while not over.done() and not typing.done():
            await asyncio.wait(either, timeout=CHECK_S, return_when=asyncio.FIRST_COMPLETED)
            if not parts.access.stands(asking.who):
                one.leave()
        if over.done():
            await socket.send_text(_encode(over.result()).decode())
            await socket.close()
    except (WebSocketDisconnect, RuntimeError):
        return  # the browser is gone
    finally:
        typing.cancel()
        one.leave()


async def _type(socket: WebSocket, one: Shell) -> None:
    """Passes input from the browser to the shell until the browser disconnects."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        for what in _typed(message):
            while not one.type(what):
                await asyncio.sleep(FULL_S)  # what waits is bounded: the browser waits, too


def _typed(message: Any) -> list[Typing]:
    raw = message.get("bytes")
    if raw is not None:
        return [raw[start : start + TYPED_BYTES_MAX] for start in range(0, len(raw), TYPED_BYTES_MAX)]
    try:
        return [_SIZE.decode(message.get("text") or "").resize]
    except msgspec.MsgspecError:
        return []


def _note(parts: ServerParts, asking: Caller, job: str, result: str) -> None:
    line = AuditLine(
        at_s=0.0,
        who=asking.who.name,
        role=asking.who.role,
        address=asking.seen.address,
        action="shell",
        target=job,
        result=result,
    )
    try:
        parts.audit.write(line)
    except AuditUnwritable as error:
        raise unavailable(f"{error}: no shell is opened") from error
