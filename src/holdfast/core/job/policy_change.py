"""Applies a change of the policy while the job runs, such as one requested by an annotation of its Kubernetes
object.

The change is an event of the journal, so a controller that resumes uses the same limits. Restarts already
counted against a limit remain counted. Pure.
"""

from msgspec import UNSET
from msgspec.structs import asdict, replace

from holdfast.core.job.decision import Decision
from holdfast.model.events import PolicyChanged
from holdfast.model.nodes.workers import PolicyAsked
from holdfast.model.policy import Policy, PolicyFields
from holdfast.model.state import Ended, Job, State


def in_force(job: Job, policy: Policy) -> Policy:
    """Returns the policy that is valid now: the one at the start with all later changes."""
    return with_fields(policy, job.policy_fields) if job.policy_fields is not None else policy


def with_fields(policy: Policy, fields: PolicyFields) -> Policy:
    """Returns the policy with these settings changed."""
    given = {name: value for name, value in asdict(fields).items() if value is not UNSET}
    return replace(policy, **given)


def wanted(job: Job, policy: Policy, asked: PolicyAsked, at_s: float) -> PolicyChanged | None:
    """Returns the event for a policy change that a platform requests; None if it is already in force.

    Refused settings keep their values.
    """
    kept = job.policy_fields or PolicyFields()
    fields = replace(asked.fields, **{name: getattr(kept, name) for name in asked.refused})
    if with_fields(policy, fields) == in_force(job, policy):
        return None
    return PolicyChanged(at_s=at_s, fields=fields, by=asked.by, text=f"{asked.by}: {asked.text}")


def on_changed(state: State, event: PolicyChanged) -> Decision:
    """Records a changed policy in the state of the job."""
    if isinstance(state.phase, Ended):
        return Decision(state)
    job = replace(state.job, policy_fields=event.fields)
    return Decision(State(job, state.phase), why=event.text)
