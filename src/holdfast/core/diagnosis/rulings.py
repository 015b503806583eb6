"""Collects the rulings (results of rules that compare several lines), by the match whose signature they replace.
Pure.
"""

from collections.abc import Iterable

from holdfast.core.diagnosis import training
from holdfast.core.diagnosis.candidates import Ruling
from holdfast.core.diagnosis.compare.collectives import compare
from holdfast.core.diagnosis.compare.comparison import Comparison
from holdfast.core.diagnosis.compare.first_end import of_first_end
from holdfast.core.diagnosis.devices.judge import judge
from holdfast.core.diagnosis.devices.judgements import Judgement
from holdfast.core.diagnosis.events.context import as_context
from holdfast.core.diagnosis.events.loader_crashes import loader_crashes_outlived
from holdfast.core.diagnosis.events.node_returns import nodes_that_returned
from holdfast.core.diagnosis.events.pods import waits_that_ended
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.records import nodes_of_others
from holdfast.core.diagnosis.teardown import teardown_hangs
from holdfast.core.diagnosis.words.wordings import of_first_exits, of_likeness
from holdfast.model.code_facts import CodeTables
from holdfast.model.matches import Match, Search
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit

NO_TABLES = CodeTables()
DECIDERS = {
    "recovery action": Words(en="the driver's own recovery action", zh="驱动给出的恢复动作"),
    "state flags": Words(en="the state flags of the device", zh="设备状态标志"),
    "sub-code": Words(en="details in the line besides the code", zh="日志行中代码之外的细节"),
    "repetition": Words(en="repetition", zh="重复出现的情况"),
    "exoneration": Words(en="the same fault on many devices", zh="多个设备出现相同故障"),
    "table": Words(en="the table of codes", zh="故障码表"),
    "signature": Words(en="the signature of the line", zh="日志行的特征"),
    "recovered": Words(en="a line that reports the recovery", zh="表明已恢复的日志行"),
}


def all_rulings(search: Search, known: KnowledgeBase, tables: CodeTables) -> dict[int, Ruling]:
    """Returns the rulings that replace the values of signatures. Keys: id() of the match.

    If several rules apply to a match, the rule that compares more lines wins.
    """
    found = training.rulings(search.matches, known) | teardown_hangs(search, known)
    for match in search.matches:
        if ruling := of_likeness(match, known):
            found[id(match)] = ruling
    found |= of_first_exits(search.matches, known)
    found |= of_first_end(search, known)
    found |= waits_that_ended(search.matches, known)
    found |= loader_crashes_outlived(search.matches, known)
    found |= nodes_that_returned(search.matches, known)
    found |= nodes_of_others(search, known)
    for judgement in judge(search.matches, search.sources, tables, known):
        _add_judgement(found, judgement, known)
    for comparison in reversed(compare(search.matches, search.sources, known)):
        _add_comparison(found, comparison, known)
    return found


def _add_comparison(found: dict[int, Ruling], comparison: Comparison, known: KnowledgeBase) -> None:
    """Adds a ruling for the comparison's first line and for the same line of other ranks.

    The lines that it explains become context.
    """
    ruling = _of_comparison(comparison)
    for match in comparison.seen:
        if match.signature == comparison.first.signature:
            found[id(match)] = ruling
    found[id(comparison.first)] = ruling
    _add_context(found, comparison.explained, known)


def _of_comparison(comparison: Comparison) -> Ruling:
    return Ruling(
        category=comparison.category,
        role=comparison.role,
        severity=comparison.severity,
        weight=comparison.weight,
        action=comparison.action,
        culprits=comparison.culprits,
        title=comparison.title,
        explanation=comparison.explanation,
        advice=comparison.advice,
        of_end=comparison.of_end,
    )


def _add_judgement(found: dict[int, Ruling], judgement: Judgement, known: KnowledgeBase) -> None:
    found[id(judgement.first)] = Ruling(
        category=judgement.category,
        role=judgement.role,
        severity=judgement.severity,
        weight=judgement.confidence,
        action=judgement.action,
        culprits=_culprits(judgement),
        title=judgement.title,
        explanation=judgement.fact.meaning if judgement.fact else None,
        advice=judgement.advice,
        decided_by=_decided_by(judgement),
        disagree=tuple(Words(en=one, zh=one) for one in judgement.disagree),
    )
    _add_context(found, judgement.explained, known)


def _add_context(found: dict[int, Ruling], matches: Iterable[Match], known: KnowledgeBase) -> None:
    found.update({id(match): as_context(match, known) for match in matches if match.signature in known})


def _culprits(judgement: Judgement) -> tuple[Culprit, ...] | None:
    writer = judgement.first.writer
    host = judgement.host or writer.host
    if not judgement.devices:
        return (Culprit(rank=writer.rank, host=host),) if host or writer.rank is not None else None
    return tuple(Culprit(rank=writer.rank, host=host, device=device) for device in judgement.devices)


def _decided_by(judgement: Judgement) -> Words:
    by = DECIDERS.get(judgement.decided_by) or Words(en=judgement.decided_by, zh=judgement.decided_by)
    if judgement.why is None:
        return by
    return Words(en=f"{by.en}: {judgement.why.en}", zh=f"{by.zh}：{judgement.why.zh}")
