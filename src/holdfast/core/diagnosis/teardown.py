"""A job whose work was done, and that did not end: a time limit or a cancellation minutes after its last word. Pure."""

from collections.abc import Mapping

from holdfast.core.clock_offsets import are_comparable
from holdfast.core.diagnosis.candidates import Ruling
from holdfast.model.matches import Match, Search
from holdfast.model.signatures import Signature, Words

ENDED_BY_LIMIT = ("time_limit", "slurm_time_limit", "terminated")
PATIENCE_S = (
    60.0  # so long a healthy job may take to end: it writes its last checkpoint, ranks leave one by one
)
# One of the stamps may be of another time zone: then they are half an hour or more apart, and tell nothing.
ZONES_S = 1740.0

TITLE = Words(
    en="the work was done, but the job did not end until it was ended",
    zh="任务已完成,但作业没有退出,最终被外部结束",
)
EXPLANATION = Words(
    en="The log says that the work was done; minutes later the job still ran, without a step in between.",
    zh="日志表明任务已完成;数分钟后作业仍在运行,且期间没有训练步。",
)
ADVICE = Words(
    en="Results are safe. Look where ranks wait at their end: destroy_process_group() on all ranks, loader workers that "
    "are not joined, a last barrier that one rank does not reach, uploads.",
    zh="结果不受影响。检查各 rank 结束时的等待位置:所有 rank 调用 destroy_process_group()、未回收的数据加载进程、"
    "有 rank 未到达的最后一个 barrier、上传任务。",
)


def teardown_hangs(search: Search, signatures: Mapping[str, Signature]) -> dict[int, Ruling]:
    """By id() of the match of the limit."""
    found: dict[int, Ruling] = {}
    done: dict[int, Match] = {}
    for match in search.matches:  # by source and offset
        role = signatures[match.signature].role if match.signature in signatures else ""
        if role == "end-ok":
            done[match.source] = match
        elif match.category in ENDED_BY_LIMIT and match.source in done:
            if _waited(done[match.source], match, search):
                found[id(match)] = Ruling(
                    category="teardown_hang", weight=0.8, title=TITLE, explanation=EXPLANATION, advice=ADVICE
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
