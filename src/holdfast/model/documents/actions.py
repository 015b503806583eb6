"""Defines the API's documents for actions, users, errors, health and the audit log."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

# reporter: a job that streams itself to the server; cannot read. viewer: reads. operator: also stops and
# restarts
# jobs, isolates nodes and runs commands. admin: also reads the audit log. Each role includes the rights
# before it.
Role = Literal["reporter", "viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("reporter", "viewer", "operator", "admin")

TEXT_CHARACTERS_MAX = 2_000
Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX)]
Reason = Annotated[str, Meta(min_length=1, max_length=TEXT_CHARACTERS_MAX, pattern=r"\S")]
Number = Annotated[int, Meta(ge=0, le=10_000_000)]


class ShellEnded(Struct, frozen=True, kw_only=True):
    """The last text frame of a shell's WebSocket.

    `ended`: the exit code; None if the shell did not exit by itself.
    """

    ended: int | None
    text: str


class ShellSize(Struct, frozen=True, kw_only=True):
    """A text frame to a shell's WebSocket. `resize`: columns and rows of the terminal."""

    resize: tuple[Annotated[int, Meta(ge=1, le=1_000)], Annotated[int, Meta(ge=1, le=500)]]


def allows(role: Role, needed: Role) -> bool:
    """Returns whether a role includes the rights of the needed role."""
    return ROLES.index(role) >= ROLES.index(needed)


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base class of JSON request bodies of the HTTP API."""


class StopJob(Body, frozen=True):
    """Request body: stop a job. `force`: kill it at once, without the grace period."""

    force: bool = False
    reason: Text = ""


class RestartJob(Body, frozen=True):
    """Request body: end the current attempt and start the next one, which counts as a restart."""

    reason: Text = ""


class Acknowledge(Body, frozen=True):
    """Request body: acknowledge an incident. `text`: a comment."""

    text: Text = ""


class Correct(Body, frozen=True):
    """Request body: correct a verdict. `category`: the correct one, as in docs/labels.md. `text`: a comment."""

    category: Annotated[str, Meta(min_length=1, max_length=100, pattern="^[a-z0-9_-]+$")]
    text: Text = ""


class NodeReason(Body, frozen=True):
    """Request body: the reason to isolate or release a node."""

    reason: Reason


class ExecCommand(Body, frozen=True):
    """Request body: run a command on workers.

    `workers`: None means all of them. `loose`: group answers that differ only in numbers.
    """

    command: Annotated[
        tuple[Annotated[str, Meta(max_length=65_536)], ...], Meta(min_length=1, max_length=1_000)
    ]
    workers: Annotated[tuple[Number, ...], Meta(max_length=100_000)] | None = None
    limit_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    loose: bool = False


class Login(Body, frozen=True):
    """Request body: log in to the web page with a token."""

    token: Annotated[str, Meta(min_length=1, max_length=200)]


class WebhookAlert(Struct, frozen=True, kw_only=True):
    """One alert in a webhook request of Alertmanager. `status`: firing or resolved. Times: RFC 3339.

    Other fields are ignored.
    """

    status: str
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    startsAt: str = ""
    endsAt: str = ""
    fingerprint: str = ""


class AlertWebhook(Body, frozen=True, forbid_unknown_fields=False):
    """The request body that Alertmanager sends to a webhook receiver. Other fields are ignored."""

    version: str
    alerts: tuple[WebhookAlert, ...]


class ActionResult(Struct, frozen=True, kw_only=True):
    """The result of an action. `done` False: nothing was done, and `text` states why; else `text` states what was done."""

    done: bool
    text: str


class ExecGroup(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of workers with the same answer to a command.

    `outcome`: how the command ended, as in model.calls. `output`: text; invalid bytes are replaced. `cut_bytes`:
    number of output bytes that were dropped.
    """

    workers: tuple[int, ...]
    nodes: tuple[str, ...]
    outcome: str
    code: int | None = None
    output: str = ""
    cut_bytes: int = 0
    why: str = ""


class ExecResult(Struct, frozen=True, kw_only=True):
    """The answers of workers to a command, rarest first.

    `code`: the highest exit code, which `holdfast exec` returns.
    """

    job: str
    attempt: int
    code: int
    groups: tuple[ExecGroup, ...]


class Me(Struct, frozen=True, kw_only=True):
    """The current user.

    `by`: token, cookie, proxy or loopback. `csrf`: the value of the header X-Holdfast-CSRF; empty: not needed.
    """

    name: str
    role: Role
    by: str
    csrf: str = ""
    expires_at_s: float | None = None


class Health(Struct, frozen=True, kw_only=True):
    """The health of the server. `status`: ok or degraded. `warnings`: problems, one sentence each."""

    status: Literal["ok", "degraded"]
    version: str
    jobs: int = 0
    viewers: int = 0
    warnings: tuple[str, ...] = ()


class ErrorText(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error. `text`: what failed, on what, and what to do. `near`: similar valid names."""

    code: str
    text: str
    near: tuple[str, ...] = ()


class ErrorDocument(Struct, frozen=True, kw_only=True):
    """The body of an HTTP response with an error."""

    error: ErrorText


class AuditLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the audit log. `result`: done, not-needed, refused or failed."""

    at_s: float
    who: str
    role: str
    address: str
    action: str
    target: str = ""
    result: str = ""
    text: str = ""
