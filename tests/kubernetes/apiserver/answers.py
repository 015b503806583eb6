"""Builds the answers of an API server: objects, lists, Status bodies, and the errors that end a request.

source: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
"""

import json
import time
from datetime import datetime

JSON = "application/json"
REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Failure(Exception):
    """Ends a request with a Status. `retry_after_s`: of the header, where there is one."""

    def __init__(self, code, message, reason=None, retry_after_s=None):
        super().__init__(message)
        self.code, self.message, self.retry_after_s = code, message, retry_after_s
        self.reason = reason or REASONS.get(code, "Unknown")

    def body(self):
        return status(self.code, self.message, self.reason)


def status(code, message, reason):
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure" if code >= 400 else "Success",
        "message": message,
        "reason": reason,
        "code": code,
    }


def encoded(document):
    return json.dumps(document, separators=(",", ":")).encode()


def now(at_s=None):
    """A time as Kubernetes writes it, in whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if at_s is None else at_s))


def micro_now():
    """A MicroTime, as Leases have it."""
    at_s = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s)) + f".{int(at_s % 1 * 1e6):06d}Z"


def seconds(text):
    """The time of a stamp, whole or with a fraction."""
    whole, _, part = text.rstrip("Z").partition(".")
    at_s = datetime.fromisoformat(whole + "Z").timestamp()  # strptime takes hundreds of times as long
    return at_s + (float(f"0.{part}") if part else 0.0)
