"""Defines the error responses of the server, with status and text."""

from collections.abc import Iterable, Mapping

from holdfast.model.documents.actions import ErrorDocument, ErrorText

NEAR_MAX = 5


class Refusal(Exception):
    """Error that ends a request with an error document. `text`: what failed, on what, and what to do."""

    def __init__(
        self,
        status: int,
        code: str,
        text: str,
        near: Iterable[str] = (),
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    ) -> None:
        super().__init__(text)
        self.status, self.code, self.text = status, code, text
        self.near = tuple(near)[:NEAR_MAX]
        self.headers = dict(headers)

    @property
    def document(self) -> ErrorDocument:
        return ErrorDocument(error=ErrorText(code=self.code, text=self.text, near=self.near))


def bad_request(text: str, near: Iterable[str] = ()) -> Refusal:
    return Refusal(400, "bad-request", text, near)


def not_logged_in(text: str) -> Refusal:
    return Refusal(401, "not-logged-in", text, headers=[("WWW-Authenticate", "Bearer")])


def not_allowed(text: str) -> Refusal:
    return Refusal(403, "not-allowed", text)


def not_there(text: str, near: Iterable[str] = ()) -> Refusal:
    return Refusal(404, "not-there", text, near)


def conflict(text: str) -> Refusal:
    return Refusal(409, "conflict", text)


def gone(text: str) -> Refusal:
    return Refusal(410, "gone", text)


def too_many(text: str, again_s: float) -> Refusal:
    return Refusal(
        429, "too-many-requests", text, headers=[("Retry-After", str(max(1, round(again_s + 0.5))))]
    )


def unavailable(text: str, again_s: float = 5.0) -> Refusal:
    return Refusal(503, "unavailable", text, headers=[("Retry-After", str(max(1, round(again_s))))])
