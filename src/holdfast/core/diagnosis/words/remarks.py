"""Adds remarks to a diagnosis: nodes with different settings, links that failed briefly. Pure.

A job trains despite them, or fails for another reason; then they are no cause, but worth mentioning.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.diagnosis.candidates import Candidate, filled
from holdfast.core.diagnosis.compare.comparison import Comparison
from holdfast.core.diagnosis.compare.network_paths import compare_gdr, compare_settings, compare_versions
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.diagnoses import Diagnosis
from holdfast.model.matches import Search
from holdfast.model.signatures import Words

NETWORK = frozenset({"communication", "network"})
BREAKS_MAX = 4


def with_remarks(
    found: Diagnosis, candidates: Sequence[Candidate], search: Search, known: KnowledgeBase
) -> Diagnosis:
    """Returns the diagnosis with remarks as notes, except those that the verdict already contains."""
    notes = []
    for compare in (compare_gdr, compare_settings, compare_versions):
        unlike = compare(search.matches, search.sources, known)
        if unlike is not None and unlike.category != found.category:
            notes.append(_words(unlike))
    if found.class_ in NETWORK and not known.is_of("link-break", found.category) or found.category == "none":
        breaks = [_of_break(candidate, found) for candidate in candidates if _is_break(candidate)]
        notes += breaks[:BREAKS_MAX]
    if known.is_of("hangs", found.category):
        notes += [_of_warning(candidate) for candidate in candidates if candidate.has("can-make-it-hang")][:1]
    return replace(found, notes=(*found.notes, *notes)) if notes else found


def _is_break(candidate: Candidate) -> bool:
    return candidate.has("link-break") and candidate.role == "cause" and candidate.ruling is not None


def _of_warning(candidate: Candidate) -> Words:
    captures = candidate.match.captures
    title, advice = candidate.signature.title, candidate.signature.advice
    return Words(
        en=f"{_begun(filled(title.en, captures))}. {filled(advice.en, captures)}",
        zh=f"{filled(title.zh, captures)}。{filled(advice.zh, captures)}",
    )


def _words(unlike: Comparison) -> Words:
    return Words(
        en=f"{_begun(unlike.title.en)}. {unlike.advice.en}", zh=f"{unlike.title.zh}。{unlike.advice.zh}"
    )


def _of_break(candidate: Candidate, found: Diagnosis) -> Words:
    title = (
        candidate.ruling.title if candidate.ruling and candidate.ruling.title else candidate.signature.title
    )
    text = candidate.match.text.strip()
    is_well = found.category == "none"
    so_en = "no failure because of it was found" if is_well else "it may be unrelated to this failure"
    so_zh = "未见因此而失败" if is_well else "不能确定与本次故障有关"
    return Words(en=f"{_begun(title.en)}; {so_en}: {text}", zh=f"{title.zh}；{so_zh}：{text}")


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]
