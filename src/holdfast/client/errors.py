"""What a call to the server may raise, with the server's own text."""

import msgspec

from holdfast.model.documents.actions import ErrorDocument, ErrorText

TEXT_CHARACTERS_MAX = 500


class ApiError(Exception):
    """The server refused. `status`: of HTTP. `code`: a word for programs. `near`: names that may have been meant."""

    def __init__(self, status: int, error: ErrorText, retry_after_s: float | None = None) -> None:
        super().__init__(error.text)
        self.status, self.code, self.text, self.near = status, error.code, error.text, error.near
        self.retry_after_s = retry_after_s


class NotLoggedIn(ApiError):
    """There is no token, or it is unknown, revoked or expired."""


class NotAllowed(ApiError):
    """The token's role does not allow it."""


class NotThere(ApiError):
    """There is no such job, incident, node, file, ... or it cannot be read any more."""


class Conflict(ApiError):
    """It cannot be done now: the job has ended, or its controller does not answer."""


class TooManyRequests(ApiError):
    """`retry_after_s`: when to go on."""


class NotReached(Exception):
    """The server did not answer. One line: where, and why."""


_KINDS: dict[int, type[ApiError]] = {
    401: NotLoggedIn,
    403: NotAllowed,
    404: NotThere,
    409: Conflict,
    410: NotThere,
    429: TooManyRequests,
}


def error_of(status: int, body: bytes, retry_after: str) -> ApiError:
    try:
        error = msgspec.json.decode(body, type=ErrorDocument).error
    except msgspec.MsgspecError:  # a proxy's own page
        text = body[:TEXT_CHARACTERS_MAX].decode("utf-8", "replace").strip()
        error = ErrorText(code="unknown", text=f"HTTP {status}" + (f": {text}" if text else ""))
    again_s = float(retry_after) if retry_after.isdigit() else None
    return _KINDS.get(status, ApiError)(status, error, again_s)
