"""Defines the errors that an API call raises, with the server's message."""

import msgspec

from holdfast.model.documents.actions import ErrorDocument, ErrorText

TEXT_CHARACTERS_MAX = 500


class ApiError(Exception):
    """Raised when the server rejected the call. `status`: HTTP status. `code`: the server's error code.

    `near`: valid names that are similar to an invalid one.
    """

    def __init__(self, status: int, error: ErrorText, retry_after_s: float | None = None) -> None:
        super().__init__(error.text)
        self.status, self.code, self.text, self.near = status, error.code, error.text, error.near
        self.retry_after_s = retry_after_s


class NotLoggedIn(ApiError):
    """Error: the token is missing, unknown, revoked or expired."""


class NotAllowed(ApiError):
    """Error: the token's role does not allow the call."""


class NotThere(ApiError):
    """Error: the job, incident, node or file does not exist, or cannot be read any more."""


class Conflict(ApiError):
    """Error: the action is not possible now: the job has ended, or its controller does not respond."""


class TooManyRequests(ApiError):
    """Error: the rate limit is reached. `retry_after_s`: seconds until the next call is allowed."""


class NotReached(Exception):
    """Error: the server did not respond. The message is one line: the URL and the reason."""


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
    except msgspec.MsgspecError:  # the error page of a proxy
        text = body[:TEXT_CHARACTERS_MAX].decode("utf-8", "replace").strip()
        error = ErrorText(code="unknown", text=f"HTTP {status}" + (f": {text}" if text else ""))
    again_s = float(retry_after) if retry_after.isdigit() else None
    return _KINDS.get(status, ApiError)(status, error, again_s)
