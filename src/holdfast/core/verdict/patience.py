"""Decides how long a first verdict waits for more evidence: other workers, logs, checks. Pure."""

from holdfast.model.policy import Policy
from holdfast.model.verdicts import Verdict

# Seen as it happens; what the others, their launchers or a check could say later changes nothing of it.
SEEN_AT_ONCE = ("process_killed",)
SURE = 0.8
SURE_S = 1.5  # for what is on its way already


def patience_s(first: Verdict, policy: Policy, limit_s: float, *, is_certain: bool) -> float:
    """The wait in seconds: short for a certain verdict that a restart can fix, none for one that was directly
    observed.

    Without a restart the verdict is the final result, so it waits for all evidence, up to `limit_s`.
    """
    restarts = policy.max_restarts is not None or policy.hang_restart or policy.replace_workers is not None
    if not (restarts and is_certain):
        return limit_s
    if first.category in SEEN_AT_ONCE:
        return 0.0
    return min(limit_s, SURE_S) if first.confidence >= SURE else limit_s
