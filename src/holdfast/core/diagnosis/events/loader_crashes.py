"""Recognises crashes of data loader workers after which the training counted on. Pure.

INFO: Train Epoch: 1515 [70%]
ERROR: Unexpected segmentation fault encountered in worker.
INFO: Train Epoch: 1516 [5%]
"""

from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import Ruling
from holdfast.core.diagnosis.events.context import as_context
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match


def loader_crashes_outlived(matches: Sequence[Match], known: KnowledgeBase) -> dict[int, Ruling]:
    """Returns which matches are only context: a helper crashed, and a later epoch began in the same log.

    An exception that a traceback ends is no such line: the training noticed the crash. Keys: id() of the match.
    """
    crashes = [one for one in matches if known.has("helper-crashed", one) and not one.error_type]
    if not crashes:
        return {}
    epochs = [(one, _epoch(one)) for one in matches if known.has("epoch-counted", one)]

    def went_on(crash: Match) -> bool:
        own = [(one, epoch) for one, epoch in epochs if one.source == crash.source]
        before = [epoch for one, epoch in own if one.offset < crash.offset]
        after = [epoch for one, epoch in own if one.offset > crash.last_offset]
        return bool(before and after) and max(after) > max(before)

    return {id(one): as_context(one, known) for one in crashes if went_on(one)}


def _epoch(match: Match) -> int:
    return int(match.captures.get("epoch") or 0)
