"""Converts a match into context: it is no cause, because it had ended or follows from another fault. Pure."""

from holdfast.core.diagnosis.candidates import Ruling
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match


def as_context(match: Match, known: KnowledgeBase) -> Ruling:
    """Returns a ruling that makes a match context, with severity and weight of its signature.

    Raises KeyError for an unknown signature.
    """
    signature = known[match.signature]
    return Ruling(
        category=match.category, role="context", severity=signature.severity, weight=signature.weight
    )
