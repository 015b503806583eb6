"""Joins what a live run knows of its ranks' ends with what its logs say: one verdict. Pure.

Ends, exceptions recorded inside the ranks and samples tell exactly who broke first. The lines tell what it was:
a GPU that fell off the bus, a port that was taken, a network card that flapped.
"""

from msgspec.structs import replace

from holdfast.model.diagnoses import Diagnosis
from holdfast.model.verdicts import Culprit, Evidence, Verdict

# What a first verdict says for want of anything better: a line that is known says more.
VAGUE = frozenset(
    {
        *("unknown", "python_exception", "process_killed", "cuda_error", "segfault", "terminated"),
        *("nccl_network_error", "collective_timeout", "collective_missing_rank", "rendezvous_timeout"),
        *("dataloader_stuck", "missing_file", "gpu_fault", "gpu_missing", "host_oom"),
    }
)
DEEPER = frozenset({"hardware", "host", "network"})  # explains what ranks complain of, whatever it is
SURE = 0.6
EVIDENCE_MAX = 16


def joined(first: Verdict, found: Diagnosis, *, asked_to_stop: bool = False) -> Verdict:
    """The first verdict, said better where a known line explains it; with the lines as evidence in any case."""
    lines = tuple(
        Evidence(
            text=fact.text,
            says=fact.says.en,
            file=fact.file,
            line=fact.line,
            at_s=fact.at_s,
            signature=fact.signature,
        )
        for fact in found.evidence
    )
    if found.category in ("none", "unknown") or asked_to_stop:
        return first
    if not _says_more(first, found):
        return replace(first, evidence=_distinct((*first.evidence, *lines)))
    error = found.first_error
    return Verdict(
        category=found.category,
        class_=found.class_,
        title=found.title.en,
        confidence=max(found.confidence, first.confidence if first.category == found.category else 0.0),
        action=found.action,
        advice=found.advice.en,
        culprits=_culprits(first, found),
        first_error=lines[0] if error is not None and lines else first.first_error,
        evidence=_distinct((*lines, *first.evidence)),
    )


def _says_more(first: Verdict, found: Diagnosis) -> bool:
    if found.class_ in DEEPER and first.class_ not in DEEPER:
        return found.confidence >= SURE
    if first.category == found.category:
        return True
    return first.category in VAGUE and found.confidence >= SURE and found.category not in VAGUE


def _culprits(first: Verdict, found: Diagnosis) -> tuple[Culprit, ...]:
    """Ranks as the ends tell them; hosts and devices as the lines do. A line that blames other ranks is believed."""
    ranks = {one.rank for one in first.culprits} - {None}
    if not ranks or ranks & {one.rank for one in found.culprits}:
        return found.culprits or first.culprits
    if any(one.rank is not None for one in found.culprits):
        return found.culprits
    return (*first.culprits, *(one for one in found.culprits if one.device or one.host))


def _distinct(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    return tuple({(one.text, one.file, one.line): one for one in evidence}.values())[:EVIDENCE_MAX]
