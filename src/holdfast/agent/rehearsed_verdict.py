"""Makes a verdict on the made-up failure of `rehearsal.py` once, where verdicts are made."""

from msgspec import Struct

from holdfast.agent.rehearsal import rehearse_evidence
from holdfast.agent.watch.logs import Signatures
from holdfast.core.diagnosis.concluded import concluded
from holdfast.model.verdicts import Verdict
from holdfast.observe.search.code_store import tables_for


class Rehearsed(Struct, frozen=True):
    """What the rehearsal has found: the verdict, and how many lines matched a signature."""

    verdict: Verdict
    matches: int


def rehearse(signatures: Signatures) -> Rehearsed:
    """Returns the verdict on the made-up failure, by the same functions as a real one.

    Raises SignatureError if the signatures cannot be used.
    """
    made_up = rehearse_evidence(signatures)
    matches = made_up.search.matches
    tables = tables_for({one.category for one in matches})
    verdict = concluded(made_up.first, made_up.search, signatures.by_id, tables)
    return Rehearsed(verdict, len(matches))
