"""What is told beside a verdict, whatever it is: nodes that are not set up alike, links that broke for a moment. Pure.

A job trains over such things, slowly, or fails of something else; then they are no cause, and worth a word.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.diagnosis.clues import Clue
from holdfast.core.diagnosis.compare.comparison import Comparison
from holdfast.core.diagnosis.compare.network_paths import compare_gdr, compare_settings, compare_versions
from holdfast.model.diagnoses import Diagnosis
from holdfast.model.sightings import Search
from holdfast.model.signatures import Words

BREAK = "nic_link_flap"
NETWORK = frozenset({"communication", "network"})
BREAKS_MAX = 4


def with_remarks(found: Diagnosis, clues: Sequence[Clue], search: Search) -> Diagnosis:
    """The diagnosis with them as notes, each unless it is what the verdict says."""
    told = []
    for compare in (compare_gdr, compare_settings, compare_versions):
        unlike = compare(search.sightings, search.sources)
        if unlike is not None and unlike.category != found.category:
            told.append(_words(unlike))
    if found.class_ in NETWORK and found.category != BREAK or found.category == "none":
        told += [_of_break(clue, found) for clue in clues if _is_break(clue)][:BREAKS_MAX]
    return replace(found, notes=(*found.notes, *told)) if told else found


def _is_break(clue: Clue) -> bool:
    return clue.category == BREAK and clue.role == "cause" and clue.ruling is not None


def _words(unlike: Comparison) -> Words:
    return Words(
        en=f"{_begun(unlike.title.en)}. {unlike.advice.en}", zh=f"{unlike.title.zh}。{unlike.advice.zh}"
    )


def _of_break(clue: Clue, found: Diagnosis) -> Words:
    title = clue.ruling.title if clue.ruling and clue.ruling.title else clue.signature.title
    text = clue.sighting.text.strip()
    is_well = found.category == "none"
    so_en = "nothing is seen to have failed by it" if is_well else "it is not known to belong to this failure"
    so_zh = "未见因此而失败" if is_well else "不能确定与本次故障有关"
    return Words(en=f"{_begun(title.en)}; {so_en}: {text}", zh=f"{title.zh};{so_zh}:{text}")


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]
