"""Posts JSON to a receiver with the standard library: time limits, proxies, and what a status means for a delivery."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from msgspec import Struct

from holdfast import __version__
from holdfast.notify.sender import Rejected, TryLater

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 64 << 10
AGENT = f"holdfast/{__version__}"
TRY_LATER_STATUS = frozenset({408, 425, 429})


class Answer(Struct, frozen=True, kw_only=True):
    """`body`: of JSON; an empty object where it is none. `text`: as it came, cut."""

    status: int
    body: dict[str, Any]
    text: str


def post_json(
    url: str,
    document: object,
    *,
    headers: Mapping[str, str] | None = None,
    method: str = "POST",
    now_s: float,
) -> Answer:
    """Proxies are those of the environment. raises: TryLater, Rejected"""
    body = json.dumps(document, ensure_ascii=False).encode()
    return post(
        url,
        body,
        headers={"Content-Type": "application/json; charset=utf-8", **(headers or {})},
        method=method,
        now_s=now_s,
    )


def post(url: str, body: bytes, *, headers: Mapping[str, str], method: str = "POST", now_s: float) -> Answer:
    """raises: TryLater, Rejected"""
    if not url.startswith(("https://", "http://")):
        raise Rejected("the address does not begin with https:// or http://")
    request = urllib.request.Request(url, data=body, method=method, headers={"User-Agent": AGENT, **headers})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return _answer(response.status, response.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        with error:
            answer = _answer(error.code, error.read(ANSWER_BYTES_MAX))
        why = f"it answered {error.code}: {answer.text[:200] or error.reason}"
        if error.code >= 500 or error.code in TRY_LATER_STATUS:
            raise TryLater(why, _retry_after_s(error.headers.get("Retry-After"), now_s)) from error
        raise Rejected(why) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise Rejected(f"its certificate is not valid: {error.reason.verify_message}") from error
        raise TryLater(f"it cannot be reached: {error.reason}") from error
    except (OSError, ValueError) as error:  # a connection that broke, an answer that is none
        raise TryLater(f"it did not answer: {error}") from error


def _answer(status: int, raw: bytes) -> Answer:
    text = raw.decode("utf-8", "replace")
    try:
        body = json.loads(text)
    except ValueError:
        body = {}
    return Answer(status=status, body=body if isinstance(body, dict) else {}, text=" ".join(text.split()))


def _retry_after_s(value: str | None, now_s: float) -> float | None:
    """Seconds from now; a date is allowed, too. source: RFC 9110, 10.2.3"""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now_s)
    except (TypeError, ValueError):
        return None
