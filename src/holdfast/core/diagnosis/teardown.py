"""Finds jobs that finished their work but did not exit. Pure.

A time limit or a cancellation ended them minutes later.
"""

from holdfast.core.clock_offsets import are_comparable
from holdfast.core.diagnosis.candidates import Ruling
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match, Search
from holdfast.model.signatures import Words

PATIENCE_S = (
    60.0  # a healthy job may take this long to end: it writes its last checkpoint, ranks leave one by one
)
# Stamps of different time zones are half an hour or more apart: beyond this, the difference means nothing.
ZONES_S = 1740.0

TITLE = Words(
    en="the work was finished, but the job did not exit and was terminated",
    zh="任务已完成，但作业没有退出，最终被外部结束",
)
EXPLANATION = Words(
    en="The log reports finished work; minutes later the job was still running, without any step in between.",
    zh="日志表明任务已完成；数分钟后作业仍在运行，且期间没有训练步。",
)


def teardown_hangs(search: Search, known: KnowledgeBase) -> dict[int, Ruling]:
    """Returns a ruling for each time limit or cancellation that ended a job whose work was finished. Keys: id() of
    the match.
    """
    found: dict[int, Ruling] = {}
    done: dict[int, Match] = {}
    for match in search.matches:  # by source and offset
        role = known[match.signature].role if match.signature in known else ""
        if role == "end-ok":
            done[match.source] = match
        elif known.has("ended-from-outside", match) and match.source in done:
            if _waited(done[match.source], match, search):
                found[id(match)] = Ruling(
                    category="teardown_hang",
                    weight=0.8,
                    title=TITLE,
                    explanation=EXPLANATION,
                    advice=known.text("end-of-job-advice"),
                )
    return found


def _waited(done: Match, ended: Match, search: Search) -> bool:
    last_step = search.sources[done.source].last_step_offset
    if last_step is not None and last_step > done.last_offset:
        return False
    begin_s, end_s = done.writer.stamp_s, ended.writer.stamp_s
    if begin_s is None or end_s is None or not are_comparable(begin_s, end_s):
        return False
    return PATIENCE_S <= end_s - begin_s < ZONES_S
