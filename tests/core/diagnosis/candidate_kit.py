"""Signatures, matches and candidates for tests of the reasoning: only what a test names differs from the usual."""

from holdfast.core.diagnosis.candidates import Candidate, class_of
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match, Search, Source, Writer
from holdfast.model.signatures import Signature, Words
from holdfast.observe.search.rule_store import package_rules

WORDS = Words(en="words", zh="词")
RULES = package_rules()


def knowing(*signatures):
    """These signatures, with the package's rules."""
    return KnowledgeBase(signatures, RULES)


NO_SIGNATURES = knowing()


def signature(id_, category, **changed):
    usual = {
        "id": id_,
        "category": category,
        "pattern": id_,
        "title": WORDS,
        "explanation": WORDS,
        "advice": WORDS,
        "source": "test",
        "matches": (id_,),
    }
    return Signature(**{**usual, **changed})


def match(of, *, source=0, offset=0, text="", rank=None, host=None, at_s=None, captures=None, **changed):
    return Match(
        signature=of.id,
        category=of.category,
        source=source,
        offset=offset,
        line=offset + 1,
        text=text or f"{of.id} at {offset}",
        captures=captures or {},
        writer=Writer(rank=rank, host=host, stamp_s=at_s),
        last_offset=offset,
        **changed,
    )


def candidate(of, *, at_s=None, survived=False, outlived=False, **where):
    seen = match(of, at_s=at_s, **where)
    return Candidate(
        match=seen,
        signature=of,
        category=of.category,
        class_=class_of(of.category),
        role=of.role,
        severity=of.severity,
        weight=of.weight,
        at_s=at_s,
        uptime_s=None,
        survived=survived,
        outlived=outlived,
        order=seen.offset,
        known=NO_SIGNATURES,
    )


def search(*matches, sources=1, last_steps=None):
    steps = last_steps or {}
    names = [Source(name=f"rank-{n}.log", last_step_offset=steps.get(n)) for n in range(sources)]
    return Search(sources=tuple(names), matches=matches)
