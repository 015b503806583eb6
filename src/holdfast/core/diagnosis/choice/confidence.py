"""Computes the confidence of a diagnosis: the probability, 0 to 1, that its category is right. Pure."""

from holdfast.core.diagnosis.candidates import Candidate
from holdfast.core.diagnosis.choice.choose import Choice
from holdfast.model.diagnoses import Other

FOLLOWERS = 0.7  # factor on the doubt where other lines follow from the cause
RIVAL = 0.85  # factor for each other cause that nothing explains
WEAK = 0.7  # factor for a complaint or warning where no cause is seen, and for a fault that training outlived
RIVALS_MAX = 3
CONFIDENCE_MAX = 0.98


def confidence(choice: Choice) -> float:
    """Returns the confidence of the diagnosis, from 0 to 1; 0 without a root cause."""
    root = choice.root
    if root is None:
        return 0.0
    sure = root.weight
    if choice.followers:
        sure = 1.0 - (1.0 - sure) * FOLLOWERS
    sure *= RIVAL ** min(RIVALS_MAX, len({rival.category for rival in choice.rivals}))
    if is_weak(root):
        sure *= WEAK
    return round(min(sure, CONFIDENCE_MAX), 2)


def is_weak(root: Candidate) -> bool:
    return root.role != "cause" and not root.is_traceback or root.survived or (root.severity == "warning")


def others(choice: Choice) -> tuple[Other, ...]:
    """Returns other possible categories of the failure, the most probable first.

    They share, by their weights, the probability that the confidence leaves.
    """
    root = choice.root
    weights: dict[str, float] = {}
    for rival in choice.rivals:
        weights[rival.category] = max(weights.get(rival.category, 0.0), rival.weight)
    if root is None or not weights:
        return ()
    left = 1.0 - confidence(choice)
    whole = sum(weights.values())
    shares = sorted(((weight / whole * left, name) for name, weight in weights.items()), reverse=True)
    return tuple(Other(category=name, confidence=round(share, 2)) for share, name in shares[:4])
