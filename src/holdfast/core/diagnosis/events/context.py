"""Turns a match into context: it is no cause, because it was over or follows from another fault. Pure."""

from holdfast.core.diagnosis.candidates import Ruling
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match


def as_context(match: Match, known: KnowledgeBase) -> Ruling:
    """With severity and weight of its signature. raises: KeyError, for a match of a signature that is not known"""
    signature = known[match.signature]
    return Ruling(
        category=match.category, role="context", severity=signature.severity, weight=signature.weight
    )
