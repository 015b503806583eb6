"""Carries out one action of a user: audits it before and after, and converts errors about jobs into HTTP errors."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.jobs.call import CallNotMade
from holdfast.jobs.line import NoLine
from holdfast.journal.nodes.file import NodeBookUnusable
from holdfast.model.documents.actions import ActionResult, AuditLine
from holdfast.web.actions.audit import Audit, AuditUnwritable
from holdfast.web.refusals import Refusal, conflict, unavailable
from holdfast.web.server_parts import Caller

Answer = TypeVar("Answer")


def by(asking: Caller) -> str:
    """Returns the user of a request as `ana@10.0.0.7`, for journals."""
    return f"{asking.who.name}@{asking.seen.address}"


def doing(
    audit: Audit, asking: Caller, action: str, target: str, text: str, do: Callable[[], Answer]
) -> Answer:
    """Carries out an action by calling `do`, and returns its result. If the audit log cannot be written, the action
    is not carried out.

    raises: Refusal
    """

    def note(result: str, more: str = "") -> None:
        audit.write(
            AuditLine(
                at_s=0.0,  # the audit log stamps it
                who=asking.who.name,
                role=asking.who.role,
                address=asking.seen.address,
                action=action,
                target=target,
                result=result,
                text=more or text,
            )
        )

    try:
        note("asked")
    except AuditUnwritable as error:
        raise unavailable(f"{error}: the action was not carried out") from error
    try:
        answer = do()
    except (CallNotMade, NoLine, ValueError) as error:
        note("refused", str(error))
        raise conflict(str(error)) from error
    except NodeBookUnusable as error:
        note("failed", str(error))
        raise unavailable(str(error)) from error
    except Refusal as error:
        note("refused", error.text)
        raise
    is_needed = answer.done if isinstance(answer, ActionResult) else True
    note("done" if is_needed else "not-needed", answer.text if isinstance(answer, ActionResult) else "")
    return answer
