"""Creates HTTP responses: documents as JSON with an ETag, and errors as documents."""

import hashlib

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from holdfast.model.documents.actions import ErrorDocument
from holdfast.model.documents.jobs import JobsPage
from holdfast.web.refusals import Refusal

JSON = "application/json"
_encode = msgspec.json.Encoder().encode


def document(value: object, if_none_match: str = "") -> Response:
    """Returns a response with the document, or with status 304 if the client has it already."""
    body = _encode(value)
    # The server's clock is no news.
    content = _encode(replace(value, as_of_s=0.0)) if isinstance(value, JobsPage) else body
    etag = f'W/"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache, private"}
    if _is_known(etag, if_none_match):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=JSON, headers=headers)


def action(value: object) -> Response:
    return Response(_encode(value), media_type=JSON, headers={"Cache-Control": "no-store"})


def refusal(error: Refusal) -> Response:
    return Response(
        _encode(error.document),
        status_code=error.status,
        media_type=JSON,
        headers={"Cache-Control": "no-store", **error.headers},
    )


def text_of(error: ErrorDocument) -> str:
    return error.error.text


def _is_known(etag: str, if_none_match: str) -> bool:
    known = {one.strip().removeprefix("W/") for one in if_none_match.split(",")}
    return etag.removeprefix("W/") in known or "*" in known
