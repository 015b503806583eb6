"""Queries a Prometheus server with limits on time, size and number, and caches results.

source: prometheus.io/docs/prometheus/latest/querying/api
"""

import math
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import msgspec
from msgspec import Struct

ANSWER_BYTES_MAX = 32 << 20
READ_BYTES = 1 << 16
TIMEOUT_S = 5.0
CACHED_MAX = 32
CACHED_BYTES_MAX = 1 << 20  # per answer
CACHE_S = 30.0
POSTED = ("/api/v1/query", "/api/v1/query_range")
WORDS_MAX = 300  # of an error message of the server


class PrometheusUnavailable(Exception):
    """Raised when a Prometheus query failed, or its result is unusable. The message is one line: the query,
    the error and what to do.
    """


class Found(Struct, frozen=True):
    """One time series: its labels and ascending (time, value) pairs. Values can be NaN or infinite."""

    labels: dict[str, str]
    values: tuple[tuple[float, float], ...]


class _Series(Struct):
    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Result(Struct):
    resultType: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class Prometheus:
    """Client of one Prometheus server. `url`: without the API path. Not thread-safe."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S, bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._bytes_max = bytes_max
        self._kept: dict[tuple[str, str], tuple[float, bytes]] = {}

    def now(self, query: str, *, at_s: float | None = None) -> list[Found]:
        """Returns the value of each series at one moment; None means now. Raises PrometheusUnavailable."""
        parameters = {"query": query, "timeout": f"{self._timeout_s:g}s"}
        if at_s is not None:
            parameters["time"] = f"{at_s:.3f}"
        return self._series("/api/v1/query", parameters)

    def over(self, query: str, from_s: float, to_s: float, step_s: float) -> list[Found]:
        """Returns the values of each series over a period. Raises PrometheusUnavailable."""
        parameters = {
            "query": query,
            "start": f"{from_s:.3f}",
            "end": f"{to_s:.3f}",
            "step": f"{step_s:g}",
            "timeout": f"{self._timeout_s:g}s",
        }
        return self._series("/api/v1/query_range", parameters)

    def names(self, matching: str, from_s: float, to_s: float) -> set[str]:
        """Returns the names of series that match a selector in a period. Raises PrometheusUnavailable."""
        parameters = {"match[]": matching, "start": f"{from_s:.3f}", "end": f"{to_s:.3f}"}
        return set(self._data("/api/v1/label/__name__/values", parameters, list[str]))

    def rules(self) -> dict[str, str]:
        """Returns the loaded alert rules by name, with the error of their last evaluation.

        Raises PrometheusUnavailable.
        """
        answer = self._data("/api/v1/rules", {"type": "alert"}, dict[str, Any])
        found = {}
        for group in answer.get("groups") or ():
            for rule in group.get("rules") or ():
                found[str(rule.get("name"))] = str(rule.get("lastError") or "")
        return found

    # Asking -----------------------------------------------------------------------------------------------

    def _series(self, path: str, parameters: Mapping[str, str]) -> list[Found]:
        answer = self._data(path, parameters, _Result)
        if answer.resultType not in ("vector", "matrix"):
            raise PrometheusUnavailable(
                f"{self.url} answered {path} with {answer.resultType or 'nothing'} instead of series"
            )
        try:
            found = msgspec.json.decode(answer.result, type=list[_Series])
        except msgspec.MsgspecError as error:
            raise PrometheusUnavailable(
                f"{self.url} answered {path} with series in an unknown format: {error}"
            ) from error
        return [Found(one.metric, _pairs(one)) for one in found]

    def _data(self, path: str, parameters: Mapping[str, str], kind: Any) -> Any:
        body = self._body(path, urlencode(parameters))
        try:
            answer = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            status = msgspec.json.decode(answer.get("status", b'""'))
            if status != "success":
                why = msgspec.json.decode(answer.get("error", b'"unknown error"'))
                raise PrometheusUnavailable(f"{self.url} rejected {path}: {str(why)[:WORDS_MAX]}")
            return msgspec.json.decode(answer.get("data", b"null"), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise PrometheusUnavailable(
                f"{self.url} returned a response to {path} that is not of the Prometheus API ({error}): "
                "is this the URL of Prometheus?"
            ) from error

    def _body(self, path: str, form: str) -> bytes:
        kept = self._kept.get((path, form))
        if kept is not None and time.monotonic() - kept[0] < CACHE_S:
            return kept[1]
        body = self._fetched(path, form)
        if len(body) <= CACHED_BYTES_MAX:
            while len(self._kept) >= CACHED_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[path, form] = (time.monotonic(), body)
        return body

    def _fetched(self, path: str, form: str) -> bytes:
        """Sends a query.

        Uses POST if the API allows it, because queries with many nodes are too long for a URL.
        """
        until_s = time.monotonic() + self._timeout_s
        headers = {"Accept": "application/json"}
        if path in POSTED:
            request = Request(self.url + path, data=form.encode(), headers=headers)
        else:
            request = Request(f"{self.url}{path}?{form}", headers=headers)
        try:
            with urlopen(request, timeout=self._timeout_s) as answer:
                return self._read(answer, until_s)
        except HTTPError as error:
            with error:
                body = error.read(READ_BYTES)
            if body.startswith(b"{"):
                return body  # the API states the error itself
            raise PrometheusUnavailable(
                f"{self.url} returned {error.code} {error.reason}: is this the URL of Prometheus?"
            ) from error
        except (URLError, OSError, HTTPException, ValueError) as error:
            why = getattr(error, "reason", None) or error
            raise PrometheusUnavailable(
                f"{self.url} cannot be reached: {why or type(error).__name__}"
            ) from error

    def _read(self, answer: Any, until_s: float) -> bytes:
        parts: list[bytes] = []
        size = 0
        while part := answer.read1(READ_BYTES):
            size += len(part)
            if size > self._bytes_max:
                raise PrometheusUnavailable(
                    f"{self.url} returns more than {self._bytes_max >> 20} MiB: the query is too broad"
                )
            if time.monotonic() > until_s:
                raise PrometheusUnavailable(f"{self.url} did not respond within {self._timeout_s:g} s")
            parts.append(part)
        return b"".join(parts)


def _pairs(one: _Series) -> tuple[tuple[float, float], ...]:
    pairs: Sequence[tuple[float, str]] = [one.value] if one.value is not None else one.values
    return tuple((at_s, _number(text)) for at_s, text in pairs)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
