"""Sends alerts to Alertmanager. Each call tries once; the caller retries.

Alertmanager identifies an alert by its labels, so sending it twice does not duplicate it.

source: Alertmanager, api/v2/openapi.yaml, POST /api/v2/alerts
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import msgspec

from holdfast.model.monitoring.alerts import Alert

TIMEOUT_S = 5.0
PATH = "/api/v2/alerts"
WORDS_MAX = 300
RETRY_AFTER_S_MAX = 3_600.0


class AlertmanagerUnavailable(Exception):
    """Raised when Alertmanager did not accept the alerts. The message is one line.

    `retry_after_s`: the delay that Alertmanager requests; None if not stated. `is_for_good`: a retry would
    fail too.
    """

    def __init__(self, text: str, *, retry_after_s: float | None = None, is_for_good: bool = False) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
        self.is_for_good = is_for_good


def post(url: str, alerts: Sequence[Alert], timeout_s: float = TIMEOUT_S) -> None:
    """Posts alerts to Alertmanager. Raises AlertmanagerUnavailable."""
    body = msgspec.json.encode([_document(one) for one in alerts])
    request = Request(url + PATH, data=body, headers={"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=timeout_s) as answer:
            answer.read(WORDS_MAX)
    except HTTPError as error:
        with error:
            words = error.read(WORDS_MAX).decode("utf-8", "replace").strip()
        raise AlertmanagerUnavailable(
            f"{url} returned {error.code} {error.reason}: {words}",
            retry_after_s=_retry_after_s(error.headers.get("Retry-After", "")),
            is_for_good=error.code in (400, 401, 403, 404, 405, 422),
        ) from error
    except (URLError, OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise AlertmanagerUnavailable(f"{url} cannot be reached: {why or type(error).__name__}") from error


def _document(one: Alert) -> dict[str, Any]:
    found: dict[str, Any] = {
        "labels": one.labels,
        "annotations": one.annotations,
        "startsAt": _stamp(one.starts_s),
        "endsAt": _stamp(one.ends_s),
    }
    return {**found, "generatorURL": one.url} if one.url else found


def _stamp(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")


def _retry_after_s(text: str) -> float | None:
    return min(float(text), RETRY_AFTER_S_MAX) if text.isdecimal() else None
