"""Computes the verdict on a failed attempt of a running job. Pure.

Its inputs are how the ranks ended, their log lines and flight records. Used for one machine and for many.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from holdfast.core.diagnosis.diagnose import diagnose
from holdfast.core.diagnosis.flights import with_flights
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.live import as_diagnosis, joined, verdict_of
from holdfast.model.code_facts import CodeTables
from holdfast.model.flight.digests import RankLife
from holdfast.model.flight.scenes import FlightScene
from holdfast.model.matches import Search
from holdfast.model.verdicts import Verdict


def concluded(
    first: Verdict,
    search: Search,
    known: KnowledgeBase,
    tables: CodeTables,
    scene: FlightScene | None = None,
    lives: Mapping[int, RankLife] | None = None,
) -> Verdict:
    """Returns the verdict on a failed attempt.

    `first`: the verdict without log lines. `known`: empty while the signatures are still being loaded.
    `scene`, `lives`: flight records and states of the ranks; None if they were not collected.
    """
    found = joined(first, diagnose(search, known, tables), known) if known else as_diagnosis(first)
    if scene is not None:
        found = with_flights(found, search, scene, known, lives)
    return replace(verdict_of(found), raised=first.raised)
