"""Combines how the ranks of a running job ended with its logs, into one diagnosis. Pure.

Exit codes, exceptions recorded inside the ranks and stack samples show which rank failed first. The log lines
show the fault: a lost GPU, a port in use, a flapping network card.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from holdfast.core.diagnosis.blame import index_of
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.words.meanings import meaning_of
from holdfast.core.verdict.first import HANG
from holdfast.late_pattern import late
from holdfast.model.diagnoses import Diagnosis, Fact, FirstError
from holdfast.model.signatures import SPOKEN, Words
from holdfast.model.verdicts import Culprit, Evidence, Verdict

DEEPER = frozenset({"hardware", "host", "network"})  # a fault of these explains any complaint of a rank
LONG_BEFORE_S = 20.0  # the kernel writes its report when it kills; an earlier report is about another process
OWN_CODE = late(
    r"code (?:[2-9]|[1-9]\d|1[01]\d)\b"
)  # a program chose it; 1 can be any exception, from 126 on it is the shell's
SURE = 0.6
HALF_SURE = 0.5  # below: a launcher that only says that a rank failed
FACTS_MAX = 16
ALSO_MAX = 4  # other categories that are kept in the record


def joined(
    first: Verdict, found: Diagnosis, known: KnowledgeBase, *, asked_to_stop: bool = False
) -> Diagnosis:
    """Returns the first verdict, or the diagnosis of the log lines if that is more specific.

    The log lines are evidence in both cases. `first`: the verdict from the ends of the ranks. `found`: the
    diagnosis of the same job's logs. `asked_to_stop`: the lines are about a requested stop and show no fault.
    """
    own = as_diagnosis(first)
    if found.category in ("none", "unknown") or asked_to_stop:
        return own
    if not _says_more(first, found, known):
        return replace(own, evidence=_distinct((*own.evidence, *found.evidence)))
    agreed = first.confidence if first.category == found.category else 0.0
    return replace(
        found,
        confidence=max(found.confidence, agreed),
        culprits=_culprits(first, found, known),
        evidence=_distinct((*found.evidence, *own.evidence)),
    )


def verdict_of(diagnosis: Diagnosis, language: str = "en") -> Verdict:
    """Returns the diagnosis as a Verdict, for the journal."""
    evidence = tuple(
        Evidence(
            text=fact.text,
            says=_text(fact.says, language),
            file=fact.file,
            line=fact.line or None,  # live, lines are not counted
            at_s=fact.at_s,
            signature=fact.signature,
        )
        for fact in diagnosis.evidence
    )
    error = diagnosis.first_error
    if error is not None and error.source is not None:
        evidence = tuple(
            replace(one, offset=error.offset) if (one.text, one.file) == (error.text, error.file) else one
            for one in evidence
        )
    first = next(
        (one for one in evidence if error and (one.text, one.file) == (error.text, error.file)), None
    )
    return Verdict(
        category=diagnosis.category,
        class_=diagnosis.class_,
        title=_text(diagnosis.title, language),
        confidence=diagnosis.confidence,
        action=diagnosis.action,
        advice=_text(diagnosis.advice, language),
        culprits=diagnosis.culprits,
        first_error=first or (evidence[0] if error and evidence else None),
        evidence=evidence,
        title_zh=_other(diagnosis.title),
        advice_zh=_other(diagnosis.advice),
        also={other.category: round(other.confidence, 3) for other in diagnosis.also[:ALSO_MAX]},
    )


def _other(words: Words) -> str:
    """Returns the Chinese text; "" if there is none."""
    return words.zh if words.zh != words.en else ""


def as_diagnosis(verdict: Verdict) -> Diagnosis:
    """Returns the verdict in the form of a diagnosis.

    The verdict's sentences are English in both languages; `verdict_zh` translates them.
    """
    first, meaning = verdict.first_error, meaning_of(verdict.category)
    return Diagnosis(
        category=verdict.category,
        class_=verdict.class_,
        confidence=verdict.confidence,
        title=Words(en=verdict.title, zh=verdict.title),
        explanation=meaning,
        advice=Words(en=verdict.advice, zh=verdict.advice),
        action=verdict.action,
        culprits=verdict.culprits,
        first_error=FirstError(file=first.file, line=first.line, text=first.text, at_s=first.at_s)
        if first
        else None,
        evidence=tuple(
            Fact(
                file=one.file,
                line=one.line,
                text=one.text,
                says=Words(en=one.says, zh=one.says),
                signature=one.signature,
                at_s=one.at_s,
            )
            for one in verdict.evidence
        ),
    )


def _says_more(first: Verdict, found: Diagnosis, known: KnowledgeBase) -> bool:
    is_memory_kill = known.is_of("killed-for-memory", found.category)
    was_killed = known.is_of("killed", first.category)
    if known.is_of("state-of-process", first.category) and found.category != first.category:
        return False  # no fault elsewhere on the machine explains a state that was seen
    if is_memory_kill and is_hang(first) and not known.is_of("waits-for-helper-process", first.category):
        return False  # the kernel killed some other process: all ranks live, and so do their loaders
    if is_memory_kill and was_killed and _is_long_before(found, first):
        return False
    if found.class_ in DEEPER and first.class_ not in DEEPER:
        return found.confidence >= SURE
    if first.category == found.category:
        if _is_complaint(found):  # its title says that there was an error, but not which one
            return False
        # The killed rank was seen to die; lines of the same category come from ranks that lost it.
        return not was_killed or first.confidence < SURE or not first.culprits
    if first.category == "unknown":
        is_about_others = is_memory_kill or known.is_of("complaint-about-lost-peer", found.category)
        says_killed = known.is_of(
            "killed", found.category
        )  # whatever reports so has seen no signal: there was none
        if (is_about_others or says_killed) and _ended_itself(first):
            return False
        return found.confidence >= HALF_SURE  # a line that gives a reason beats a verdict without one
    is_vague, is_found_vague = (known.is_of("vague-cause", one.category) for one in (first, found))
    if is_found_vague and first.confidence > HALF_SURE:
        return False
    return is_vague and found.confidence >= SURE


def _ended_itself(first: Verdict) -> bool:
    """Returns whether a single culprit rank exited with a code of its own, so it was not killed by a
    signal.
    """
    error = first.first_error
    return len(first.culprits) == 1 and error is not None and OWN_CODE.match(error.text) is not None


def _is_long_before(found: Diagnosis, first: Verdict) -> bool:
    if found.first_error is None or first.first_error is None:
        return False
    at_s, death_s = found.first_error.at_s, first.first_error.at_s
    return at_s is not None and death_s is not None and death_s - at_s > LONG_BEFORE_S


def _is_complaint(found: Diagnosis) -> bool:
    """Returns whether the first error is only a mention of an error that no signature describes."""
    error = found.first_error
    return error is not None and any(
        one.signature == SPOKEN and (one.file, one.text) == (error.file, error.text) for one in found.evidence
    )


def is_hang(verdict: Verdict) -> bool:
    """Returns whether a verdict is about a hang.

    It is recognised by the first error's text from `core.verdict`.
    """
    return verdict.first_error is not None and verdict.first_error.text.startswith(HANG)


def _culprits(first: Verdict, found: Diagnosis, known: KnowledgeBase) -> tuple[Culprit, ...]:
    """Returns the culprits: ranks from how they ended, hosts and devices from log lines.

    If a log line names other ranks, the log line's culprits are returned.
    """
    ranks = {one.rank for one in first.culprits} - {None}
    if not ranks or ranks & {one.rank for one in found.culprits}:
        return found.culprits or first.culprits
    of_ranks = [one for one in found.culprits if one.rank is not None]
    if any(one.rank != index_of(one.device, known) for one in of_ranks):
        return found.culprits
    if of_ranks:  # guessed from the number of a device: the ends are more exact
        return tuple(replace(one, device=of_ranks[0].device) for one in first.culprits)
    return (*first.culprits, *(one for one in found.culprits if one.device or one.host))


def _distinct(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    return tuple({(one.text, one.file, one.line): one for one in facts}.values())[:FACTS_MAX]


def _text(words: Words, language: str) -> str:
    return words.zh if language == "zh" else words.en
