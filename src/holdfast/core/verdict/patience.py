"""Decides how long a diagnosis waits for more evidence after the first verdict: other workers, logs, checks.

Pure.
"""

from holdfast.model.policy import Policy
from holdfast.model.verdicts import Verdict

# Observed directly as it happens: evidence of other ranks, launchers or checks cannot change the verdict.
SEEN_AT_ONCE = ("process_killed",)
SURE = 0.8
SURE_S = 1.5  # for evidence that is already being sent


def patience_s(first: Verdict, policy: Policy, limit_s: float, *, is_certain: bool) -> float:
    """Returns how long the diagnosis waits for more evidence, in seconds, at most `limit_s`.

    0 for a failure that was directly observed, short for a certain verdict, the whole limit otherwise. If the
    policy allows no restart, the verdict is the final result, and the diagnosis waits up to the limit for all
    evidence.
    """
    restarts = policy.max_restarts is not None or policy.hang_restart or policy.replace_workers is not None
    if not (restarts and is_certain):
        return limit_s
    if first.category in SEEN_AT_ONCE:
        return 0.0
    return min(limit_s, SURE_S) if first.confidence >= SURE else limit_s
