"""Computes the diagnosis of a job from matched log lines. Pure; any input gives exactly one diagnosis.

The pipeline: rulings (rules that compare several lines) → candidates → choice of the root cause → culprits,
action, confidence and words → notes about errors that the training survived.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from holdfast.core.diagnosis.actions import action_for
from holdfast.core.diagnosis.blame import culprits, named_below, with_rank
from holdfast.core.diagnosis.candidates import Candidate, candidates, class_of, filled, kind_of
from holdfast.core.diagnosis.choice.choose import Choice, choose
from holdfast.core.diagnosis.choice.confidence import confidence, others
from holdfast.core.diagnosis.excerpt import is_pasted
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.rulings import NO_TABLES, all_rulings
from holdfast.core.diagnosis.seats import with_ranks
from holdfast.core.diagnosis.words.meanings import MEANINGS
from holdfast.core.diagnosis.words.messages import message_of
from holdfast.core.diagnosis.words.no_cause import (
    DOUBTFUL,
    NO_END_TITLE,
    NO_WORK_SEEN,
    NONE_ADVICE,
    NONE_EXPLANATION,
    NONE_IN_PART,
    NONE_TITLE,
    READ_THE_REST,
    TELLING,
    UNKNOWN_ADVICE,
    UNKNOWN_EXPLANATION,
    UNKNOWN_TITLE,
)
from holdfast.core.diagnosis.words.outlived import notes_on_platform, notes_on_runs, outlived_facts
from holdfast.core.diagnosis.words.remarks import with_remarks
from holdfast.core.diagnosis.words.telling import doubtful_lines, ends_in_failure, telling_lines
from holdfast.core.verdict.categories import ADVICE, ADVICE_ZH
from holdfast.model.code_facts import CodeTables
from holdfast.model.diagnoses import Diagnosis, Fact, FirstError
from holdfast.model.matches import ASSUMED_DATES_S, Search, Source
from holdfast.model.signatures import Signature, Words

EVIDENCE_MAX = 16
NONE_SURE, NO_END_SURE, NONE_IN_PART_SURE = 0.9, 0.6, 0.5


def diagnose(
    search: Search,
    known: KnowledgeBase,
    tables: CodeTables = NO_TABLES,
) -> Diagnosis:
    """Returns the diagnosis of a job from the matches of a search in its logs.

    `known`: the signatures and rules. `tables`: facts about device error codes.
    """
    search = with_ranks(search)
    rulings = all_rulings(search, known, tables)
    seen = candidates(search, known, rulings)
    choice = choose(
        seen,
        is_finished=any(source.is_finished for source in search.sources),
        made_steps=any(map(_goes_on, search.sources)),
        sizes_bytes=[source.size_bytes for source in search.sources],
        excerpt=is_pasted(search.sources),
    )
    answer = with_remarks(_answer(choice, seen, search, known), seen, search, known)
    notes = (*notes_on_runs(answer, seen, search), *notes_on_platform(answer, seen, search))
    return replace(answer, notes=(*answer.notes, *notes))


def _answer(choice: Choice, seen: Sequence[Candidate], search: Search, known: KnowledgeBase) -> Diagnosis:
    if choice.root is None:
        failed = choice.died or _ends_in_failure(search, seen, known)
        return _unknown(search, known) if failed else _none(search, seen, known)
    if choice.root.category == "unknown":
        return replace(_unknown(search, known), culprits=culprits(choice, seen, search))
    return _explained(choice.root, choice, seen, search)


def _ends_in_failure(search: Search, seen: Sequence[Candidate], known: KnowledgeBase) -> bool:
    """Returns whether a log without finished work ends with a line that speaks of a failure in words that no
    signature knows.
    """
    harmless = {candidate.match.text for candidate in seen}
    return not _has_end(search, seen) and ends_in_failure(search.sources, harmless, known)


def _has_end(search: Search, seen: Sequence[Candidate]) -> bool:
    """Returns whether a log shows the last planned step, or a line about finished work that nothing follows."""
    return any(source.is_finished for source in search.sources) or any(
        candidate.role == "end-ok" and not candidate.survived for candidate in seen
    )


def _goes_on(source: Source) -> bool:
    return source.last_step_offset is not None or source.counts_on_offset is not None


def _explained(root: Candidate, choice: Choice, seen: Sequence[Candidate], search: Search) -> Diagnosis:
    signature, captures = root.signature, {**_about(root), **root.match.captures}
    ruling, titled = root.ruling, _titled(choice, root)
    if choice.shown is not None and choice.shown.signature in (signature, titled):
        captures |= choice.shown.match.captures  # the line that is quoted says more
    if ruling and ruling.culprits is not None:
        blamed = tuple(named_below(root, seen)) or ruling.culprits
    else:
        blamed = culprits(choice, seen, search)
    if len(blamed) == 1:
        blamed = (with_rank(blamed[0], choice.followers, seen, search),)
    if len(blamed) == 1 and blamed[0].host and signature.area == "scheduler":
        captures = {"host": blamed[0].host, **captures}  # another line named it
    action = action_for(root, blamed, seen, search)
    usual = _usual_words(root, action)
    return Diagnosis(
        category=root.category,
        class_=class_of(root.category),
        confidence=confidence(choice),
        title=_words((ruling and ruling.title) or titled.title, captures),
        explanation=_words((ruling and ruling.explanation) or usual[0], captures),
        advice=_words((ruling and ruling.advice) or usual[1], captures),
        action=action,
        culprits=blamed,
        first_error=_first_error(choice.shown or root, search),
        evidence=_evidence(choice, search),
        also=others(choice),
        decided_by=ruling.decided_by if ruling else None,
        disagree=ruling.disagree if ruling else (),
    )


def _usual_words(root: Candidate, action: str) -> tuple[Words, Words]:
    """Returns the explanation and the advice for the root cause.

    They are the signature's, unless the exception's message led to another category.
    """
    signature, category = root.signature, root.category
    meaning = MEANINGS.get(category)
    own = signature.action or kind_of(signature.category)[1]
    if category == signature.category or action == own or meaning is None:
        return signature.explanation, signature.advice
    key = category if category in ADVICE else action
    advice = Words(en=ADVICE[key], zh=ADVICE_ZH[key]) if key in ADVICE else signature.advice
    return Words(en=f"{meaning.en[0].upper()}{meaning.en[1:]}.", zh=f"{meaning.zh}。"), advice


def _titled(choice: Choice, root: Candidate) -> Signature:
    """Returns the signature whose title is used.

    It is that of the quoted line if both the quoted line and the root cause say that the job was ended from
    outside.
    """
    shown = choice.shown
    if shown is not None and shown.category == root.category and root.has("end-by-request"):
        return shown.signature
    return root.signature


def _about(root: Candidate) -> dict[str, str]:
    match = root.match
    known = {
        "type": match.error_type,
        "frame": match.frame,
        "message": match.text.partition(": ")[2],
    }
    return {key: text for key, text in known.items() if text}


def _unknown(search: Search, known: KnowledgeBase) -> Diagnosis:
    facts = [
        Fact(file=search.sources[one.source].name, line=None, text=one.text, says=TELLING)
        for one in telling_lines(search.sources, known)
    ]
    first = facts[0] if facts else None
    return Diagnosis(
        category="unknown",
        class_="unknown",
        confidence=0.3,
        title=UNKNOWN_TITLE,
        explanation=UNKNOWN_EXPLANATION,
        advice=UNKNOWN_ADVICE,
        first_error=FirstError(file=first.file, line=None, text=first.text) if first else None,
        evidence=tuple(facts),
    )


def _none(search: Search, seen: Sequence[Candidate], known: KnowledgeBase) -> Diagnosis:
    """Returns the diagnosis that nothing is wrong, or that nothing is known.

    The confidence is high only if the log shows the end: the last planned step, or a line about finished
    work.
    """
    in_part = any(skipped.lost for skipped in search.skipped)
    has_end = _has_end(search, seen)
    worked = any(source.last_step_offset is not None for source in search.sources) or any(
        candidate.role == "end-ok" for candidate in seen
    )
    harmless = {candidate.match.text for candidate in seen}
    doubtful = () if worked else doubtful_lines(search.sources, harmless, known)
    return Diagnosis(
        category="none",
        class_="healthy",
        confidence=NONE_IN_PART_SURE if in_part else NONE_SURE if has_end else NO_END_SURE,
        title=NONE_IN_PART if in_part else NONE_TITLE if has_end else NO_END_TITLE,
        explanation=NONE_EXPLANATION,
        advice=READ_THE_REST if in_part else NONE_ADVICE if worked else NO_WORK_SEEN,
        action="none",
        evidence=(
            *outlived_facts(seen, search),
            *(
                Fact(file=search.sources[one.source].name, line=None, text=one.text, says=DOUBTFUL)
                for one in doubtful
            ),
        ),
    )


def _evidence(choice: Choice, search: Search) -> tuple[Fact, ...]:
    """Returns the evidence: the first error, other matches of the same cause, and consequences.

    Each signature appears once, with its number of matches.
    """
    seen: dict[str, list[Candidate]] = {}
    root = [choice.root] if choice.root else []
    for candidate in (*root, *choice.witnesses, *choice.rivals, *choice.followers):
        seen.setdefault(candidate.signature.id, []).append(candidate)
    return tuple(_fact(same, search) for same in list(seen.values())[:EVIDENCE_MAX])


def _fact(same: Sequence[Candidate], search: Search) -> Fact:
    first = same[0]
    each = {id(candidate): candidate for candidate in same}.values()
    return Fact(
        file=search.sources[first.match.source].name,
        line=first.match.line or None,
        text=first.match.text,
        says=_words(first.signature.title, {**_about(first), **first.match.captures}),
        signature=first.signature.id,
        at_s=_known_time(first.at_s),
        count=sum(candidate.match.count for candidate in each),
        ranks=tuple(
            sorted({candidate.writer.rank for candidate in each if candidate.writer.rank is not None})
        ),
    )


def _first_error(root: Candidate, search: Search) -> FirstError:
    match = root.match
    text, after = message_of(root)
    return FirstError(
        file=search.sources[match.source].name,
        line=match.line or None,
        text=text,
        at_s=_known_time(root.at_s),
        after=after[:3],
        frame=match.frame,
        source=match.source,
        offset=match.offset,
    )


def _known_time(at_s: float | None) -> float | None:
    """Returns the time, or None if the year or the day of the timestamp was assumed.

    An assumed time orders lines but is not shown.
    """
    assumed = at_s is not None and any(begin <= at_s < end for begin, end in ASSUMED_DATES_S)
    return None if assumed else at_s


def _words(words: Words, captures: Mapping[str, str]) -> Words:
    return Words(
        en=" ".join(filled(words.en, captures).split()), zh=" ".join(filled(words.zh, captures).split())
    )
