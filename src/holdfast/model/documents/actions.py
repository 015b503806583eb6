"""Documents of the API besides what it shows: what an action asks for and answers, who is logged in, errors."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

# reporter: a job that reports itself to the server; reads nothing. viewer: reads. operator: stops and restarts jobs,
# isolates nodes, runs commands. admin: an operator who may also read the audit log. Each may do what the one before may.
Role = Literal["reporter", "viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("reporter", "viewer", "operator", "admin")

TEXT_CHARACTERS_MAX = 2_000
Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX)]
Reason = Annotated[str, Meta(min_length=1, max_length=TEXT_CHARACTERS_MAX, pattern=r"\S")]
Number = Annotated[int, Meta(ge=0, le=10_000_000)]


class ShellEnded(Struct, frozen=True, kw_only=True):
    """The last text frame of a shell's WebSocket. `ended`: the exit code; None: it did not end by itself."""

    ended: int | None
    text: str


class ShellSize(Struct, frozen=True, kw_only=True):
    """A text frame to a shell: the size of the terminal, columns and rows."""

    resize: tuple[Annotated[int, Meta(ge=1, le=1_000)], Annotated[int, Meta(ge=1, le=500)]]


def allows(role: Role, needed: Role) -> bool:
    return ROLES.index(role) >= ROLES.index(needed)


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request carries."""


class StopJob(Body, frozen=True):
    """`force`: at once, without the grace."""

    force: bool = False
    reason: Text = ""


class RestartJob(Body, frozen=True):
    """End the present attempt and start the next one; it counts as a restart."""

    reason: Text = ""


class Acknowledge(Body, frozen=True):
    """Say that a person looks after the incident."""

    text: Text = ""


class Correct(Body, frozen=True):
    """Say what the verdict should have been. `category`: as in docs/labels.md."""

    category: Annotated[str, Meta(min_length=1, max_length=100, pattern="^[a-z0-9_-]+$")]
    text: Text = ""


class NodeReason(Body, frozen=True):
    """Why a node is isolated or released."""

    reason: Reason


class ExecCommand(Body, frozen=True):
    """Run a command on workers; `workers` None: on all of them. `loose`: join answers that differ in numbers only."""

    command: Annotated[
        tuple[Annotated[str, Meta(max_length=65_536)], ...], Meta(min_length=1, max_length=1_000)
    ]
    workers: Annotated[tuple[Number, ...], Meta(max_length=100_000)] | None = None
    limit_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    loose: bool = False


class Login(Body, frozen=True):
    token: Annotated[str, Meta(min_length=1, max_length=200)]


class ActionResult(Struct, frozen=True, kw_only=True):
    """`done` False: it was not necessary; `text` says what was done, or why nothing was."""

    done: bool
    text: str


class ExecGroup(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Workers with the same answer. `outcome`: as in model.calls. `output`: as text; bytes that are none are replaced."""

    workers: tuple[int, ...]
    nodes: tuple[str, ...]
    outcome: str
    code: int | None = None
    output: str = ""
    cut_bytes: int = 0
    why: str = ""


class ExecResult(Struct, frozen=True, kw_only=True):
    """The rarest answer first. `code`: the highest exit code of all, as `holdfast exec` exits with."""

    job: str
    attempt: int
    code: int
    groups: tuple[ExecGroup, ...]


class Me(Struct, frozen=True, kw_only=True):
    """Who asks. `by`: token, cookie, proxy, or loopback. `csrf`: to be sent as X-Holdfast-CSRF; empty: not needed."""

    name: str
    role: Role
    by: str
    csrf: str = ""
    expires_at_s: float | None = None


class Health(Struct, frozen=True, kw_only=True):
    """`status`: ok, or degraded; `warnings`: what is wrong, one sentence each."""

    status: Literal["ok", "degraded"]
    version: str
    jobs: int = 0
    viewers: int = 0
    warnings: tuple[str, ...] = ()


class ErrorText(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`text`: what failed, on what, and what to do now. `near`: names that may have been meant."""

    code: str
    text: str
    near: tuple[str, ...] = ()


class ErrorDocument(Struct, frozen=True, kw_only=True):
    error: ErrorText


class AuditLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the audit log. `result`: done, not-needed, refused, or failed."""

    at_s: float
    who: str
    role: str
    address: str
    action: str
    target: str = ""
    result: str = ""
    text: str = ""
