"""Builds HTTP requests from calls and decodes responses, for both clients."""

from typing import TypeVar

import httpx

from holdfast.client.calls import Call
from holdfast.client.errors import NotReached, error_of

TIMEOUT_S = 35.0  # the server answers within 30 s
COMMAND_S = 60.0  # added to the time limit of a command
Answer = TypeVar("Answer")


def headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def built(
    client: httpx.Client | httpx.AsyncClient, call: Call[Answer], csrf: str, timeout_s: float
) -> httpx.Request:
    more = {}
    if call.content is not None:
        more = {"Content-Type": "application/json", "X-Holdfast-Confirm": "yes"}
        if csrf:
            more["X-Holdfast-CSRF"] = csrf
    return client.build_request(
        call.method,
        call.path.removeprefix("/"),
        params=list(call.query),
        content=call.content,
        headers=more,
        timeout=timeout_s,
    )


def answer(call: Call[Answer], response: httpx.Response) -> Answer:
    """Decodes a response. Raises ApiError."""
    if response.status_code != 200:
        raise error_of(response.status_code, response.content, response.headers.get("retry-after", ""))
    return call.decoded(response.content)


def not_reached(url: str, error: httpx.HTTPError) -> NotReached:
    reason = str(error) or type(error).__name__
    return NotReached(f"the server at {url} did not respond: {reason}")


def base(url: str) -> str:
    return url.rstrip("/") + "/"
