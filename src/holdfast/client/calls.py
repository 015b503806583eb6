"""Defines every API call as a value: method, path, parameters, body and type of the result.

Performs no I/O.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from holdfast.model.documents.actions import (
    Acknowledge,
    ActionResult,
    AlertWebhook,
    AuditLine,
    Body,
    Correct,
    ExecCommand,
    ExecResult,
    Health,
    Me,
    NodeReason,
    RestartJob,
    StopJob,
)
from holdfast.model.documents.incidents import CheckRow, EvidenceRow, IncidentDocument
from holdfast.model.documents.jobs import HeatMap, JobDocument, JobsPage, LogPage, StepSeries
from holdfast.model.documents.nodes import DeviceRow, NodeDocument, NodesPage
from holdfast.model.documents.output import OutputFile, OutputPage

PREFIX = "/api/v1"
Answer = TypeVar("Answer")
Some = int | Iterable[int] | None  # one number, several, or no restriction
Parameter = str | int | float | bool | None | Iterable[str] | Iterable[int]


class Call(msgspec.Struct, Generic[Answer], frozen=True, kw_only=True):
    """One API call. `answer`: the type of the JSON result; None means that the result is text or bytes.

    `body`: the JSON body of an action; None for calls that only read.
    """

    path: str
    answer: Any
    query: tuple[tuple[str, str], ...] = ()
    body: Body | None = None

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else msgspec.json.encode(self.body)

    def decoded(self, content: bytes) -> Answer:
        found: Any = content if self.answer is bytes else msgspec.json.decode(content, type=self.answer)
        answer: Answer = found
        return answer


def _get(path: str, answer: type[Answer], **query: Parameter) -> Call[Answer]:
    return Call(path=PREFIX + path, answer=answer, query=pairs(query))


def _post(path: str, body: Body, answer: type[Answer]) -> Call[Answer]:
    return Call(path=PREFIX + path, answer=answer, body=body)


def _act(path: str, body: Body) -> Call[ActionResult]:
    return _post(path, body, ActionResult)


def pairs(query: Mapping[str, Parameter]) -> tuple[tuple[str, str], ...]:
    """Returns query parameters as pairs.

    Omits None and empty values; repeats lists; renames `from_` to `from`.
    """
    found: list[tuple[str, str]] = []
    for name, value in query.items():
        many = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        found += [(name, _text(one)) for one in many if one is not None and one != ""]
    return tuple(found)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _at(*parts: str | int) -> str:
    return "/".join(quote(str(one), safe="") for one in parts)


def _incident(job: str, number: int) -> str:
    return f"/jobs/{_at(job)}/incidents/{number}"


def jobs(**query: Parameter) -> Call[JobsPage]:
    return _get("/jobs", JobsPage, **query)


def job(name: str) -> Call[JobDocument]:
    return _get(f"/jobs/{_at(name)}", JobDocument)


def incident(job: str, number: int) -> Call[IncidentDocument]:
    return _get(_incident(job, number), IncidentDocument)


def evidence(job: str, evidence: str) -> Call[EvidenceRow]:
    found = re.fullmatch(r"(\d+)\.\d+", evidence)
    if found is None:
        raise ValueError(f"{evidence!r} is not an evidence id such as 3.12")
    return _get(f"{_incident(job, int(found[1]))}/evidence/{evidence}", EvidenceRow)


def bundle(job: str, number: int) -> Call[bytes]:
    return _get(f"{_incident(job, number)}/bundle", bytes)


def markdown(job: str, number: int, lang: str) -> Call[bytes]:
    return _get(f"{_incident(job, number)}/markdown", bytes, lang=lang)


def log(job: str, **query: Parameter) -> Call[LogPage]:
    return _get(f"/jobs/{_at(job)}/log", LogPage, **query)


def steps(job: str, **query: Parameter) -> Call[StepSeries]:
    return _get(f"/jobs/{_at(job)}/steps", StepSeries, **query)


def heat(job: str, **query: Parameter) -> Call[HeatMap]:
    return _get(f"/jobs/{_at(job)}/heat", HeatMap, **query)


def files(job: str) -> Call[list[OutputFile]]:
    return _get(f"/jobs/{_at(job)}/files", list[OutputFile])


def output(job: str, **query: Parameter) -> Call[OutputPage]:
    return _get(f"/jobs/{_at(job)}/output", OutputPage, **query)


def checks(job: str) -> Call[list[CheckRow]]:
    return _get(f"/jobs/{_at(job)}/checks", list[CheckRow])


def nodes(**query: Parameter) -> Call[NodesPage]:
    return _get("/nodes", NodesPage, **query)


def node(name: str) -> Call[NodeDocument]:
    return _get(f"/nodes/{_at(name)}", NodeDocument)


def device(serial: str) -> Call[DeviceRow]:
    return _get(f"/devices/{_at(serial)}", DeviceRow)


def me() -> Call[Me]:
    return _get("/me", Me)


def health() -> Call[Health]:
    return _get("/health", Health)


def audit(limit: int) -> Call[list[AuditLine]]:
    return _get("/audit", list[AuditLine], limit=limit)


def stop(job: str, reason: str, *, force: bool) -> Call[ActionResult]:
    return _act(f"/jobs/{_at(job)}/stop", StopJob(force=force, reason=reason))


def restart(job: str, reason: str) -> Call[ActionResult]:
    return _act(f"/jobs/{_at(job)}/restart", RestartJob(reason=reason))


def acknowledge(job: str, number: int, text: str) -> Call[ActionResult]:
    return _act(f"{_incident(job, number)}/acknowledge", Acknowledge(text=text))


def correct(job: str, number: int, category: str, text: str) -> Call[ActionResult]:
    return _act(f"{_incident(job, number)}/correct", Correct(category=category, text=text))


def alerts(webhook: AlertWebhook) -> Call[ActionResult]:
    return _act("/alerts", webhook)


def isolate(node: str, reason: str) -> Call[ActionResult]:
    return _act(f"/nodes/{_at(node)}/isolate", NodeReason(reason=reason))


def release(node: str, reason: str) -> Call[ActionResult]:
    return _act(f"/nodes/{_at(node)}/release", NodeReason(reason=reason))


def exec_(job: str, body: ExecCommand) -> Call[ExecResult]:
    return _post(f"/jobs/{_at(job)}/exec", body, ExecResult)
