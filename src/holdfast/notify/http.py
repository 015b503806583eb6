"""Sends HTTP requests to notification services with the standard library: time limits, proxies, and what a
response status means.
"""

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from msgspec import Struct

from holdfast import __version__
from holdfast.notify.sender import Rejected, TryLater

TIMEOUT_S = 10.0
WHOLE_S = 30.0  # for an answer that comes in drops
ANSWER_BYTES_MAX = 64 << 10
WORDS_MAX = 200
AGENT = f"holdfast/{__version__}"
TRY_LATER_STATUS = frozenset({408, 425, 429})
# Seconds until the limit is lifted. The second is Feishu's: https://open.feishu.cn/document/server-docs/api-call-guide/frequency-control
PAUSE_HEADERS = ("retry-after", "x-ogw-ratelimit-reset")


class Answer(Struct, frozen=True, kw_only=True):
    """An HTTP response. `body`: its JSON object, empty if it is none. `text`: its text, shortened.

    `after_s`: the pause in seconds that the service requests.
    """

    status: int
    body: dict[str, Any]
    text: str
    after_s: float | None = None

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Handler that refuses redirects: a redirected POST becomes a GET, which may return 200 without having
    been read.
    """

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


class _Readable(Protocol):
    """Interface of a response that can be read in pieces."""

    def read1(self, size: int = -1, /) -> bytes: ...


_opener = urllib.request.build_opener(_NoRedirects)


def post_json(
    url: str,
    document: object,
    *,
    headers: Mapping[str, str] | None = None,
    method: str = "POST",
    now_s: float,
) -> Answer:
    """Sends a JSON document and returns the response, whatever its status. Raises TryLater and Rejected.

    Proxies are those of the environment.
    """
    body = json.dumps(document, ensure_ascii=False).encode()
    found = {"Content-Type": "application/json; charset=utf-8", **(headers or {})}
    return post(url, body, headers=found, method=method, now_s=now_s)


def post(url: str, body: bytes, *, headers: Mapping[str, str], method: str = "POST", now_s: float) -> Answer:
    """Sends a request and returns the response, whatever its status. Raises TryLater and Rejected."""
    if not url.startswith(("https://", "http://")):
        raise Rejected("the URL does not begin with https:// or http://")
    try:
        request = urllib.request.Request(
            url, data=body, method=method, headers={"User-Agent": AGENT, **headers}
        )
        with _opener.open(request, timeout=TIMEOUT_S) as response:
            return _answer(response.status, _read(response), None)
    except urllib.error.HTTPError as error:
        with error:
            return _answer(error.code, _read(error), _after_s(dict(error.headers.items()), now_s))
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise Rejected(
                f"the receiver's certificate is not valid: {error.reason.verify_message}"
            ) from error
        raise TryLater(f"the receiver cannot be reached: {error.reason}") from error
    except (
        OSError,
        ValueError,
        http.client.HTTPException,
    ) as error:  # a connection that broke, an answer that is none
        raise TryLater(f"the receiver did not respond: {error or type(error).__name__}") from error


def good(answer: Answer) -> Answer:
    """Returns the response if its HTTP status means success. Raises TryLater and Rejected."""
    if answer.is_good:
        return answer
    why = f"the receiver returned status {answer.status}: {answer.text[:WORDS_MAX] or 'no text'}"
    if answer.status >= 500 or answer.status in TRY_LATER_STATUS:
        raise TryLater(why, answer.after_s)
    raise Rejected(why)


def _read(response: _Readable) -> bytes:
    """Reads the body of a response. Raises OSError if it takes too long."""
    until_s = time.monotonic() + WHOLE_S
    found = b""
    while len(found) < ANSWER_BYTES_MAX:
        piece = response.read1(ANSWER_BYTES_MAX - len(found))
        if not piece:
            break
        found += piece
        if time.monotonic() > until_s:
            raise OSError(f"the response took more than {WHOLE_S:g} s")
    return found


def _answer(status: int, raw: bytes, after_s: float | None) -> Answer:
    text = raw.decode("utf-8", "replace")
    try:
        body = json.loads(text)
    except ValueError:
        body = {}
    whole = body if isinstance(body, dict) else {}
    return Answer(status=status, body=whole, text=" ".join(text.split()), after_s=after_s)


def _after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    small = {name.lower(): value for name, value in headers.items()}
    found = (_seconds(small.get(name), now_s) for name in PAUSE_HEADERS)
    return next((one for one in found if one is not None), None)


def _seconds(value: str | None, now_s: float) -> float | None:
    """Parses a Retry-After header into seconds from now; it may be a date. source: RFC 9110, 10.2.3"""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now_s)
    except (TypeError, ValueError):
        return None
